package bucket

import (
	flags "flag"
	"os"
	"strconv"
	"testing"

	"spillway/internal/testkit"
)

// TestMain has rapid draw less than its 100 times for each property, unless it is told how often, or -long.
func TestMain(m *testing.M) {
	flags.Parse()
	if checks := flags.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set(strconv.Itoa(testkit.Often(30, 100)))
	}
	os.Exit(m.Run())
}
