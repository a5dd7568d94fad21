package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/ledger"
)

// A pending job may have been called again in what Redis has forgotten. "No such payment" is believed only from look-ups made after that, and late
// enough after the last call that may be missing.
func TestAForgottenCallIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(b *bench){
		"an old snapshot was restored": func(b *bench) {
			b.must(b.c.HSet(b.ctx, b.keys.Alive(), "marks", fmt.Sprintf("1-2 %d-%d", b.now-10*minute, b.now)).Err())
		},
		"Redis has lost its latest writes": func(b *bench) { b.must(b.c.HSet(b.ctx, b.keys.Hold(), "lost", b.now).Err()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, store := asks(t, func(c *ledger.Config) { c.Keys = false })
			b.accept("park", job.Job{ID: "a"})
			b.inDoubt(store)
			b.pass(10 * time.Minute)
			if came := b.came(b.claim("o"), absent(time.Minute), firstLook); came != ledger.AfterAsking {
				t.Fatal(came)
			}
			b.pass(firstLook)
			forget(b)
			forgotten := b.now
			b.pass(time.Second)
			if came := b.came(b.claim("o"), absent(time.Minute), firstLook); came != ledger.AfterAsking {
				t.Fatalf("a second after a call that is forgotten: %s", came)
			}
			for came := ledger.AfterAsking; came == ledger.AfterAsking; {
				b.pass(firstLook)
				if came = b.came(b.claim("o"), absent(time.Minute), firstLook); came == ledger.AfterQueued && b.now < forgotten+minute {
					t.Errorf("believed %s after a call that is forgotten", time.Duration(b.now-forgotten)*time.Microsecond)
				}
			}
			if r := b.record("a"); r.State != job.Queued {
				t.Errorf("it is %s", r.State)
			}
			b.clean("went on")
		})
	}
}
