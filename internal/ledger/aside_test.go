package ledger_test

import (
	"strings"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// Something else has overwritten a job's record, whatever the job's state. The job is parked as unreadable and in doubt, the old contents are kept, the result of
// its call is reported, and no other job waits for it.
func TestAJobWhoseRecordIsDamagedIsSetAside(t *testing.T) {
	t.Parallel()
	success := job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.Now(), Reference: "ch_1"}
	for name, c := range map[string]struct {
		meet func(b *bench, hurt func())
		says string
	}{
		"queued": {func(b *bench, hurt func()) {
			id, generation := b.pull()
			hurt()
			if _, opening := b.open(id, generation, "w"); opening != job.OpenStale {
				b.t.Errorf("it was opened: %s", opening)
			}
		}, ""},
		"called": {func(b *bench, hurt func()) {
			id, generation := b.pull()
			a, _ := b.open(id, generation, "w")
			hurt()
			b.must(b.books.Done(b.ctx, a, success))
		}, "its last call succeeded (reference ch_1): resolve it as done"},
		"to go back": {func(b *bench, hurt func()) {
			id, generation := b.pull()
			a, _ := b.open(id, generation, "w")
			hurt()
			b.must(b.books.Back(b.ctx, a, job.Ending{Called: true, Status: 500, Verdict: job.VerdictRetry, At: time.Now(), Error: "HTTP 500"}, time.Second))
		}, "its last call came to: HTTP 500"},
		"to be parked": {func(b *bench, hurt func()) {
			id, generation := b.pull()
			a, _ := b.open(id, generation, "w")
			hurt()
			b.must(deadletter.New(b.c, b.name).Park(b.ctx, a, job.Ending{Called: true, Status: 402, Verdict: job.VerdictRefused, At: time.Now(), Error: "HTTP 402"}, job.Refused))
		}, "it was to be parked as refused: HTTP 402"},
		"retrying": {func(b *bench, hurt func()) {
			id, generation := b.pull()
			a, _ := b.open(id, generation, "w")
			b.must(b.books.Back(b.ctx, a, job.Ending{}, time.Microsecond))
			hurt()
			b.now += 60e6
			if _, _, err := b.books.MoveDue(b.ctx); err != nil {
				b.t.Error(err)
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 10, nil)
			db, err := redisdb.Open(b.ctx, testkit.Redis(t), redisdb.Options{}) // whose client says which key it is
			b.must(err)
			t.Cleanup(func() { _ = db.Close() })
			b.on(db.Client)
			b.accept("park", job.Job{ID: "hurt", Payload: []byte("{}")}, job.Job{ID: "whole", Payload: []byte("{}")})
			c.meet(b, func() {
				b.c.Del(b.ctx, b.keys.Job("hurt"))
				b.must(b.c.Set(b.ctx, b.keys.Job("hurt"), "garbage", 0).Err())
			})
			r := b.record("hurt")
			if r.State != job.Parked || r.Reason != job.Unreadable || !r.Unsure || !strings.Contains(r.Error, b.keys.Aside("hurt")) || !strings.Contains(r.Error, c.says) {
				t.Errorf("%+v", r)
			}
			if kept := b.c.Get(b.ctx, b.keys.Aside("hurt")).Val(); kept != "garbage" {
				t.Errorf("what was there is %q", kept)
			}
			if n := b.c.ZCard(b.ctx, b.keys.Parked("unreadable")).Val(); n != 1 {
				t.Errorf("%d are parked as unreadable", n)
			}
			b.took(deadletter.New(b.c, b.name).Discard(b.ctx, []job.Return{{ID: "hurt", Generation: r.Generation, Reason: r.Reason}}, time.Hour))
			if n := b.c.Exists(b.ctx, b.keys.Aside("hurt")).Val(); n != 0 {
				t.Error("what was there outlives a discard")
			}
			if id, generation := b.pull(); id != "whole" {
				t.Errorf("pulled %s", id)
			} else if _, opening := b.open(id, generation, "w"); opening != job.OpenGo {
				t.Errorf("the other one is %s", opening)
			}
		})
	}
}
