package bucket

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// Permits that are given back are found among thousands, even if several are of one moment, or an announcement has moved them. All others stay, in order.
func TestPermitsThatGoBackAreFoundAmongThousands(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	client, keys := testkit.Client(t), redisdb.NewKeys(testkit.Gateway(t))
	list := keys.Pace() + ":w1"
	const announced, pairs = 700, 3000
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // no secret depends on it
		var all [][2]int64
		var flat []any
		edge, units := int64(1_700_000_000_000_000), int64(0)
		for range pairs {
			edge += rng.Int64N(3) // so that some are of one moment
			p := [2]int64{edge, 1 + rng.Int64N(2)}
			all, flat, units = append(all, p), append(flat, p[0], p[1]), units+p[1]
		}
		client.Del(t.Context(), list, keys.Pace())
		client.RPush(t.Context(), list, flat...)
		client.HSet(t.Context(), keys.Pace(), "s", edge, "tat", edge, "g", "shape", "u", "9 0 0 1", "o", "1 5", "n1", units)
		args, want := []any{1, "shape", announced, 1, 0}, int64(0)
		near := rng.IntN(pairs)
		for range 64 {
			i := rng.IntN(pairs)
			if rng.IntN(2) == 0 { // mostly they lie near to one another
				i = max(near-rng.IntN(80), 0)
			}
			i = min(i, len(all)-1)
			slot, at, cost := all[i][0], all[i][0], all[i][1]
			switch rng.IntN(6) {
			case 0: // it stands where its announcement has put it
				slot, at = at-announced, at-announced-1
			case 1: // it is nowhere
				slot, at, cost = slot+1, at+1, 7
			}
			args = append(args, slot, at, cost, "", 5)
			has := func(edge int64) int { // the last of equal ones
				i := len(all) - 1
				for i >= 0 && all[i] != [2]int64{edge, cost} {
					i--
				}
				return i
			}
			found := has(at)
			if found < 0 {
				found = has(slot + announced)
			}
			if found >= 0 {
				all, want, units = slices.Delete(all, found, found+1), want+1, units-cost
			}
		}
		freed, err := releaseScript.Run(t.Context(), client, []string{keys.Pace(), keys.Hold(), keys.Flight(), list}, args...).Int64()
		if err != nil || freed != want {
			t.Fatalf("seed %d: %d went back, want %d: %v", seed, freed, want, err)
		}
		var left []string
		for _, p := range all {
			left = append(left, strconv.FormatInt(p[0], 10), strconv.FormatInt(p[1], 10))
		}
		if got := client.LRange(t.Context(), list, 0, -1).Val(); !slices.Equal(got, left) {
			t.Fatalf("seed %d: other permits are left: %d values, want %d", seed, len(got), len(left))
		}
		if got := client.HGet(t.Context(), keys.Pace(), "n1").Val(); got != fmt.Sprint(units) {
			t.Errorf("seed %d: %s units are counted, want %d", seed, got, units)
		}
	}
}

// What a slot costs more than its job is there for others at once, in windows that are exact and in those kept in parts. The slot is found at its new cost.
func TestASlotGivesBackWhatItsJobDoesNotNeed(t *testing.T) {
	w, ctx := scenario(t)
	cfg := PacerConfig{Limits: []job.Limit{per(10, time.Second), per(2000, time.Minute)}, Burst: 10}
	p := w.pacer(cfg)
	full := w.reserve(p, wish{want: 1, cost: 10})
	w.expect(full, stateOK, 1)
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), "horizon", 0)
	s, err := p.Trim(ctx, full.slots[0], 1)
	if err != nil || s.Cost != 1 {
		t.Fatalf("the slot costs %d: %v", s.Cost, err)
	}
	units := func(want string) {
		t.Helper()
		for _, field := range []string{"n1", "n2"} {
			if got := w.client.HGet(ctx, w.keys.Pace(), field).Val(); got != want {
				t.Errorf("%s units are counted in %s, want %s", got, field, want)
			}
		}
	}
	units("1")
	rest := w.reserve(p, wish{want: 16, cost: 1})
	w.expect(rest, stateOK, 9)
	units("10")
	if err := p.Release(ctx, s); err != nil {
		t.Fatal(err)
	}
	units("9")
	again, err := p.Trim(ctx, s, 1)
	if err != nil || again != s {
		t.Errorf("a slot that costs no more than its job is %+v: %v", again, err)
	}
	other := rest.slots[0]
	other.Cost, other.StateID = 7, other.StateID+1
	if again, err = p.Trim(ctx, other, 1); err != nil || again.Cost != 7 {
		t.Errorf("a slot of another state costs %d: %v", again.Cost, err)
	}
	units("9")
}

// If the answer to a trim is lost, the units may have been given back: the slot's release takes nothing from other calls in the same part of a window.
func TestASlotOfUnknownCostTakesNothingFromOthers(t *testing.T) {
	t.Parallel()
	c, gateway := testkit.Client(t).(*redis.Client), testkit.Gateway(t)
	p := newTestPacer(t, c, PacerConfig{Gateway: gateway, Limits: []job.Limit{per(10, time.Second), per(2000, time.Hour)}, Burst: 10})
	var slots []job.Slot
	for range 2 {
		s, err := p.Take(t.Context(), 5, "")
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, s)
	}
	deaf := atomic.Bool{}
	deaf.Store(true)
	c.AddHook(testkit.Around(func(cmds []redis.Cmder, send func() error) error {
		if err := send(); !deaf.Load() || redis.HasErrorPrefix(err, "NOSCRIPT") {
			return err
		}
		cmds[0].SetErr(io.EOF)
		return io.EOF
	}))
	s, err := p.Trim(t.Context(), slots[0], 1)
	if err == nil {
		t.Fatal("no answer came, and the slot was trimmed")
	}
	deaf.Store(false)
	if err := p.Release(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"n1", "n2"} { // 5 of the other slot, and one that stays taken
		if got := c.HGet(t.Context(), redisdb.NewKeys(gateway).Pace(), field).Val(); got != "6" {
			t.Errorf("%s units are counted in %s, want 6", got, field)
		}
	}
}

