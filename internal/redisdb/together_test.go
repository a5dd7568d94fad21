package redisdb_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// trips counts round trips.
type trips struct{ n atomic.Int64 }

func (h *trips) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { h.n.Add(1); return next(ctx, cmd) }
}
func (h *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { h.n.Add(1); return next(ctx, cmds) }
}

func openTogether(t *testing.T, opt redisdb.Options) (*redisdb.DB, redis.UniversalClient, *trips) {
	t.Helper()
	db, err := redisdb.Open(t.Context(), testkit.Server(t).URL(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	count := &trips{}
	db.Client.AddHook(count)
	return db, db.Together(), count
}

// echo answers with its argument, or fails with it.
var echo = redisdb.NewScript(`
redis.call('INCR', KEYS[1])
if ARGV[2] == 'fail' then return redis.error_reply('ERR ' .. ARGV[1]) end
return ARGV[1]`)

func TestEachScriptGetsItsOwnAnswerInAFewRoundTrips(t *testing.T) {
	t.Parallel()
	_, c, count := openTogether(t, redisdb.Options{})
	const all = 400
	for range 2 { // the second time Redis knows the script
		count.n.Store(0)
		if err := c.Del(t.Context(), "k").Err(); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range all {
			wg.Go(func() {
				want, how := fmt.Sprint("answer ", i), ""
				if i%7 == 0 {
					how = "fail"
				}
				got, err := echo.Run(t.Context(), c, []string{"k"}, want, how).Text()
				if how == "fail" && (err == nil || !strings.Contains(err.Error(), want)) || how == "" && (err != nil || got != want) {
					t.Errorf("%s: got %q, %v", want, got, err)
				}
			})
		}
		wg.Wait()
		if n, err := c.Get(t.Context(), "k").Int(); err != nil || n != all {
			t.Errorf("%d of %d scripts have run, %v", n, all, err)
		}
	}
	if n := count.n.Load(); n > all/2 {
		t.Errorf("%d scripts at once took %d round trips", all, n)
	}
}

func TestAScriptByItselfGoesAtOnce(t *testing.T) {
	t.Parallel()
	_, c, count := openTogether(t, redisdb.Options{})
	for i := range 3 {
		if got, err := echo.Run(t.Context(), c, []string{"k"}, i, "").Int(); err != nil || got != i {
			t.Fatalf("got %d, %v", got, err)
		}
	}
	if n := count.n.Load(); n != 4 { // the first needs its text
		t.Errorf("3 scripts took %d round trips", n)
	}
}

func TestALostConnectionIsHeardOfByAll(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	db, err := redisdb.Open(t.Context(), s.URL(), redisdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c := db.Together()
	if err := echo.Run(t.Context(), c, []string{"k"}, 1, "").Err(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if err := echo.Run(t.Context(), c, []string{"k"}, 1, "").Err(); !redisdb.Away(err) {
				t.Errorf("got %v from a Redis that is gone", err)
			}
		})
	}
	wg.Wait()
	s.Restart()
	testkit.Eventually(t, 20e9, "answers again", func() bool { return echo.Run(t.Context(), c, []string{"k"}, 1, "").Err() == nil })
}

// What replicas are waited for goes one by one: a pipeline would not wait.
func TestWhoWaitsForReplicasGoesAlone(t *testing.T) {
	t.Parallel()
	db, c, _ := openTogether(t, redisdb.Options{WaitReplicas: 1})
	if c != db.Client {
		t.Error("scripts that replicas are waited for share round trips")
	}
}
