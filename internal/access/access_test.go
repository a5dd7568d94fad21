package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
	"spillway/internal/seal"
	"spillway/internal/testkit"
)

// endpoint grants tokens of one life, and counts its requests.
type endpoint struct {
	life  time.Duration
	asked atomic.Int64
	first atomic.Pointer[time.Time] // when the first request came
	no    atomic.Pointer[error]     // nil: it grants
	hang  chan struct{}             // nil: it answers at once
	wait  time.Duration
	again bool // with no: it can be asked again soon
}

func (e *endpoint) fetch(ctx context.Context) (Answer, error) {
	now := time.Now()
	e.first.CompareAndSwap(nil, &now)
	n := e.asked.Add(1)
	if e.hang != nil {
		select {
		case <-e.hang:
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		}
	}
	if no := e.no.Load(); no != nil {
		return Answer{Refused: !e.again, Wait: e.wait}, *no
	}
	return Answer{Token: fmt.Sprintf("token-%d", n), Life: e.life}, nil
}

// process returns a keeper, as each process has one.
func process(t *testing.T, e *endpoint, gateway string, with ...func(*Config)) *Keeper {
	t.Helper()
	cfg := Config{Gateway: gateway, Redis: testkit.Client(t), Credentials: "id secret", Fetch: e.fetch, Within: 10 * time.Second,
		Metrics: NewMetrics(nil), Log: slog.New(slog.DiscardHandler)}
	for _, f := range with {
		f(&cfg)
	}
	k := New(cfg)
	t.Cleanup(k.Close)
	return k
}

func current(t *testing.T, k *Keeper) *Token {
	t.Helper()
	if err := k.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := k.Current()
	if got == nil {
		t.Fatal("there is no token")
	}
	return got
}

// Eight processes that call all the time share one token. There is one request for each of several lives.
func TestProcessesShareOneTokenOverItsLives(t *testing.T) {
	t.Parallel()
	const life, lives = 2 * time.Second, 4
	e, gateway := &endpoint{life: life}, testkit.Gateway(t)
	all := make([]*Keeper, 8)
	for i := range all {
		all[i] = process(t, e, gateway)
	}
	var running sync.WaitGroup
	var without, used atomic.Int64
	began := time.Now()
	for _, k := range all {
		running.Go(func() {
			if k.Wait(t.Context()) != nil {
				return
			}
			for e.asked.Load() <= lives && time.Since(began) < 2*time.Minute {
				used.Add(1)
				if k.Current() == nil {
					without.Add(1)
					_ = k.Wait(t.Context())
				}
				<-time.After(time.Millisecond) // a call
			}
		})
	}
	running.Wait()
	took := time.Since(began)
	most := int64(took/(life*4/5)) + 1
	if n := e.asked.Load(); n <= lives || n > most {
		t.Errorf("%d requests for tokens of %s in %s, want %d and at most %d", n, life, took, lives+1, most)
	}
	if n := without.Load(); n > used.Load()/2 { // on a busy machine a token may end before its renewal
		t.Errorf("no token in %d of %d calls", n, used.Load())
	}
	t.Logf("%d requests, %d of %d calls had to wait", e.asked.Load(), without.Load(), used.Load())
}

// A process dies while it fetches a token. Another one fetches a token as soon as a fetch may not take any longer.
func TestAProcessThatDiesWhileItFetchesIsReplaced(t *testing.T) {
	t.Parallel()
	gateway := testkit.Gateway(t)
	dead, e, asks := &endpoint{hang: make(chan struct{})}, &endpoint{life: time.Hour, hang: make(chan struct{})}, &counting{}
	dies := process(t, dead, gateway, func(c *Config) {
		c.Within = 500 * time.Millisecond
		c.Redis.AddHook(asks)
		c.Fetch = func(context.Context) (Answer, error) { // nothing ends it
			dead.asked.Add(1)
			<-dead.hang
			return Answer{Token: "late", Life: time.Hour}, nil
		}
	})
	go func() { _ = dies.Wait(context.Background()) }()
	testkit.Eventually(t, 10*time.Second, "the one that dies to fetch", func() bool { return dead.asked.Load() == 1 })
	lives := process(t, e, gateway, func(c *Config) { c.Within = 10 * time.Minute })
	go func() { _ = lives.Wait(context.Background()) }()
	testkit.Eventually(t, 10*time.Second, "another one to fetch", func() bool { return e.asked.Load() == 1 })
	before := asks.n.Load()
	close(dead.hang) // it was not dead, only slow: what it comes with is not taken
	testkit.Eventually(t, 10*time.Second, "the slow one to wait", func() bool { return asks.n.Load() >= before+4 })
	if dies.Ready() {
		t.Error("a token that came too late is taken")
	}
	close(e.hang)
	if got := current(t, lives); got.Text != "token-1" {
		t.Errorf("got %q", got.Text)
	}
	if got := current(t, dies); got.Text != "token-1" {
		t.Errorf("the slow one has %q, which is not the token of all", got.Text)
	}
}