// A slot that comes back is given out at once, even if the next one was far away when Redis was last asked.
func TestASlotThatComesBackIsNotSleptThrough(t *testing.T) {
	t.Parallel()
	client, gateway := testkit.Client(t), testkit.Gateway(t)
	p := newTestPacer(t, client, PacerConfig{Gateway: gateway, Limits: []job.Limit{per(1, 5*time.Second)}})
	client.LPush(t.Context(), redisdb.NewKeys(gateway).Pending(), "a~1", "b~1", "c~1")
	took := time.Hour
	for range 3 { // a busy machine may be slow now and then
		s, err := p.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan job.Slot)
		go func() {
			s, _ := p.Next(t.Context())
			next <- s
		}()
		seen := 0 // by then it is asleep
		testkit.Eventually(t, 5*time.Second, "the next slot to be waited for", func() bool { seen += len(p.nextTurn); return seen == 20 })
		began := time.Now()
		_ = p.Release(t.Context(), s)
		s = <-next
		took = min(took, time.Since(began))
		p.Empty(t.Context(), s)
	}
	if took > heldPoll/2 {
		t.Errorf("a slot that came back was used after %s", took)
	}
}

// While the call of a job with a cost is due soon and its job was pulled already, the next slot is for the job behind it.
func TestTheNextSlotIsForTheJobBehindThoseThatWerePulled(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(hundred())
	w.client.LPush(ctx, w.keys.Pending(), "a~1", "b~1", "c~1", "d~1") // a is next
	w.client.HSet(ctx, w.keys.Costs(), "a~1", 2, "b~1", 5, "c~1", 7)
	first := w.reserve(p, wish{want: 1, lead: 1000}).slots
	if len(first) != 1 || first[0].Cost != 2 || !first[0].Costly {
		t.Fatalf("the first slot is %+v", first)
	}
	w.client.RPop(ctx, w.keys.Pending()) // as dequeue.lua does
	w.client.HSet(ctx, w.keys.Hold(), "pulled", first[0].At)
	for i, want := range []int64{5, 7} {
		if g := w.reserve(p, wish{want: 1, lead: 1000}); len(g.slots) != 1 || g.slots[0].Cost != want {
			t.Fatalf("slot %d is %+v, want one that costs %d", i, g.slots, want)
		}
	}
	w.pass(2 * time.Second)
	w.client.HSet(ctx, w.keys.Hold(), "pulled", w.now+time.Hour.Microseconds()) // Redis's clock was set back
	for i, want := range []int64{5, 7} {                                        // nothing was pulled
		if g := w.reserve(p, wish{want: 1, lead: 1000}); len(g.slots) != 1 || g.slots[0].Cost != want {
			t.Fatalf("slot %d is %+v, want one that costs %d", i, g.slots, want)
		}
	}
}

// If Redis can't be reached when a call ends or a slot is given back, its place in flight is free soon after Redis is back, and not only when its lease expires.
func TestAPlaceInFlightIsFreedOnceRedisIsBack(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]PacerConfig{
		"of the gateway": {Limits: []job.Limit{per(100, time.Second)}, MaxInFlight: 2, CallTimeout: time.Minute},
		"of a route":     {Limits: []job.Limit{per(100, time.Second)}, Routes: []Route{{Name: "r", MaxInFlight: 2}}, CallTimeout: time.Minute},
	} {
		c := testkit.Client(t).(*redis.Client)
		cfg.Gateway = testkit.Gateway(t)
		p := newTestPacer(t, c, cfg)
		flow, id, keys := job.Flow{Route: "r"}, "j", redisdb.NewKeys(cfg.Gateway)
		c.HSet(t.Context(), keys.Job(id), record.Short("route"), flow.Route)
		var slots []job.Slot
		for range 2 {
			s, err := p.Take(t.Context(), 1, id)
			if err != nil || s.Lease == "" {
				t.Fatalf("%s: %+v, %v", name, s, err)
			}
			slots = append(slots, s)
		}
		away := atomic.Bool{}
		away.Store(true)
		c.AddHook(testkit.Around(func(cmds []redis.Cmder, send func() error) error {
			if !away.Load() {
				return send()
			}
			for _, cmd := range cmds {
				cmd.SetErr(io.EOF)
			}
			return io.EOF
		}))
		p.End(t.Context(), slots[0])
		if p.Release(t.Context(), slots[1]) == nil {
			t.Errorf("%s: Redis is away, and a slot was given back", name)
		}
		away.Store(false)
		testkit.Eventually(t, 10*time.Second, "both places "+name+" to be free", func() bool {
			return c.ZCard(t.Context(), keys.Flight()).Val()+c.ZCard(t.Context(), keys.FlightOfRoute("r")).Val() == 0
		})
	}
}
