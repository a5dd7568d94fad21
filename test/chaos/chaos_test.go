package chaos

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/provider"
)

var (
	length = flag.Duration("chaos", 0, "how long the faults of TestChaos last; 0 leaves it out")
	seed   = flag.Uint64("seed", 0, "draws the faults; 0 draws the seed as well")
	laned  = flag.String("lanes", "", "on: the jobs of all gateways are in lanes; off: of one alone; empty: on with every other seed")
)

// chaos is one run: a world, its faults, and the records of both.
type chaos struct {
	*world
	seed   uint64
	laned  bool // the jobs of all gateways are in lanes
	length time.Duration
	begun  time.Time
	posts  []*post
	over   chan struct{} // closes when the faults stop
	ended  chan struct{} // closes when no dispatcher is to be started again

	mu        sync.Mutex
	journal   *os.File
	lines     []note
	faults    []string // of the program
	counts    map[string]int
	disturbed []span // when the line to Redis, Redis itself, or a dispatcher was disturbed
	accounts  map[string]*account
}

type note struct {
	at   time.Duration
	text string
}

type span struct{ from, to time.Time }

// account records what was done to one gateway and to its jobs.
type account struct {
	*gateway
	rate    int // calls a second by the file
	keyless bool
	asked   bool // the gateway is asked about jobs in doubt
	cap     int  // of calls under way; 0 for none
	limits  []change
	lowered []span         // when the provider allowed less than its contract
	jobs    []string       // every job that was offered, all of them accepted in the end
	settled map[string]int // how often a person said that a job was not charged
	last    []string       // the jobs that were enqueued when all trouble was over
	lively  string         // what became of them
	files   int
	runs    int // of enqueue

	// the results
	states   map[string]int
	most     map[time.Duration]int // calls in a window
	together int                   // calls under way at once
}

type contract struct {
	spec
	rate, cap int
}

// The gateways. One has keys and little room at admission. One has no keys. One has a cap of calls under way, a long limit beside the
// short one, and jobs in lanes. One has no keys and is asked what became of a call; its look-ups lag, and some fail or hang. Each has some jobs that always fail.
var accounts = []contract{
	{spec: spec{name: "stripe", provider: provider.Config{Limits: limits("60/s"), Service: 20 * ms, RetryAfter: sec, Fates: poisoned(0.04)},
		request: "key_lifetime: 24h", rest: "leak: {limits: [60/s], jitter: 10ms}\nadmission: {limits: [60/s], burst: 120}\n" + patient}, rate: 60},
	{spec: spec{name: "adyen", provider: provider.Config{Limits: limits("30/s"), Service: 20 * ms, RetryAfter: sec, NoKeys: true, Fates: poisoned(0.02)},
		request: `idempotency_header: ""`, rest: "leak: {limits: [30/s], jitter: 10ms}\n" + patient}, rate: 30},
	{spec: spec{name: "worldline", provider: provider.Config{Limits: limits("20/s", "150/10s", "2/s by header:Lane"), Service: 100 * ms, RetryAfter: sec, Fates: poisoned(0.1)},
		request: "key_lifetime: 24h", rest: "leak: {limits: [20/s, 150/10s], jitter: 10ms, max_in_flight: 3}\n" + inLanes + patient}, rate: 15, cap: 3},
	{spec: spec{name: "worldpay", provider: provider.Config{Limits: limits("15/s"), Service: 20 * ms, RetryAfter: sec, NoKeys: true, Fates: poisoned(0.02), LookupLag: lookupLag, LookupFail: 0.05, LookupHang: 0.02},
		request: `idempotency_header: ""`, rest: "leak: {limits: [15/s], jitter: 10ms}\nretry: {attempts: 3, first: 200ms, max: 2s}\n" + lookup}, rate: 15},
}

const (
	// inLanes gives the few jobs of each amount, over all files, a limit of their own.
	inLanes   = "lanes: {key: payload.amount, limits: [2/s], header: {Lane: \"{lane}\"}}\n"
	lookupLag = 2 * sec
	// lookup believes that there is no charge when a call that was delayed must have arrived, and the lag is over.
	lookup = "lookup: {url: \"/lookups/{id}\", schedule: [2s, 5s, 10s, 10s, 10s, 10s, 20s, 20s, 30s, 30s, 30s, 30s], matches: {job: \"{id}\"}, answers: [{body: {status: succeeded}, then: done, reference: id}, {status: 404, then: not_done, after: 15s}]}\n"
)