// A refused token is replaced once for all processes. The new token is not replaced if it is refused, until it is older.
func TestARefusedTokenIsReplacedOnce(t *testing.T) {
	t.Parallel()
	e, gateway := &endpoint{life: time.Hour}, testkit.Gateway(t)
	a, b := process(t, e, gateway), process(t, e, gateway)
	first, same := current(t, a), current(t, b)
	if first.Text != same.Text {
		t.Fatalf("%q and %q", first.Text, same.Text)
	}
	if !a.Refused(t.Context(), first) || !b.Refused(t.Context(), same) || !b.Refused(t.Context(), same) {
		t.Error("a token that was revoked is not a reason to hold the gateway")
	}
	if a.Ready() || b.Ready() {
		t.Error("a refused token is still used")
	}
	second := current(t, a)
	if !b.Refused(t.Context(), same) {
		t.Error("a call that was under way with the old token is not a reason to hold the gateway")
	}
	if got := current(t, b); got.Text != second.Text || e.asked.Load() != 2 {
		t.Errorf("%q and %q after %d requests", second.Text, got.Text, e.asked.Load())
	}
	if a.Refused(t.Context(), second) || !a.Ready() {
		t.Error("a gateway that refuses a token that was fetched just now does not let us in")
	}
	if got := strings.Join(a.Known(), " "); got != "token-2 token-1" {
		t.Errorf("answers are searched for %q", got)
	}
	// Once it is old, it may have been revoked too.
	k := redisdb.NewKeys(gateway).AccessOf(digest(nil, "id secret"))
	testkit.Client(t).HSet(t.Context(), k, "number", "1000")
	second.number = "1000"
	if !a.Refused(t.Context(), second) || current(t, a).Text != "token-3" {
		t.Error("a token is never replaced again")
	}
}

// While the endpoint refuses, all processes together ask no more often than the back-off permits. A new process with other credentials asks at once.
func TestARefusalIsAskedForAgainLaterAndLater(t *testing.T) {
	t.Parallel()
	e, gateway := &endpoint{life: time.Hour}, testkit.Gateway(t)
	no := errors.New("HTTP 401 from https://t.example/token: invalid_client")
	e.no.Store(&no)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var waiting sync.WaitGroup
	for range 8 {
		k := process(t, e, gateway)
		waiting.Go(func() { _ = k.Wait(ctx) })
	}
	c := testkit.Client(t)
	var why Standing
	testkit.Eventually(t, time.Minute, "the third refusal to be written down", func() bool {
		var err error
		why, err = Look(t.Context(), c, gateway)
		return err == nil && e.asked.Load() >= 3 && why.Again.After(time.Now())
	})
	n, took := e.asked.Load(), time.Since(*e.first.Load())
	cancel()
	waiting.Wait()
	// The back-off is a second, then two, and so on, less a quarter at most.
	if least := time.Duration(1<<(n-1)-1) * 750 * time.Millisecond; took < least || why.Why != "no access token: "+no.Error() {
		t.Errorf("eight processes made %d requests within %s, want at least %s; %+v", n, took, least, why)
	}
	keys := redisdb.NewKeys(gateway)
	for _, key := range []string{keys.AccessOf(digest(nil, "id secret")), keys.Access()} { // now nobody asks with these credentials for an hour
		c.HSet(t.Context(), key, "again", time.Now().Add(time.Hour).UnixMicro())
	}
	asked := e.asked.Load()
	e.no.Store(nil)
	rotated := process(t, e, gateway, func(c *Config) { c.Credentials = "id rotated" })
	current(t, rotated)
	if e.asked.Load() != asked+1 {
		t.Errorf("other credentials: %d requests, want one", e.asked.Load()-asked)
	}
	if why, err := Look(t.Context(), c, gateway); err != nil || why.Why != "" {
		t.Errorf("%+v, %v", why, err)
	}
}

// No process asks before the time that the endpoint asks for. A local fault of one machine does not keep others from asking.
func TestAWaitIsKeptToAndALocalFaultIsNobodyElses(t *testing.T) {
	t.Parallel()
	gateway := testkit.Gateway(t)
	e := &endpoint{wait: time.Hour, again: true}
	no := errors.New("HTTP 429 from https://t.example/token")
	e.no.Store(&no)
	k := process(t, e, gateway)
	failsFirst(t, k, testkit.Client(t), gateway)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_ = k.Wait(ctx)
	if n := e.asked.Load(); n != 1 {
		t.Errorf("asked %d times, though the endpoint wants to be left alone for an hour", n)
	}
	other := testkit.Gateway(t)
	ill := process(t, e, other, func(c *Config) {
		c.Fetch = func(context.Context) (Answer, error) { return Answer{Local: true}, errors.New("no descriptors") }
	})
	short, end := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer end()
	_ = ill.Wait(short)
	if why, err := Look(t.Context(), testkit.Client(t), other); err != nil || why.Why != "" {
		t.Errorf("%+v, %v", why, err)
	}
	current(t, process(t, &endpoint{life: time.Hour}, other))
}

