package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// on moves a rig to a Redis of its own.
func (r *rig) on(server *testkit.RedisServer) {
	r.t.Helper()
	r.at(server.URL())
}

// alone moves a rig to a Redis database of its own, for tests of data that all gateways of a Redis share.
func (r *rig) alone() {
	r.t.Helper()
	url, _ := testkit.Database(r.t)
	r.at(url)
}

func (r *rig) at(url string) {
	r.t.Helper()
	db, err := redisdb.Open(r.t.Context(), url, redisdb.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = db.Close() })
	r.db = db
}

// The outcome of a call is recorded even if Redis is full: it needs little memory, and frees some. No new call begins.
func TestOutcomesAreWrittenDownInAFullRedis(t *testing.T) {
	t.Parallel()
	r := setup(t, quick)
	r.on(testkit.Server(t))
	g, ctx := r.cfg.Gateways[0], t.Context()
	r.put(0, 6)
	books, store := Books(r.db.Client, g), deadletter.New(r.db.Client, g.Name)
	var open []job.Attempt
	for i := range 5 {
		a, opening, err := books.Open(ctx, fmt.Sprintf("j%04d", i), 1, "me", time.Minute)
		if err != nil || opening != job.OpenGo {
			t.Fatal(opening, err)
		}
		open = append(open, a)
	}
	if err := r.db.Client.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	called := job.Ending{Called: true, Spent: true, Status: 500, Verdict: job.VerdictRetry, At: time.Now()}
	for what, err := range map[string]error{
		"done":                      books.Done(ctx, open[0], called),
		"back in the queue":         books.Back(ctx, open[1], job.Ending{}, 0),
		"a back-off":                books.Back(ctx, open[2], called, time.Hour),
		"parked":                    store.Park(ctx, open[3], called, job.Refused),
		"parked as unknown outcome": store.Park(ctx, open[4], called, job.UnknownOutcome),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if s := r.standing(0); s.Done != 1 || s.Retrying != 1 || s.Queued != 7 || s.Parked[job.Refused] != 1 || s.Parked[job.UnknownOutcome] != 1 {
		t.Errorf("%+v", s)
	}
	if _, _, err := books.Open(ctx, "j0005", 1, "me", time.Minute); !redisdb.Away(err) || !strings.HasPrefix(err.Error(), "OOM") {
		t.Errorf("a call begins in a full Redis: %v", err)
	}
}
