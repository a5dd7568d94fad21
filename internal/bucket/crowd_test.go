package bucket

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// The size of the crowd, and how long it is looked at, in virtual time.
var (
	crowdGateways  = flag.Int("gateways", 10, "gateways of the simulated crowd")
	crowdProcesses = flag.Int("processes", 10, "processes that all serve each gateway of the simulated crowd")
	crowdFor       = flag.Duration("crowd-for", 20*time.Second, "how long the simulated crowd is looked at, in virtual time")
)

const (
	crowdLimit = 5                      // calls a second of each gateway
	crowdWarms = 5 * time.Second        // before anything is counted
	crowdWay   = 500 * time.Microsecond // to Redis, and as much back, on average
	crowdLooks = 2 * time.Second        // between two looks of a process at a gateway, as dispatchers with many gateways have them
)

// crowdKind is what a gateway has to do. Of ten gateways one is busy, three have a job now and then, and six have none.
type crowdKind int

const (
	busy crowdKind = iota
	seldom
	idle
	crowdKinds
)

func (k crowdKind) String() string { return [...]string{"a backlog", "a job in 10 s", "no job"}[k] }

func crowdKindOf(i int) crowdKind {
	return [10]crowdKind{busy, seldom, seldom, seldom, idle, idle, idle, idle, idle, idle}[i%10]
}

// crowdGateway is one gateway and its pacers, one in each process.
type crowdGateway struct {
	kind    crowdKind
	keys    redisdb.Keys
	client  redis.UniversalClient
	pacers  []*Pacer
	counted *crowdCount

	mu      sync.Mutex
	written []int64 // µs
	waited  []time.Duration
}

// crowdCount is the result of all gateways of one kind.
type crowdCount struct {
	asked           atomic.Int64 // scripts of the pacers
	gateways, calls int
	fullest         int64
	waited          []time.Duration
	granted, unused float64
}

// crowd is the simulation: the real pacers and scripts, on a real Redis that is told the time. Queue and books are left out: a job is an entry of the
// queue's list, and its call is noted when it is written.
type crowd struct {
	t      *testing.T
	all    []*crowdGateway
	counts [crowdKinds]*crowdCount
	from   time.Time   // what comes later is counted
	on     atomic.Bool // it is later
	work   sync.WaitGroup
}

// Many processes share the limits of many gateways. No window is above its limit, the slots are used, a single job does not wait, and Redis is asked
// no more often than docs/capacity.md says. Gateways share no key, so what each is asked does not depend on their number.
func TestACrowdOfGatewaysAndProcesses(t *testing.T) {
	if testkit.Race {
		t.Skip("virtual time is five times as slow under the race detector: make test runs it")
	}
	testkit.Redis(t)
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t}
		took := scriptWork(t)
		c.play(*crowdGateways, *crowdProcesses, *crowdFor)
		t.Logf("Redis works %.0f µs on a script", took())
		c.judge(*crowdProcesses, *crowdFor)
	})
}

// scriptWork returns a function that returns how long Redis has worked on a script since, in µs on average.
func scriptWork(t *testing.T) func() float64 {
	client := testkit.Client(t)
	look := func() (calls, micros float64) {
		stats := client.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]["cmdstat_evalsha"]
		_, _ = fmt.Sscanf(stats, "calls=%f,usec=%f", &calls, &micros)
		return calls, micros
	}
	calls, micros := look()
	return func() float64 {
		now, worked := look()
		return (worked - micros) / max(now-calls, 1)
	}
}

