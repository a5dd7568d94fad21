package desk

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// Processes that serve come first, and silent ones after them.
func TestWhoServesAndWhoIsSilent(t *testing.T) {
	t.Parallel()
	c := testkit.Server(t).Client()
	if all, err := WhoServes(t.Context(), c); err != nil || len(all.List) != 0 || len(all.Versions()) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	for name, version := range map[string]string{"b.1": "v2", "c.1": "v1", "d.1": "v1"} {
		if err := redisdb.Serve(t.Context(), c, name, redisdb.Serving{Version: version, Gateways: 12, Chosen: []string{"one", "two"}, Calls: 7}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.HSet(t.Context(), redisdb.Processes, "a.1", fmt.Sprintf(`%d {"version":"v0","last_call":"2026-11-30T18:00:00Z","gateways":3}`, time.Now().Add(-time.Minute).UnixMicro())).Err(); err != nil {
		t.Fatal(err)
	}
	all, err := WhoServes(t.Context(), c)
	if err != nil || len(all.List) != 4 {
		t.Fatalf("%+v, %v", all, err)
	}
	if last := all.List[3]; last.Process != "a.1" || last.State != ProcessSilent || last.LastCall == nil || last.Which() != "all of its file" {
		t.Errorf("%+v", last)
	}
	if first := all.List[0]; first.Process != "b.1" || first.State != ProcessServing || first.LastCall != nil || first.Which() != "one, two, …" || first.Calls != 7 {
		t.Errorf("%+v", first)
	}
	if versions := all.Versions(); fmt.Sprint(versions) != "[v1 v2]" {
		t.Errorf("%v", versions)
	}
}
