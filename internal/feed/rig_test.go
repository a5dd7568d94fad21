package feed_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/feed"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// rig is a gateway with an outcome feed and without room for jobs: each new job is parked, which is an outcome.
type rig struct {
	t     *testing.T
	c     redis.UniversalClient
	keys  redisdb.Keys
	name  string
	books *ledger.Books
	now   int64
	jobs  int
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, c: testkit.Client(t), name: testkit.Gateway(t), now: 1_700_000_000_000_000}
	r.keys = redisdb.NewKeys(r.name)
	r.books = ledger.New(r.c, ledger.Config{Gateway: r.name, Attempts: 3, Dedupe: time.Hour, Feed: true, Encode: queue.NewEncoder(r.name).Encode,
		Bucket:    bucket.TokenBucket{Limits: []job.Limit{{N: 1, Window: time.Hour}}, Burst: 1},
		Money:     func(p []byte) string { return job.MoneyField(p, "amount", "currency") },
		NowMicros: func() int64 { return r.now }})
	r.accept(job.Job{ID: "first", Payload: json.RawMessage(`{}`)}) // takes what room there is
	return r
}

// accept admits jobs with one script.
func (r *rig) accept(jobs ...job.Job) {
	r.t.Helper()
	chunk := make([]job.Newcomer, len(jobs))
	for i, j := range jobs {
		chunk[i] = job.Newcomer{Job: j, Digest: "d"}
	}
	if _, _, err := testkit.Accept(r.t.Context(), r.books, job.Ticket{Sequence: rand.Text(), Number: 1}, chunk, "park"); err != nil {
		r.t.Fatal(err)
	}
}

// park makes n outcomes with one script: job-1, job-2 and so on.
func (r *rig) park(n int) {
	r.t.Helper()
	jobs := make([]job.Job, n)
	for i := range jobs {
		r.jobs++
		jobs[i] = job.Job{ID: fmt.Sprintf("job-%d", r.jobs), Batch: "november", Payload: json.RawMessage(`{"amount":4900,"currency":"EUR"}`)}
	}
	r.accept(jobs...)
}

// feed is the gateway's feed as it is configured.
func (r *rig) feed(cfg feed.Config) *feed.Feed {
	cfg.Gateway, cfg.NowMicros = r.name, func() int64 { return r.now }
	return feed.New(r.c, cfg)
}

// read reads all behind a cursor, so many at a time, and returns the ids and the last cursor.
func (r *rig) read(f *feed.Feed, after feed.Cursor, limit int) (ids []string, last feed.Cursor) {
	r.t.Helper()
	for {
		page, err := f.Read(r.t.Context(), after, limit)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(page) == 0 {
			return ids, after
		}
		if len(page) > limit {
			r.t.Fatalf("%d outcomes, of %d at most", len(page), limit)
		}
		for _, o := range page {
			ids = append(ids, o.ID)
		}
		if after, err = feed.ParseCursor(page[len(page)-1].Cursor); err != nil {
			r.t.Fatal(err)
		}
	}
}

// ids are those of the jobs from one number up to another.
func ids(from, to int) (all []string) {
	for i := from; i <= to; i++ {
		all = append(all, fmt.Sprintf("job-%d", i))
	}
	return all
}

// same fails the test where the outcomes are not these.
func (r *rig) same(got, want []string) {
	r.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.t.Fatalf("got  %v\nwant %v", got, want)
	}
}

// dump saves the feed's keys and returns a function that restores them.
func (r *rig) dump() (back func()) {
	r.t.Helper()
	keys, texts := []string{r.keys.Feed(), r.keys.Outcomes()}, make([]string, 2)
	for i, key := range keys {
		texts[i] = r.c.Dump(r.t.Context(), key).Val()
	}
	return func() {
		r.t.Helper()
		for i, key := range keys {
			if err := r.c.RestoreReplace(r.t.Context(), key, 0, texts[i]).Err(); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}