func (c *crowd) play(gateways, processes int, lasts time.Duration) {
	ctx, cancel := context.WithCancel(c.t.Context())
	for k := range c.counts {
		c.counts[k] = &crowdCount{}
	}
	c.from = time.Now().Add(crowdWarms)
	var closing []func() error
	clients := [crowdKinds]redis.UniversalClient{}
	for k := range clients {
		db, err := redisdb.Open(ctx, testkit.Redis(c.t), redisdb.Options{PoolSize: 4096})
		if err != nil {
			c.t.Fatal(err)
		}
		closing = append(closing, db.Close)
		db.Client.AddHook(testkit.Around(c.way(c.counts[k])))
		clients[k] = db.Client
	}
	for i := range gateways {
		k := crowdKindOf(i)
		c.all = append(c.all, c.open(clients[k], k, processes, lasts))
	}
	for _, g := range c.all {
		for _, p := range g.pacers {
			c.work.Go(func() { g.serve(ctx, c, p) })
		}
		if g.kind == seldom {
			c.work.Go(func() { g.arrive(ctx) })
		}
	}
	<-time.After(time.Until(c.from))
	granted, unused := c.slots()
	c.on.Store(true)
	<-time.After(lasts)
	c.on.Store(false)
	c.tally(granted, unused)
	cancel()
	c.work.Wait()
	for _, g := range c.all {
		for _, p := range g.pacers {
			p.Close(context.Background())
		}
	}
	for _, f := range closing {
		_ = f()
	}
}

// open makes a gateway.
func (c *crowd) open(client redis.UniversalClient, k crowdKind, processes int, lasts time.Duration) *crowdGateway {
	name := testkit.Gateway(c.t)
	g := &crowdGateway{kind: k, keys: redisdb.NewKeys(name), client: client, counted: c.counts[k]}
	g.counted.gateways++
	for range processes {
		g.pacers = append(g.pacers, newTestPacer(c.t, client, PacerConfig{Gateway: name, Limits: []job.Limit{per(crowdLimit, time.Second)}, Jitter: 5 * time.Millisecond,
			NowMicros: func() int64 { return time.Now().UnixMicro() }}))
	}
	if k == busy {
		fill(c.t, testkit.Client(c.t), g.keys.Pending(), 2*crowdLimit*int((crowdWarms+lasts).Seconds()))
	}
	return g
}

// way is the way to Redis and back.
func (c *crowd) way(n *crowdCount) func([]redis.Cmder, func() error) error {
	return func(cmds []redis.Cmder, send func() error) error {
		if name := cmds[0].Name(); c.on.Load() && (name == "evalsha" || name == "eval") {
			n.asked.Add(int64(len(cmds)))
		}
		<-time.After(rand.N(2 * crowdWay))
		err := send()
		<-time.After(rand.N(2 * crowdWay))
		return err
	}
}

// serve is one process at work for one gateway. It pulls a job for each slot, and calls at it. In addition it looks at the gateway now and then.
func (g *crowdGateway) serve(ctx context.Context, c *crowd, p *Pacer) {
	<-time.After(rand.N(crowdLooks))
	c.work.Go(func() {
		for {
			select {
			case <-time.After(crowdLooks):
				if g.kind == busy || g.kind == seldom && g.client.LLen(ctx, g.keys.Pending()).Val() > 0 {
					p.Wake()
				}
			case <-ctx.Done():
				return
			}
		}
	})
	for {
		s, err := p.Next(ctx)
		if err != nil {
			return
		}
		for _, s := range append([]job.Slot{s}, p.More(16)...) {
			c.work.Go(func() { g.call(c, p, s) })
		}
	}
}

func (g *crowdGateway) call(c *crowd, p *Pacer, s job.Slot) {
	ctx := context.Background()
	id, err := g.client.RPop(ctx, g.keys.Pending()).Result()
	if err != nil {
		p.Empty(ctx, s)
		return
	}
	p.Ready(s, time.Now())
	<-time.After(time.Until(p.Due(s)))
	now := time.Now()
	if p.TooLate(s, now) {
		_ = p.Release(ctx, s)
		g.client.RPush(ctx, g.keys.Pending(), id)
		return
	}
	now = time.Now()
	p.Written(s, now)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.written = append(g.written, now.UnixMicro())
	if at, err := strconv.ParseInt(id, 10, 64); err == nil && at >= c.from.UnixMicro() {
		g.waited = append(g.waited, now.Sub(time.UnixMicro(at)))
	}
}