// With encryption, the token in Redis is sealed. A plain token that somebody put there is not used.
func TestATokenIsSealed(t *testing.T) {
	t.Parallel()
	gateway := testkit.Gateway(t)
	box := seal.New(gateway, "k1", []seal.Key{{ID: "k1", Secret: []byte(strings.Repeat("k", seal.KeyBytes))}})
	sealing := func(c *Config) { c.Box = box }
	e := &endpoint{life: time.Hour}
	current(t, process(t, e, gateway, sealing))
	c := testkit.Client(t)
	names := redisdb.NewKeys(gateway)
	key := names.AccessOf(digest(box, "id secret"))
	stored := c.HGetAll(t.Context(), key).Val()
	if len(stored) == 0 || strings.Contains(fmt.Sprint(stored, key), "token-1") || !seal.Sealed([]byte(stored["token"])) {
		t.Errorf("in Redis: %q", stored)
	}
	if got := current(t, process(t, e, gateway, sealing)); got.Text != "token-1" || e.asked.Load() != 1 {
		t.Errorf("another process has %q", got.Text)
	}
	c.HSet(t.Context(), key, "token", "planted")
	if got := current(t, process(t, e, gateway, sealing)); got.Text != "token-2" {
		t.Errorf("a process uses %q", got.Text)
	}
	bare := process(t, e, gateway, func(c *Config) { c.Box = seal.New(gateway, "k1", nil) })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := bare.Wait(ctx); err == nil || e.asked.Load() != 2 {
		t.Errorf("a process without the key: %v, %d requests", err, e.asked.Load())
	}
}

// failsFirst has a process ask until its failure is in Redis.
func failsFirst(t *testing.T, k *Keeper, c redis.UniversalClient, gateway string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() { _ = k.Wait(ctx) })
	testkit.Eventually(t, 30*time.Second, "the failure to be written down", func() bool {
		why, err := Look(ctx, c, gateway)
		return err == nil && why.Why != ""
	})
	cancel()
	waiting.Wait()
}

// A token in plain has a TTL, and so has the record of a failure.
func TestWhatIsInRedisEnds(t *testing.T) {
	t.Parallel()
	gateway := testkit.Gateway(t)
	e := &endpoint{}
	began := time.Now()
	got := current(t, process(t, e, gateway))
	if took := time.Since(began); got.end.Before(began.Add(DefaultLife-margin)) || got.end.After(began.Add(took+DefaultLife-margin)) {
		t.Errorf("a token without a life ends %s after the test has begun; the request was over after %s", got.end.Sub(began), took)
	}
	c := testkit.Client(t)
	key := redisdb.NewKeys(gateway).AccessOf(digest(nil, "id secret"))
	if ttl := c.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > DefaultLife-margin+time.Second {
		t.Errorf("the token's TTL is %s", ttl)
	}
	other := testkit.Gateway(t)
	no := errors.New("HTTP 500 from https://t.example/token")
	e.no.Store(&no)
	failsFirst(t, process(t, e, other), c, other)
	for _, key := range []string{redisdb.NewKeys(other).AccessOf(digest(nil, "id secret")), redisdb.NewKeys(other).Access()} {
		if ttl := c.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > 3*time.Minute {
			t.Errorf("the TTL of %s is %s", key, ttl)
		}
	}
}

// The life of a token counts from before the request, in the process that fetched it and in those that read it.
func TestALifeCountsFromTheRequest(t *testing.T) {
	t.Parallel()
	gateway := testkit.Gateway(t)
	e := &endpoint{life: time.Minute, hang: make(chan struct{})}
	a, b := process(t, e, gateway), process(t, e, gateway)
	go func() { _ = a.Wait(context.Background()) }()
	testkit.Eventually(t, time.Minute, "the request", func() bool { return e.first.Load() != nil })
	time.AfterFunc(3*time.Second, func() { close(e.hang) })
	for name, k := range map[string]*Keeper{"fetched": a, "read": b} {
		got := current(t, k)
		if ends, renewed := got.end.Sub(*e.first.Load()), got.renew.Sub(*e.first.Load()); ends > time.Minute || renewed > 50*time.Second {
			t.Errorf("the token that was %s is used for %s after the request, and renewed %s after it", name, ends, renewed)
		}
	}
}

