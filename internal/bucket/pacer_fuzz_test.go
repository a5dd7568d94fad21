package bucket

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// played is a list of operations in progress: three processes at one gateway, in virtual time.
type played struct {
	*world
	cfg       PacerConfig
	processes []*Pacer
	model     *pacerModel // nil once Redis has lost something
	calls     []playedCall
	hint      int64  // of the last reservation
	asked     *Pacer // who got slots last, if he lives
}

// playedCall is a slot and when its call is written.
type playedCall struct {
	slot    job.Slot
	owner   *Pacer
	written int64
	done    bool // late, so that it can't be given back any more
}

// FuzzReserve plays a list of operations, four bytes each, to the pacer and, as long as Redis loses nothing, to its model. No window may
// hold more than its limit, however the jitter falls.
func FuzzReserve(f *testing.F) {
	f.Add([]byte("\x00\xff\xf0\x10\x00\xff\xf1\x10\x00\x10\x00\x60\x00\x13\x00\x50\x00\xff\xf2\xa0\x00"))
	f.Add([]byte("\x06\xff\xf0\x10\x00\xff\xf1\xb0\x01\xff\xf2\xb0\x00\x08\x00\x10\x00\x00\x01\x00\x00\xff\xf2\xb0\x00\xff\xf0\xb0\x00"))
	f.Add([]byte("\x45\xff\xf0\x10\x00\xff\xf1\xc0\x01\x04\x00\xb0\x00\x08\x00\x10\x00\x00\x01\x00\x00\xff\xf2\xb0\x00\x13\x02\xb0\x00"))
	client := testkit.Client(f)
	f.Fuzz(func(t *testing.T, ops []byte) { play(t, client, ops) })
}

// The same with operations at random.
func TestAnyOperations(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	client := testkit.Client(t)
	rng := rand.New(rand.NewPCG(5, 5))
	for i := range testkit.Often(50, 150) {
		ops, calm := []byte{byte(rng.IntN(256))}, byte(i%2*16) // in half of them nothing is lost
		for range 100 {
			ops = append(ops, byte(rng.IntN(256))|calm, byte(rng.IntN(256)), byte(rng.IntN(1+rng.IntN(220))), byte(rng.IntN(256)))
		}
		play(t, client, ops)
	}
}

func play(t *testing.T, client redis.UniversalClient, ops []byte) {
	if len(ops) == 0 {
		return
	}
	p := begin(t, client, ops[0])
	for ops = ops[1:min(len(ops), 401)]; len(ops) >= 4; ops = ops[4:] {
		p.op(ops[0], ops[1], ops[2], ops[3])
	}
	p.judge()
}

func begin(t *testing.T, client redis.UniversalClient, b byte) *played {
	sets := [][]job.Limit{
		{per(3, time.Second)}, {per(1, 10*time.Millisecond)}, {per(5, time.Second), per(20, 10*time.Second)}, {per(300, time.Second), per(1100, 2*time.Minute)},
		{per(4, 100*time.Millisecond), per(30, time.Second), per(200, time.Minute)}, {per(6, 2*time.Minute)}, {per(20, time.Second), per(100, 24*time.Hour)},
	}
	limits := sets[int(b)%len(sets)]
	p := &played{world: newWorld(t, client, uint64(b)), cfg: PacerConfig{Limits: limits, Burst: min(int64(b)/64*2, limits[0].N), Jitter: 3 * time.Millisecond}}
	p.processes = []*Pacer{p.process(), p.process(), p.process()}
	p.model = newPacerModel(p.processes[0].plan.Load())
	return p
}

// process returns one more pacer. It has watched Redis's clock for longer than any window, because the model does not know what a newer process allows for.
func (p *played) process() *Pacer {
	const ago = 100 * 24 * 3600 * 1_000_000
	one := p.pacer(p.cfg)
	one.bounds.observe(-ago, -ago, p.now-ago)
	return one
}

// op plays one operation after some time.
func (p *played) op(what, which, wait, size byte) {
	p.now += fuzzedStep(min(wait, 220))
	i := int(which)
	who := p.processes[i%len(p.processes)]
	switch {
	case what < 6:
		if what%2 == 0 && p.asked != nil { // the process that got the newest slots dies with the news
			p.processes[slices.Index(p.processes, p.asked)] = p.process()
			p.asked = nil
		}
		p.loseWhileSomebodyKnows(func() { p.lose() })
	case what < 8:
		key := p.keys.PaceWindow(i%len(p.cfg.Limits) + 1)
		p.loseWhileSomebodyKnows(func() { p.client.Del(context.Background(), key) })
	case what < 14:
		p.processes[i%len(p.processes)], p.asked = p.process(), nil
	case what%8 < 2:
		p.releaseOne(i)
	case what%8 < 4:
		p.writeLate(i, int64(size))
	case what%8 == 4:
		p.reserve(who, wish{cost: 1})
	default:
		if what%8 > 5 {
			p.now += p.hint
		}
		p.reserveOne(who, int64(i/16)+1, 1+int64(size%8)*who.plan.Load().maxCost/16)
	}
}

