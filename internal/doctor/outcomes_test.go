package doctor

import (
	"strings"
	"testing"
	"time"

	"spillway/internal/dispatch"
	"spillway/internal/job"
)

func TestReadersOfOutcomes(t *testing.T) {
	t.Parallel()
	w := newWard(t, "outcomes: {readers: [ledger], max_behind: 1}")
	park := func(id string) {
		t.Helper()
		w.must(dispatch.Store(w.c, w.g).ParkUnreadable(t.Context(), id, []byte("x"), "foreign"))
	}
	park("a")
	if r := w.examine(); strings.Contains(list(r), "outcomes_") {
		t.Errorf("a reader that was told just now:\n%s", list(r))
	}
	// Now the first outcome is an old one.
	long := time.Now().Add(-time.Hour)
	w.must(w.c.Del(t.Context(), w.k.Outcomes(), w.k.Feed()).Err())
	s := dispatch.Store(w.c, w.g)
	s.NowMicros = func() int64 { return long.UnixMicro() }
	w.must(s.ParkUnreadable(t.Context(), "b", []byte("x"), "foreign"))
	w.expect("outcomes_unread", Warn, "the reader ledger is 1 outcomes behind, since "+job.Moment(long), "start the reader")
	park("c")
	_, err := dispatch.Feed(w.c, w.g).Tend(t.Context())
	w.must(err)
	w.expect("outcomes_held", Fail, "it is not called: the reader ledger is 2 outcomes behind, and may be 1 behind", "raise outcomes.max_behind")
	w.p.Gateways[0].Outcomes.Then = "drop"
	w.must(w.c.HSet(t.Context(), w.k.Feed(), "d:ledger", 3).Err())
	w.expect("outcomes_dropped", Warn, "3 outcomes were dropped before the reader ledger had them", "dispatcher export")
	w.p.Gateways[0].Outcomes = nil
	w.expect("outcomes_off", Warn, "the file has no outcomes", "put outcomes back")
}