// While the token is fresh, calls send no command to Redis.
func TestAFreshTokenCostsRedisNothing(t *testing.T) {
	t.Parallel()
	e, counted := &endpoint{life: time.Hour}, &counting{}
	k := process(t, e, testkit.Gateway(t), func(c *Config) {
		c.Redis.AddHook(counted)
	})
	current(t, k)
	before := counted.n.Load()
	for range 10000 {
		k.Current().Works()
	}
	if n := counted.n.Load() - before; n != 0 || before == 0 {
		t.Errorf("%d commands before, and %d while the token was fresh", before, n)
	}
}

type counting struct{ n atomic.Int64 }

func (c *counting) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Close ends a Wait: a reload with other credentials does not wait for the old ones.
func TestCloseEndsAWait(t *testing.T) {
	t.Parallel()
	e := &endpoint{hang: make(chan struct{})}
	k := process(t, e, testkit.Gateway(t))
	over := make(chan error)
	go func() { over <- k.Wait(t.Context()) }()
	testkit.Eventually(t, 10*time.Second, "it to be asked", func() bool { return e.asked.Load() == 1 })
	k.Close()
	if err := <-over; err != nil || k.Ready() {
		t.Errorf("%v, ready: %t", err, k.Ready())
	}
	var none *Keeper
	none.Close()
	if !none.Ready() || none.Wait(t.Context()) != nil || none.Known() != nil {
		t.Error("a gateway without tokens waits for one")
	}
}

// The scripts run in a cluster, where all keys of a gateway are on one node, and in the embedded Redis.
func TestTheScriptsRunOnAClusterAndEmbedded(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"cluster": testkit.Cluster(t).URL(), "embedded": redisdb.Embedded} {
		db, err := redisdb.Open(t.Context(), url, redisdb.Options{Wait: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		e := &endpoint{life: time.Hour, again: true}
		no := errors.New("HTTP 500 from https://t.example/token")
		e.no.Store(&no)
		on := func(c *Config) { c.Redis, c.Backoff = db.Client, 100*time.Millisecond }
		a, b := process(t, e, "g", on), process(t, e, "g", on)
		failsFirst(t, a, db.Client, "g")
		e.no.Store(nil)
		first := current(t, a)
		if current(t, b).Text != first.Text || !a.Refused(t.Context(), first) || current(t, a).Text == first.Text {
			t.Errorf("%s: a token is not shared, or not replaced", name)
		}
		if why, err := Look(t.Context(), db.Client, "g"); err != nil || why.Why != "" {
			t.Errorf("%s: %+v, %v", name, why, err)
		}
	}
}

// A stop does not wait for a token endpoint that hangs, also during a renewal ahead.
func TestAWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	var fetches atomic.Int64
	k := process(t, &endpoint{}, testkit.Gateway(t), func(c *Config) {
		c.Fetch = func(context.Context) (Answer, error) {
			if fetches.Add(1) > 1 {
				<-hang
				return Answer{}, errors.New("no")
			}
			return Answer{Token: "a", Life: time.Second}, nil
		}
	})
	calls, end := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	callers.Go(func() {
		for calls.Err() == nil {
			_ = k.Wait(calls)
			<-time.After(time.Millisecond)
		}
	})
	testkit.Eventually(t, time.Minute, "a renewal ahead, or of an expired token, to hang", func() bool { return fetches.Load() > 1 && k.Current() == nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	over := make(chan struct{})
	go func() { defer close(over); _ = k.Wait(ctx) }()
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Error("a wait goes on though its context has ended")
	}
	end()
	close(hang)
	<-over
	callers.Wait()
}

// Redis's clock is set back. A back-off that began in the future is not waited for, and a token from the future is not used.
func TestRedisClockIsSetBack(t *testing.T) {
	t.Parallel()
	const step = 2 * time.Hour
	c := testkit.Client(t)
	back := func(gateway string, fields ...string) {
		for _, f := range fields {
			c.HIncrBy(t.Context(), redisdb.NewKeys(gateway).AccessOf(digest(nil, "id secret")), f, step.Microseconds())
		}
	}
	gateway := testkit.Gateway(t)
	e := &endpoint{life: time.Hour}
	no := errors.New("HTTP 500 from https://t.example")
	e.no.Store(&no)
	failsFirst(t, process(t, e, gateway), c, gateway)
	e.no.Store(nil)
	back(gateway, "failed", "again")
	current(t, process(t, e, gateway))

	k := process(t, e, gateway)
	k.Refused(t.Context(), current(t, k))
	second := current(t, k)
	back(gateway, "ends", "renew", "number")
	if third := current(t, process(t, e, gateway)); third.Text == second.Text || time.Until(third.end) > time.Hour {
		t.Errorf("%s, which is used for %s, where %s was before", third.Text, time.Until(third.end), second.Text)
	}
}
