package doctor

import (
	"fmt"
	"strings"
	"testing"
)

func TestChecksThatAreAlikeAreCounted(t *testing.T) {
	t.Parallel()
	checks := []Check{ok("redis", "", "fine"), warn("memory", "", "raise it", "full")}
	for i := range 1000 {
		checks = append(checks, warn("unserved", fmt.Sprint("g", i), "run", "nobody"), ok("unserved", fmt.Sprint("g", i), "well"))
	}
	checks = append(checks, fail("tls", "g7", "look", "broken"))
	var got []string
	for _, s := range Few(checks) {
		got = append(got, fmt.Sprint(s.Level, " ", s.Name, s.Gateway, " ", s.More))
	}
	if want := "ok redis 0, warn memory 0, warn unservedg0 0, ok unservedg0 0, warn unservedg1 0, ok unservedg1 0, warn unservedg2 997, ok unservedg2 997, fail tlsg7 0"; strings.Join(got, ", ") != want {
		t.Errorf("%s\nwant %s", strings.Join(got, ", "), want)
	}
}