// arrive adds a job now and then. If none waited, all processes hear of it.
func (g *crowdGateway) arrive(ctx context.Context) {
	for {
		select {
		case <-time.After(time.Duration(rand.ExpFloat64() * float64(10*time.Second))):
		case <-ctx.Done():
			return
		}
		if n, _ := g.client.LPush(ctx, g.keys.Pending(), time.Now().UnixMicro()).Result(); n == 1 {
			for _, p := range g.pacers {
				time.AfterFunc(rand.N(2*crowdWay), p.Wake)
			}
		}
	}
}

// slots returns how many slots were granted so far, and how many given back or lost, by kind.
func (c *crowd) slots() (granted, unused [crowdKinds]float64) {
	for _, g := range c.all {
		for _, p := range g.pacers {
			granted[g.kind] += float64(p.meters.granted.Value())
			unused[g.kind] += float64(p.meters.released.Value() + p.meters.lost.Value())
		}
	}
	return granted, unused
}

// tally adds up what the gateways saw.
func (c *crowd) tally(granted, unused [crowdKinds]float64) {
	grantedNow, unusedNow := c.slots()
	for k, n := range c.counts {
		n.granted, n.unused = grantedNow[k]-granted[k], unusedNow[k]-unused[k]
	}
	for _, g := range c.all {
		g.mu.Lock()
		n := g.counted
		n.fullest = max(n.fullest, mostInWindow(g.written, nil, time.Second.Microseconds()))
		for _, at := range g.written {
			if at >= c.from.UnixMicro() {
				n.calls++
			}
		}
		n.waited = append(n.waited, g.waited...)
		g.mu.Unlock()
	}
}

func (c *crowd) judge(processes int, lasts time.Duration) {
	for k, n := range c.counts {
		if n.gateways == 0 {
			continue
		}
		each := float64(n.gateways) * lasts.Seconds()
		text := fmt.Sprintf("%d gateways with %v, %d processes: %.3f calls/s and %.2f reservations/s of each, %.2f of each and process", n.gateways, crowdKind(k), processes,
			float64(n.calls)/each, float64(n.asked.Load())/each, float64(n.asked.Load())/each/float64(processes))
		if n.granted > 0 {
			text += fmt.Sprintf(", %.2f a call, fullest second %d of %d, %.2f %% of slots unused", float64(n.asked.Load())/float64(max(n.calls, 1)), n.fullest, crowdLimit, 100*n.unused/n.granted)
		}
		if len(n.waited) > 0 {
			slices.Sort(n.waited)
			text += fmt.Sprintf("; a job waits %v, %v at most", n.waited[len(n.waited)/2], n.waited[len(n.waited)-1])
		}
		c.t.Log(text)
		c.hold(crowdKind(k), n, float64(n.asked.Load())/each/float64(processes))
	}
	if n := c.counts[busy]; float64(n.calls) < 0.97*crowdLimit*float64(n.gateways)*lasts.Seconds() {
		c.t.Errorf("%d calls of %d gateways in %v: that is less than 97 %% of %d/s", n.calls, n.gateways, lasts, crowdLimit)
	}
}

// mostAsked is how many reservations each process makes in a second for each gateway, at most. Without jobs, it is one every 10 s; with a job now and then, a few more for
// each job; with a backlog, one for each call of any process, and as many more if one process gets every slot.
var mostAsked = [crowdKinds]float64{busy: 3 * crowdLimit, seldom: 1, idle: 0.11}

// hold checks the result of one kind against what is promised.
func (c *crowd) hold(k crowdKind, n *crowdCount, asked float64) {
	if n.fullest > crowdLimit {
		c.t.Errorf("%v: %d calls in a second, of %d", k, n.fullest, crowdLimit)
	}
	if asked > mostAsked[k] {
		c.t.Errorf("%v: %.2f reservations/s of each gateway and process, want %.2f at most", k, asked, mostAsked[k])
	}
	if n.unused > n.granted/100 {
		c.t.Errorf("%v: %.0f of %.0f slots unused", k, n.unused, n.granted)
	}
	if w := n.waited; len(w) > 4 && (w[len(w)/2] > 20*time.Millisecond || w[len(w)-1] > time.Second) {
		c.t.Errorf("%v: a job waits %v, %v at most", k, w[len(w)/2], w[len(w)-1])
	}
}
