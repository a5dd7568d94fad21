package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/ledger"
)

// another is another process of the bench, which has seen nothing yet.
func (b *bench) another() *ledger.Books {
	cfg := b.cfg
	cfg.Counted = &ledger.Counted{}
	return ledger.New(b.c, cfg)
}

// A process calls nothing in a currency for more than a day, while others call. Its calls don't count as lost, whether it has told all the time what it has opened, or
// could not, because its machine slept.
func TestWhoCalledNothingForADayHasLostNothing(t *testing.T) {
	t.Parallel()
	for name, tells := range map[string]bool{"it tells": true, "it slept": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := braked(t, "EUR 10/1m", "EUR 8")
			idle := b.books
			b.pay("long ago", "800")
			b.books = b.another()
			for i := range 27 {
				b.now += time.Hour.Microseconds()
				if tells {
					b.must(idle.TellCounted(b.ctx))
				}
				b.accept("park", paying(fmt.Sprint("other-", i), "100", "EUR"))
				id, g := b.pull()
				_, o := b.open(id, g, fmt.Sprint("q.", i))
				b.finish(id, g)
				want(t, "opening of "+id, string(o), "go")
			}
			b.must(idle.TellCounted(b.ctx))
			s, err := b.books.Brakes(b.ctx)
			b.must(err)
			want(t, "called in the last minute", s.Windows[0].Called, 100)
			b.books = idle
			b.pay("again", "800")
			s, err = b.books.Brakes(b.ctx)
			b.must(err)
			want(t, "called with that", s.Windows[0].Called, 900)
			b.must(idle.TellCounted(b.ctx))
			b.now += 2 * time.Minute.Microseconds()
			b.pay("and again", "800")
		})
	}
}

// Books that were counted again are replaced by older ones. The limits wait for one window and no longer, however often a call is tried.
func TestOlderBooksOfMoneyAreWaitedForOnce(t *testing.T) {
	t.Parallel()
	b := braked(t, "EUR 10/1m", "EUR 8")
	b.pay("first", "100")
	before := b.c.Dump(b.ctx, b.keys.Brakes()).Val()
	b.c.Del(b.ctx, b.keys.Brakes())
	b.books, b.now = b.another(), b.now+time.Hour.Microseconds()
	b.pay("counted anew", "100")
	b.must(b.c.RestoreReplace(b.ctx, b.keys.Brakes(), 0, before).Err())
	b.accept("park", paying("next", "100", "EUR"))
	opened, waited := job.OpenBraked, 0
	for ; opened == job.OpenBraked && waited < 60; waited++ {
		id, g := b.pull()
		a, o := b.open(id, g, fmt.Sprint("p.", 10+waited))
		if opened = o; o != job.OpenGo {
			b.must(b.books.Back(b.ctx, a, job.Ending{}, 0))
			b.finish(id, g)
			b.now += (11 * time.Second).Microseconds()
		}
	}
	want(t, "opening", opened, job.OpenGo)
	if waited < 6 || waited > 12 {
		t.Errorf("it waited for %d times 11 s", waited)
	}
}

// A process whose workers have another name since its file was read again is the same process: its calls count once.
func TestWhatWasCalledBeforeAReloadCountsOnce(t *testing.T) {
	t.Parallel()
	b := braked(t, "EUR 10/1m", "EUR 8")
	b.cfg.Counted = &ledger.Counted{}
	b.on(b.c)
	b.pay("before", "800")
	b.on(b.c)
	b.accept("park", paying("after", "100", "EUR"))
	id, g := b.pull()
	_, o := b.open(id, g, "other.1")
	want(t, "opening after it", o, job.OpenGo)
	b.must(b.books.TellCounted(b.ctx))
	s, err := b.books.Brakes(b.ctx)
	b.must(err)
	want(t, "called", s.Windows[0].Called, 900)
}