func (p *played) reserveOne(who *Pacer, want, cost int64) {
	pl := who.plan.Load()
	who.late.lateness = readiness{mean: float64(max(pl.tooLate*(int64(p.now)%5-2)/2, 0))} // nothing, or half of what can be, or all
	allowed := who.late.allowance(pl)
	g := p.reserve(who, wish{want: want, cost: cost, lead: 100})
	if len(g.slots) > 0 {
		p.asked = who
	}
	p.hint = g.hint.Microseconds()
	var slots []int64
	for _, s := range g.slots {
		slots = append(slots, s.At)
		p.calls = append(p.calls, playedCall{slot: s, owner: who, written: s.At + who.plan.Load().epsilon})
	}
	if p.model == nil {
		return
	}
	at, hint := p.model.reserve(p.now, 100, want, cost, allowed, p.spacing)
	if !slices.Equal(slots, at) || len(slots) == 0 && p.hint != hint { // who has slots does not wait
		p.t.Fatalf("%d slots of %d: got %v and a hint of %d, want %v and %d", want, cost, slots, p.hint, at, hint)
	}
}

// call returns one of the newest calls.
func (p *played) call(i int) (at int, ok bool) {
	at = len(p.calls) - 1 - i%32
	return at, at >= 0 && !p.calls[at].done
}

func (p *played) releaseOne(i int) {
	at, ok := p.call(i)
	if !ok {
		return
	}
	c := p.calls[at]
	if err := c.owner.Release(context.Background(), c.slot); err != nil {
		p.t.Fatal(err)
	}
	p.calls = slices.Delete(p.calls, at, at+1)
	if p.model != nil {
		p.model.release(c.slot.At, c.owner.late.edge(c.slot), c.slot.Cost)
	}
}

// writeLate writes a call some time after its slot, unless that is too late already, and reports it, whether Redis counts it earlier or later.
func (p *played) writeLate(i int, share int64) {
	at, ok := p.call(i)
	if !ok {
		return
	}
	c := &p.calls[at]
	pl := c.owner.plan.Load()
	if p.now > c.slot.At+pl.tooLate {
		return
	}
	p.now = max(p.now, c.slot.At+pl.epsilon+1+share*(pl.tooLate-pl.epsilon-1)/255)
	c.written, c.done = p.now, true
	c.owner.reportLate([]lateCall{wasLate(c.owner, c.slot, p.now)})
	if p.model != nil {
		p.model.late(c.slot.At, c.owner.late.edge(c.slot), c.slot.Cost, max(p.now-pl.epsilon, c.slot.At))
	}
}

// loseWhileSomebodyKnows makes Redis forget. Then all processes report at once what they know, as they do when they are called. Slots that no process has
// heard of are forgotten here, too.
func (p *played) loseWhileSomebodyKnows(forget func()) {
	p.model = nil
	forget()
	if !slices.ContainsFunc(p.processes, func(q *Pacer) bool { return q.known.root > 0 }) {
		p.calls = nil
	}
	for _, q := range p.processes {
		p.reserve(q, wish{cost: 1})
	}
}

// judge counts, for each call, those that can arrive within a window before it or together with it, if the call comes without delay and they come with as much
// as the jitter allows.
func (p *played) judge() {
	for _, l := range p.cfg.Limits {
		window := (l.Window.Microseconds()*10001+9999)/10000 + p.cfg.Jitter.Microseconds()
		for i, c := range p.calls {
			units := c.slot.Cost
			for _, d := range p.calls[:i] {
				if d.written+window > c.slot.At {
					units += d.slot.Cost
				}
			}
			if units > l.N {
				p.t.Fatalf("%d units can arrive within %s of the slot %d, the limit is %s", units, l.Window, c.slot.At-epoch, l)
			}
		}
	}
	if p.model != nil {
		p.compareLists()
	}
}

func (p *played) compareLists() {
	for k, pool := range p.model.pools {
		var want []int64
		for _, q := range pool.pairs {
			want = append(want, q.edge, q.units)
		}
		var got []int64
		for _, v := range p.client.LRange(context.Background(), p.keys.PaceWindow(k+1), 0, -1).Val() {
			n, err := number(v)
			if err != nil {
				p.t.Fatal(err)
			}
			got = append(got, n)
		}
		if !reflect.DeepEqual(got, want) {
			p.t.Fatalf("window %d holds %v, want %v", k+1, got, want)
		}
	}
}
