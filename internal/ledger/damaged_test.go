package ledger_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
)

// Something else writes to a record how many pieces its payload has, or removes a piece. No script works on it for longer than on another job. The job is not called,
// and is parked with an error that says what to look at.
func TestADamagedPayloadIsNeitherCalledNorAnEndlessTask(t *testing.T) {
	t.Parallel()
	for _, pn := range []string{"3000000000", "-3000000000", "0", "-1", "", " ", "x", "1.5", "9", "1e300", "nan", "inf", "-inf", "0x7fffffff", "\xff\x00", "2", "7"} {
		t.Run(pn, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 10, nil)
			whole := job.Job{ID: "whole", Payload: []byte(`{"x":"` + strings.Repeat("y", 300) + `"}`)}
			hurt := whole
			hurt.ID = "hurt"
			b.accept("park", hurt, whole)
			if pn == "7" { // one more than there are
				b.c.HDel(b.ctx, b.keys.Job("hurt"), "p2")
			} else if pn != "2" { // fewer than there are can't be told from a payload that was as short
				b.must(b.c.HSet(b.ctx, b.keys.Job("hurt"), "pn", pn).Err())
			} else {
				b.c.HDel(b.ctx, b.keys.Job("hurt"), "p1", "p3", "p5")
			}
			if r := b.record("hurt"); !errors.Is(r.Unopened, job.ErrDamaged) || !strings.Contains(r.Unopened.Error(), b.keys.Job("hurt")) || len(r.Job.Payload) > 0 {
				t.Errorf("it reads %q, %v", r.Job.Payload, r.Unopened)
			}
			id, generation := b.pull()
			a, opening := b.open(id, generation, "w")
			if id != "hurt" || opening != job.OpenChanged || !strings.Contains(a.LastError, b.keys.Job("hurt")) {
				t.Errorf("%s was opened: %s, %q", id, opening, a.LastError)
			}
			store := deadletter.New(b.c, b.name)
			b.must(store.Park(b.ctx, a, job.Ending{Error: a.LastError}, job.Unreadable))
			for r, err := range store.List(b.ctx, deadletter.Filter{}) {
				if b.must(err); !errors.Is(r.Unopened, job.ErrDamaged) {
					t.Errorf("it is listed as %q, %v", r.Job.Payload, r.Unopened)
				}
			}
			b.took(store.Discard(b.ctx, b.back("hurt"), time.Hour))
			for _, field := range b.c.HKeys(b.ctx, b.keys.Job("hurt")).Val() {
				if field[0] == 'p' && field != "pa" {
					t.Errorf("discarded, it has %s", field)
				}
			}
			if id, generation = b.pull(); id != "whole" {
				t.Errorf("pulled %s", id)
			}
			if a, opening := b.open(id, generation, "w"); opening != job.OpenGo || string(a.Job.Payload) != string(whole.Payload) {
				t.Errorf("%s was opened: %s, %q", id, opening, a.Job.Payload)
			}
		})
	}
}
