package ledger_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/testkit"
)

// flowModel is a gateway with flows, and what its admission should do, computed from lists and nothing else.
type flowModel struct {
	*bench
	rnd    *rand.Rand
	laned  bool
	burst  int64
	most   int64 // of a flow that passes
	level  int64 // what the bucket has given, less what has leaked
	queued map[string][]string
	parked map[string][]string
	flow   map[string]string // of each job
	cost   map[string]int64
	sorted map[string]bool // its task stands in a lane
	called map[string]int  // how many of a flow were called
	order  map[string]int  // the place of a job in its flow
	placed map[string]int  // how many of a flow have a place
	jobs   int
}

const pass = "urgent"

func newFlowModel(t *testing.T, seed uint64) *flowModel {
	rnd := rand.New(rand.NewPCG(seed, 7))
	c := &flowModel{rnd: rnd, laned: rnd.IntN(2) == 0, burst: 2 + rnd.Int64N(30), most: 1 + rnd.Int64N(4), queued: map[string][]string{}, parked: map[string][]string{}, flow: map[string]string{},
		cost: map[string]int64{}, sorted: map[string]bool{}, called: map[string]int{}, order: map[string]int{}, placed: map[string]int{}}
	c.bench = setup(t, c.burst, func(cfg *ledger.Config) {
		k := keysOf(cfg.Gateway)
		cfg.First = []string{k.First(pass), k.Due(), k.Pending(), k.First("batch")}
		cfg.Passing, cfg.MostPassing = []string{pass}, c.most
		if c.laned {
			cfg.Lanes = k.WaitingLanes([]string{pass, "batch"}, []string{"r"})
		}
	})
	return c
}

// parts returns the class, the route and the lane of a flow.
func parts(flow string) (class, route, lane string) {
	at := slices.Index([]byte(flow), ':')
	class, flow = flow[:at], flow[at+1:]
	at = slices.Index([]byte(flow), ':')
	return class, flow[:at], flow[at+1:]
}

// waits returns how many jobs in the queue count against a flow: its own or, without lanes, those of its class.
func (c *flowModel) waits(flow string) (n int64) {
	class, _, _ := parts(flow)
	for other, ids := range c.queued {
		if of, _, _ := parts(other); other == flow || !c.laned && of == class {
			n += int64(len(ids))
		}
	}
	return n
}

// goesIn reports whether a job finds room, and takes it.
func (c *flowModel) goesIn(flow string, cost int64) bool {
	class, _, _ := parts(flow)
	room := c.burst - c.level
	switch {
	case c.waits(flow)+1 <= room && cost <= room:
		c.level += cost
	case class != pass || c.waits(flow) >= c.most:
		return false
	}
	return true
}

func (c *flowModel) offer() {
	chunk, shut := []job.Job{}, map[string]bool{}
	var wants []job.Admittance
	lane := c.rnd.IntN(4)
	for range 1 + c.rnd.IntN(12) {
		if c.rnd.IntN(3) == 0 {
			lane = c.rnd.IntN(4)
		}
		class := []string{"", "", "batch", pass}[c.rnd.IntN(4)]
		j := job.Job{ID: fmt.Sprintf("j%d", c.jobs), Priority: class, Route: []string{"", "r"}[c.rnd.IntN(2)], Cost: 1 + c.rnd.Int64N(min(3, c.burst-1))}
		c.jobs++
		if c.laned && lane > 0 {
			j.Lane = fmt.Sprintf("l:%d", lane)
		}
		flow := j.Priority + ":" + j.Route + ":" + j.Lane
		c.flow[j.ID], c.cost[j.ID], c.order[j.ID] = flow, j.Cost, c.placed[flow]
		c.placed[flow]++
		chunk = append(chunk, j)
		if len(c.parked[flow]) > 0 || shut[flow] || !c.goesIn(flow, j.Cost) {
			shut[flow] = true
			c.parked[flow] = append(c.parked[flow], j.ID)
			wants = append(wants, job.ParkedNow)
			continue
		}
		c.queued[flow] = append(c.queued[flow], j.ID)
		wants = append(wants, job.Enqueued)
	}
	if got := c.accept("park", chunk...); !slices.Equal(got, wants) {
		c.t.Fatalf("laned %v: offered %+v: got %v, want %v", c.laned, chunk, got, wants)
	}
}

// feed readmits parked jobs, and reports whether all are in that find room.
func (c *flowModel) feed(most int) bool {
	turns, err := c.books.NextRejected(c.ctx, most)
	c.must(err)
	if !turns.Whole {
		c.t.Fatal("what is parked has lost its turn")
	}
	answers, _, err := c.books.Readmit(c.ctx, returnsOf(turns.Jobs))
	c.must(err)
	for i, r := range turns.Jobs {
		flow := c.flow[r.Return.ID]
		in := c.parked[flow][0] == r.Return.ID && c.goesIn(flow, c.cost[r.Return.ID])
		if in != (answers[i] == job.Enqueued) {
			class, _, _ := parts(flow)
			if in && class != pass && slices.Contains(answers[:i], job.Full) { // a dear job before it keeps the room
				c.level -= c.cost[r.Return.ID]
				continue
			}
			c.t.Fatalf("%s of %s: %s, and %d wait of its flow, room %d, cost %d", r.Return.ID, flow, answers[i], c.waits(flow), c.burst-c.level, c.cost[r.Return.ID])
		}
		if in {
			c.parked[flow] = c.parked[flow][1:]
			c.queued[flow] = append(c.queued[flow], r.Return.ID)
		}
	}
	if len(turns.Jobs) > 0 && slices.Contains(answers, job.Enqueued) {
		return false
	}
	for flow, ids := range c.parked { // the next job in turn can't go in
		if class, _, _ := parts(flow); len(ids) > 0 && class == pass && c.waits(flow) < c.most {
			c.t.Fatalf("flow %s passes, and stays parked", flow)
		}
	}
	return true
}

