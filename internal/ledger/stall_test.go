package ledger_test

import (
	"strconv"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/ledger"
)

// Redis stalls for 45 s, and the deadline of an attempt passes meanwhile. Its worker lives, and could not report what the call came to. It gets
// the time to do so, before a dispatcher that saw the stall, and one that was started since, take the attempt.
func TestAfterAStallTheLivingWriteTheirOutcomesFirst(t *testing.T) {
	t.Parallel()
	for name, started := range map[string]bool{"a dispatcher that saw it": false, "one started since": true} {
		for _, alive := range []bool{true, false} {
			b := setup(t, 10, nil)
			b.accept("park", numbered(1, 1)...)
			b.pull()
			a, opening, err := b.books.Open(b.ctx, "j1", 1, "me", 30*time.Second)
			b.must(err)
			want(t, "opening", opening, job.OpenGo)
			b.live(2*time.Second, nil)
			from := b.now
			b.now += (45 * time.Second).Microseconds()
			if started {
				b.books = ledger.New(b.c, b.cfg)
				b.must(b.c.HSet(b.ctx, b.keys.Alive(), "at", b.now, "gaps", "1-2 "+strconv.FormatInt(from, 10)+"-"+strconv.FormatInt(b.now, 10)).Err())
			}
			var ended time.Duration
			did, _ := b.live(20*time.Second, func(at time.Duration) {
				if ended == 0 && b.c.ZCard(b.ctx, b.keys.Open()).Val() == 0 {
					ended = at
				}
				if alive && at == 4*time.Second {
					b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Spent: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(from)}))
				}
			})
			switch {
			case alive && did.Reclaimed > 0:
				t.Errorf("%s: took the attempt of a living worker after %v", name, ended)
			case !alive && (did.Reclaimed != 1 || ended < 12*time.Second || ended > 14*time.Second):
				t.Errorf("%s: took %d attempts of a dead worker after %v, want one after 12 to 14 s", name, did.Reclaimed, ended)
			}
		}
	}
}