// inMerchants puts the jobs of a gateway into a few lanes. Each has half of the account's limit for itself, which the provider checks too.
func (a contract) inMerchants() contract {
	if strings.Contains(a.rest, "lanes:") {
		return a
	}
	a.provider.Limits = append(slices.Clone(a.provider.Limits), limits(fmt.Sprintf("%d/s by header:Lane", a.rate/2))...)
	a.rest += fmt.Sprintf("lanes: {key: payload.merchant, limits: [%d/s], header: {Lane: \"{lane}\"}}\n", a.rate/2)
	return a
}

const (
	attempts = 8
	patient  = "retry: {attempts: 8, first: 200ms, max: 2s}\n"
)

func limits(texts ...string) []provider.Limit {
	var list []provider.Limit
	for _, text := range texts {
		l, err := provider.ParseLimit(text)
		if err != nil {
			panic(err)
		}
		list = append(list, l)
	}
	return list
}

// ofAll returns the limits over all calls.
func ofAll(limits []provider.Limit) []provider.Limit {
	return slices.DeleteFunc(slices.Clone(limits), func(l provider.Limit) bool { return l.By != "" })
}

// dispatchers is how many run side by side.
const dispatchers = 3

// TestChaos injects random faults everywhere for a while, lets all heal, and then checks the books of every job. Run it
// with make chaos; the same seed draws the same faults.
func TestChaos(t *testing.T) {
	if *length == 0 {
		t.Skip("it goes on for as long as -chaos says: make chaos runs it")
	}
	c := newChaos(t)
	t.Logf("chaos for %v with seed %d, all in lanes: %v; the journal grows in %s", c.length, c.seed, c.laned, c.journal.Name())
	c.start()
	c.lively()
	c.heal()
	c.reckon()
	c.report()
}

func newChaos(t *testing.T) *chaos {
	t.Helper()
	dir, err := os.MkdirTemp("", "spillway-chaos-run-")
	if err != nil {
		t.Fatal(err)
	}
	c := &chaos{seed: *seed, length: *length, over: make(chan struct{}), ended: make(chan struct{}), counts: map[string]int{}, accounts: map[string]*account{}}
	for c.seed == 0 {
		c.seed = rand.Uint64N(1 << 32)
	}
	if c.journal, err = os.Create(filepath.Join(dir, "chaos.log")); err != nil {
		t.Fatal(err)
	}
	c.begun = time.Now()
	t.Cleanup(func() { c.keep(dir) }) // the last one: after the dispatchers' logs were looked at
	c.laned = *laned == "on" || *laned == "" && c.seed%2 == 1
	var specs []spec
	for _, a := range c.contracts() {
		specs = append(specs, a.spec)
	}
	c.world = newWorld(t, dir, specs...)
	c.complain = c.fault
	for i, a := range c.contracts() {
		c.accounts[a.name] = &account{gateway: c.gateways[i], rate: a.rate, keyless: a.provider.NoKeys, asked: strings.Contains(a.rest, "lookup:"), cap: a.cap,
			limits: []change{{limits: ofAll(a.provider.Limits), sure: true}}, settled: map[string]int{}}
	}
	return c
}

// contracts returns the gateways of this run.
func (c *chaos) contracts() []contract {
	all := slices.Clone(accounts)
	for i := range all {
		if c.laned {
			all[i] = all[i].inMerchants()
		}
	}
	return all
}

// keep removes the files, or after a failure says where they are.
func (c *chaos) keep(dir string) {
	_ = c.journal.Close()
	if !c.t.Failed() {
		_ = os.RemoveAll(dir)
		return
	}
	c.t.Logf("FAILED with seed %d: make chaos CHAOS=%v SEED=%d draws the same faults; all files are in %s", c.seed, c.length, c.seed, dir)
}

// note writes a line into the journal.
func (c *chaos) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := note{time.Since(c.begun), fmt.Sprintf(format, args...)}
	c.lines = append(c.lines, n)
	fmt.Fprintf(c.journal, "%s %9.3f  %s\n", c.begun.Add(n.at).Format("15:04:05.000"), n.at.Seconds(), n.text)
}

// fault records something that the program must not do.
func (c *chaos) fault(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.note("FAULT %s", text)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, text)
}

// start runs all lanes until their time is over.
func (c *chaos) start() {
	for range dispatchers {
		c.posts = append(c.posts, c.newPost())
	}
	var lanes, producers sync.WaitGroup
	for _, l := range c.lanes() {
		events := schedule(c.seed, l.lane, c.length)
		lanes.Go(func() { c.walk(l, events) })
	}
	for _, a := range c.accounts {
		l := producerLane(a)
		events := schedule(c.seed, l, c.length)
		producers.Go(func() { c.produce(a, events) })
	}
	lanes.Wait()
	close(c.over)
	c.note("the faults are over")
	c.restore()
	producers.Wait()
}