// sort moves tasks from the queue's lines into those of lanes, as pick.lua does.
func (c *flowModel) sort(most int) {
	for class, line := range map[string]string{"": c.keys.Pending(), pass: c.keys.First(pass), "batch": c.keys.First("batch")} {
		for range most {
			task, err := c.c.RPop(c.ctx, line).Result()
			if err != nil {
				break
			}
			id, _, _ := job.ParseTaskID(task)
			_, route, lane := parts(c.flow[id])
			c.c.LPush(c.ctx, c.keys.FlowLines(class, route, lane)[1], task)
			c.c.HIncrBy(c.ctx, "spillway:{"+c.name+"}:entering:"+class, route+":"+lane, -1)
		}
	}
}

// call pulls the next job of some flow.
func (c *flowModel) call() {
	flows := []string{}
	for flow, ids := range c.queued {
		if len(ids) > 0 {
			flows = append(flows, flow)
		}
	}
	if len(flows) == 0 {
		return
	}
	slices.Sort(flows)
	flow := flows[c.rnd.IntN(len(flows))]
	class, route, lane := parts(flow)
	line := map[string]string{"": c.keys.Pending(), pass: c.keys.First(pass), "batch": c.keys.First("batch")}[class]
	if c.laned {
		line = c.keys.FlowLines(class, route, lane)[1]
		if c.c.LLen(c.ctx, line).Val() == 0 {
			c.sort(1000)
		}
	}
	task, err := c.c.RPop(c.ctx, line).Result()
	c.must(err)
	if c.laned && c.c.ZScore(c.ctx, c.keys.ParkedFlows(), flow).Err() == nil {
		c.c.ZIncrBy(c.ctx, c.keys.ParkedFlows(), -(1 << 36), flow)
	}
	id, _, _ := job.ParseTaskID(task)
	flow = c.flow[id]
	if c.order[id] < c.called[flow] {
		c.t.Fatalf("%s of %s was called behind one that came later", id, flow)
	}
	c.called[flow] = c.order[id]
	c.queued[flow] = slices.DeleteFunc(c.queued[flow], func(other string) bool { return other == id })
}

// discard discards a parked job.
func (c *flowModel) discard() {
	for _, flow := range slices.Sorted(maps.Keys(c.parked)) { // in one order, so that a seed always makes the same schedule
		ids := c.parked[flow]
		if len(ids) == 0 {
			continue
		}
		at := c.rnd.IntN(len(ids))
		r := c.record(ids[at])
		did, err := deadletter.New(c.bench.c, c.name).Discard(c.ctx, []job.Return{{ID: r.Job.ID, Generation: r.Generation, Reason: r.Reason}}, time.Hour)
		if c.must(err); !did[0] {
			c.t.Fatalf("%s was not discarded", r.Job.ID)
		}
		c.parked[flow] = slices.Delete(slices.Clone(ids), at, at+1)
		return
	}
}

func (c *flowModel) pass(steps int64) {
	c.now += steps * 10_000
	c.level = max(c.level-steps, 0)
}

// Which jobs go in, are parked, and go in again agrees with the model. No job waits behind jobs of another flow, the order in a flow stays, the bucket gives no more
// than it has, and every parked job goes in in the end.
func TestRoomIsSharedAmongFlows(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for seed := range uint64(testkit.Often(8, 25)) {
		c := newFlowModel(t, seed)
		for range 120 {
			switch c.rnd.IntN(8) {
			case 0, 1:
				c.offer()
			case 2:
				c.feed(1 + c.rnd.IntN(20))
			case 3:
				c.pass(c.rnd.Int64N(2 * c.burst))
			case 4:
				if c.laned {
					c.sort(c.rnd.IntN(5))
				}
			case 5:
				c.discard()
			default:
				c.call()
			}
		}
		waiting := func() (n int) {
			for flow, ids := range c.parked {
				n += len(ids) + len(c.queued[flow])
			}
			return n
		}
		for step := 0; waiting() > 0; step++ {
			if step > 20000 {
				t.Fatalf("seed %d: still parked: %v", seed, c.parked)
			}
			for !c.feed(20) {
			}
			c.call()
			c.pass(1)
		}
		if n := c.c.Exists(c.ctx, c.keys.ParkedFlows(), c.keys.Parked("rejected")).Val(); n > 1 {
			t.Errorf("seed %d: %v", seed, c.c.ZRange(c.ctx, c.keys.ParkedFlows(), 0, -1).Val())
		}
		want(t, "jobs in parts of flows", c.c.HGet(c.ctx, c.keys.Counters(), "flowed").Val(), "0")
	}
}
