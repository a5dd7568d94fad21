package redisdb_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// trips counts round trips, and those of a single script.
type trips struct{ n, single atomic.Int64 }

func (h *trips) see(cmds []redis.Cmder, send func() error) error {
	h.n.Add(1)
	if len(cmds) == 1 && cmds[0].Name() == "evalsha" {
		h.single.Add(1)
	}
	return send()
}

func openTogether(t *testing.T, opt redisdb.Options) (*redisdb.DB, redis.UniversalClient, *trips) {
	t.Helper()
	db, err := redisdb.Open(t.Context(), testkit.Server(t).URL(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	count := &trips{}
	db.Client.AddHook(testkit.Around(count.see))
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

// While Redis stalls, a caller that waits behind others can give up at any time: otherwise a stop would hang. Its script does not run.
func TestWhoWaitsForHisTurnMayLeave(t *testing.T) {
	t.Parallel()
	s, count := testkit.Server(t), &trips{}
	db, err := redisdb.Open(t.Context(), s.URL(), redisdb.Options{ReadTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c := db.Together()
	if err := echo.Run(t.Context(), c, []string{"k"}, 0, "").Err(); err != nil {
		t.Fatal(err)
	}
	db.Client.AddHook(testkit.Around(count.see))
	s.Pause()
	defer s.Continue()
	var first sync.WaitGroup
	const most = 16 // round trips that may be under way, as each takes so long
	for i := range most {
		first.Go(func() {
			if err := echo.Run(context.Background(), c, []string{"k"}, i, "").Err(); err != nil {
				t.Error(err)
			}
		})
		testkit.Eventually(t, 20*time.Second, "a round trip under way", func() bool { return count.single.Load() == int64(i+1) })
		<-time.After(20 * time.Millisecond)
	}
	left := make(chan error, 3)
	for range cap(left) {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			left <- echo.Run(ctx, c, []string{"k"}, 1, "").Err()
		}()
	}
	for range cap(left) {
		select {
		case err := <-left:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("still waits for its turn")
		}
	}
	s.Continue()
	first.Wait()
	if err := echo.Run(t.Context(), c, []string{"k"}, 1, "").Err(); err != nil {
		t.Error(err)
	}
	if n, err := c.Get(t.Context(), "k").Int(); err != nil || n != most+2 {
		t.Errorf("%d scripts have run, want the first, %d, and the last: %v", n, most, err)
	}
}

// stalling holds up the first script until it is let go, and the second for a moment.
type stalling struct {
	n      atomic.Int64
	goes   chan struct{}
	second chan struct{}
}

func (h *stalling) see(cmd redis.Cmder, send func() error) error {
	if cmd.Name() == "evalsha" {
		switch h.n.Add(1) {
		case 1:
			<-h.goes
		case 2:
			close(h.second)
			<-time.After(2 * time.Millisecond)
		}
	}
	return send()
}

// stalled returns a client whose scripts share round trips, of which the first one stalls until release.
func stalled(t *testing.T) (c redis.UniversalClient, h *stalling, release func()) {
	t.Helper()
	db, c, _ := openTogether(t, redisdb.Options{})
	if err := echo.Run(t.Context(), c, []string{"k"}, 0, "").Err(); err != nil {
		t.Fatal(err)
	}
	h = &stalling{goes: make(chan struct{}), second: make(chan struct{})}
	db.Client.AddHook(testkit.Hook{Alone: h.see})
	first := asked(c)
	testkit.Eventually(t, time.Second, "the first under way", func() bool { return h.n.Load() == 1 })
	return c, h, func() { close(h.goes); <-first }
}

// asked runs a script in the background.
func asked(c redis.UniversalClient) <-chan error {
	over := make(chan error, 1)
	go func() { over <- echo.Run(context.Background(), c, []string{"k"}, 1, "").Err() }()
	return over
}

// comes waits for the end of a script.
func comes(t *testing.T, script <-chan error) {
	t.Helper()
	select {
	case err := <-script:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for the one that stalls")
	}
}

// A connection that stalls delays what it carries, and nothing that is asked for later: another round trip takes that along.
func TestAStalledConnectionHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	c, h, release := stalled(t)
	<-time.After(20 * time.Millisecond) // from then on another one may go beside it
	second := asked(c)
	<-h.second
	comes(t, asked(c))
	release()
	comes(t, second)
}

// The same holds for the last script: one that is asked for just after the other round trip has ended, with no script after it.
func TestAStalledConnectionHoldsUpNoLastOne(t *testing.T) {
	t.Parallel()
	c, _, release := stalled(t)
	for range 20 {
		comes(t, asked(c))
		comes(t, asked(c)) // it begins within 5 ms of the one before, and finds nothing to share with
	}
	release()
}

// Scripts whose replicas are waited for go one by one, because a pipeline would not wait.
func TestWhoWaitsForReplicasGoesAlone(t *testing.T) {
	t.Parallel()
	db, c, _ := openTogether(t, redisdb.Options{WaitReplicas: 1})
	if c != db.Client {
		t.Error("scripts that replicas are waited for share round trips")
	}
}

// several is a script that runs as one for several callers. It counts them by gateway.
var several = redisdb.NewSharedScript(`
redis.call('INCR', KEYS[1])
return KEYS[1] .. ARGV[1]`)

// All gateways of a process share round trips, and runs.
func TestGatewaysShareRoundTripsAndRuns(t *testing.T) {
	t.Parallel()
	db, _, count := openTogether(t, redisdb.Options{})
	runs := atomic.Int64{}
	db.Client.AddHook(testkit.Around(func(cmds []redis.Cmder, send func() error) error {
		runs.Add(int64(len(cmds)))
		return send()
	}))
	const gateways, each = 20, 20
	if db.Together() != db.Together() {
		t.Error("two gateways do not share a client")
	}
	var all sync.WaitGroup
	for g := range gateways {
		for i := range each {
			all.Go(func() {
				key := redisdb.NewKeys(fmt.Sprint("g", g)).Rate()
				if got, err := several.Run(t.Context(), db.Together(), []string{key}, i).Text(); err != nil || got != key+fmt.Sprint(i) {
					t.Errorf("gateway %d got %q, %v", g, got, err)
				}
			})
		}
	}
	all.Wait()
	for g := range gateways {
		if n, err := db.Client.Get(t.Context(), redisdb.NewKeys(fmt.Sprint("g", g)).Rate()).Int(); err != nil || n != each {
			t.Errorf("%d runs for gateway %d, %v", n, g, err)
		}
	}
	if n := count.n.Load(); n > gateways*each/2 {
		t.Errorf("%d scripts took %d round trips", gateways*each, n)
	}
	if n := runs.Load(); n > gateways*each/2 {
		t.Errorf("%d scripts took %d runs", gateways*each, n)
	}
}

func TestSmallPipelinesShareRoundTripsToo(t *testing.T) {
	t.Parallel()
	_, c, count := openTogether(t, redisdb.Options{})
	const all = 300
	var wg sync.WaitGroup
	start := make(chan struct{}) // so that a busy machine does not begin them one by one
	for i := range all {
		wg.Go(func() {
			<-start
			var own, sum *redis.IntCmd
			cmds, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
				own, sum = p.Incr(t.Context(), fmt.Sprint("own", i)), p.Incr(t.Context(), "sum")
				if i == 7 {
					p.HGet(t.Context(), "sum", "f")
				}
				return nil
			})
			if failed := err != nil; failed != (i == 7) || own.Val() != 1 || sum.Val() < 1 || len(cmds) < 2 {
				t.Errorf("pipeline %d: %v, %v", i, cmds, err)
			}
		})
	}
	close(start)
	wg.Wait()
	if n, err := c.Get(t.Context(), "sum").Int(); err != nil || n != all {
		t.Errorf("%d of %d have run, %v", n, all, err)
	}
	if n := count.n.Load(); n > all/2 {
		t.Errorf("%d pipelines at once took %d round trips", all, n)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Pipelined(ended, func(p redis.Pipeliner) error { p.Incr(ended, "sum"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a pipeline whose context has ended: %v", err)
	}
}