// act starts an event of a lane. It returns what ends the event; nil if it is over already.
type act func(e event) (undo func())

type acts struct {
	lane
	acts     map[string]act
	disturbs bool // the line to Redis, Redis itself, or a dispatcher
}

func (c *chaos) lanes() []acts {
	list := []acts{
		{dispatcherLane, c.dispatcherActs(), true},
		{redisLane, c.redisActs(), true},
		{redisLineLane, lineActs(c.line, 1*ms, 30*ms), true},
		{peopleLane, c.peopleActs(), false},
		{pauseLane(c.length), c.pauseActs(), false},
	}
	if c.laned {
		list = append(list, acts{laneLane, c.laneActs(), false})
	}
	for _, a := range c.accounts {
		list = append(list,
			acts{lane{"line to " + a.name, 8 * sec, lineKinds}, lineActs(a.line, 10*ms, 300*ms), false},
			acts{lane{"provider " + a.name, 7 * sec, providerKinds}, c.providerActs(a), false})
	}
	return list
}

// walk runs the events of a lane, each at its time, or as soon as the previous one is over.
func (c *chaos) walk(l acts, events []event) {
	for _, e := range events {
		<-time.After(time.Until(c.begun.Add(e.at)))
		c.note("%-16s %v", l.name, e)
		c.mu.Lock()
		c.counts[l.name+": "+e.what]++
		c.mu.Unlock()
		from := time.Now()
		if undo := l.acts[e.what](e); undo != nil {
			<-time.After(time.Until(from.Add(e.lasts)))
			undo()
			c.note("%-16s %s is over", l.name, e.what)
		}
		if l.disturbs {
			c.mu.Lock()
			c.disturbed = append(c.disturbed, span{from, time.Now()})
			c.mu.Unlock()
		}
	}
}

// names returns the names of the gateways, in order.
func (c *chaos) names() []string { return slices.Sorted(maps.Keys(c.accounts)) }

// restore ends every disturbance that may be left.
func (c *chaos) restore() {
	c.redis.Continue()
	c.line.Heal()
	for i, a := range c.contracts() {
		c.gateways[i].line.Heal()
		c.gateways[i].Set(a.provider)
		c.direct("dispatcher", "resume", "-g", a.name)
		c.limit(c.accounts[a.name], nil, "--redis", c.redis.URL())
		c.resetLanes(a)
		if c.accounts[a.name].asked { // the person's command may have failed
			c.direct("dispatcher", askAbout(a.name)...)
		}
	}
}

// heal waits until every job is done or parked. What a killed dispatcher left is recovered after its deadlines: 12 s for a
// call, 35 s for a task whose lease asynq still has.
func (c *chaos) heal() {
	slowest := 0
	for name, s := range c.status() {
		slowest = max(slowest, s.left()/c.accounts[name].rate)
	}
	within := 4*time.Minute + 2*time.Duration(slowest)*sec
	c.note("waiting up to %v until every job is done or parked", within)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		c.newcomers(stop)
	}()
	c.settle(within)
	close(stop)
	<-stopped
	c.settle(time.Minute)
	close(c.ended)
}

// report prints the table and, if there are faults, the faults and the end of the journal.
func (c *chaos) report() {
	c.t.Log(c.table())
	if len(c.faults) == 0 {
		return
	}
	for i, f := range c.faults {
		if i < 30 {
			c.t.Error(f)
		}
	}
	var b strings.Builder
	for _, n := range c.lines {
		if time.Since(c.begun)-n.at < 3*time.Minute {
			fmt.Fprintf(&b, "%9.3f  %s\n", n.at.Seconds(), n.text)
		}
	}
	c.t.Logf("the end of the journal:\n%s", b.String())
	c.save()
}

// save keeps the data of Redis and of the providers.
func (c *chaos) save() {
	for _, g := range c.gateways {
		var b strings.Builder
		for _, call := range g.Calls() {
			fmt.Fprintf(&b, "%s %s %d\n", time.UnixMicro(call.At).Format("15:04:05.000000"), call.Key, call.Status)
		}
		c.file("calls-"+g.name+".txt", b.String())
	}
	if out, err := exec.Command("cp", "-r", c.redis.Dir(), filepath.Join(c.dir, "redis")).CombinedOutput(); err != nil {
		c.t.Logf("Redis's files are not kept: %v %s", err, out)
	}
}
