package bucket

import (
	"context"
	_ "embed"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

//go:embed testdata/take.lua
var takeLua string

// keeper is a real Redis or the model. take returns what testdata/take.lua returns: how many were taken, µs until the next
// would find room, µs until nothing is in use, and the tokens left by limit.
type keeper interface {
	take(alg Algorithm, now, n, cost int64) ([]int64, error)
}

// taker asks a real Redis.
type taker struct {
	client  redis.UniversalClient
	key     string
	scripts map[string]*redisdb.Script // by their fragment
	expires bool                       // the key expires as it does in production: in real time, which is not the test's
}

func newTaker(client redis.UniversalClient, gateway string) *taker {
	return &taker{client, redisdb.NewKeys(gateway).Admission(), map[string]*redisdb.Script{}, false}
}

func (tk *taker) take(alg Algorithm, now, n, cost int64) ([]int64, error) {
	lua := alg.Lua()
	script, ok := tk.scripts[lua]
	if !ok {
		script = redisdb.NewScript(redisdb.NowLua, lua, takeLua)
		tk.scripts[lua] = script
	}
	v, err := script.Run(context.Background(), tk.client, []string{tk.key}, append([]any{now, n, cost, map[bool]int{false: 1}[tk.expires]}, alg.Args()...)...).Slice()
	out := make([]int64, len(v))
	for i := range v {
		if _, err := fmt.Sscan(fmt.Sprint(v[i]), &out[i]); err != nil {
			return nil, err
		}
	}
	return out, err
}

// onBoth runs a test on the model and on a real Redis. fresh returns a keeper that has nothing in use.
func onBoth(t *testing.T, test func(t *testing.T, fresh func() keeper)) {
	t.Parallel()
	t.Run("model", func(t *testing.T) { t.Parallel(); test(t, func() keeper { return &model{} }) })
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		client := testkit.Client(t)
		test(t, func() keeper { return newTaker(client, testkit.Gateway(t)) })
	})
}

func ask(t rapid.TB, k keeper, alg Algorithm, now, n, cost int64) []int64 {
	t.Helper()
	got, err := k.take(alg, now, n, cost)
	if err != nil {
		t.Fatalf("%#v, take %d of %d: %v", alg, n, cost, err)
	}
	return got
}

var windows = []time.Duration{time.Microsecond, 7 * time.Microsecond, time.Millisecond, time.Second, 90 * time.Second, time.Hour, 24 * time.Hour}

func drawLimits(t *rapid.T, most int64) []job.Limit {
	limit := rapid.Custom(func(t *rapid.T) job.Limit {
		return job.Limit{N: rapid.Int64Range(1, most).Draw(t, "N"), Window: rapid.SampledFrom(windows).Draw(t, "window")}
	})
	return rapid.SliceOfNDistinct(limit, 1, 3, func(l job.Limit) time.Duration { return l.Window }).Draw(t, "limits")
}

func drawAlgorithm(t *rapid.T, name string) Algorithm {
	burst, precision := rapid.Int64Range(1, 10_000).Draw(t, "burst"), rapid.Int64Range(1, 70).Draw(t, "precision")
	most := rapid.SampledFrom([]int64{20, 2_000_000}).Draw(t, "largest N")
	alg, err := newAlgorithm(name, drawLimits(t, most), burst, precision)
	if err != nil {
		t.Fatal(err)
	}
	return alg
}

// drawStep returns how far the clock goes: not at all, a little, a while, or back.
func drawStep(t *rapid.T) int64 {
	if rapid.IntRange(0, 9).Draw(t, "back?") == 0 {
		return -rapid.SampledFrom([]int64{1, 1_999_999, 2_000_000, 2_000_001, 300_000_000}).Draw(t, "back")
	}
	steps := []int64{0, 1, 100, 20_000, 50_000_000, 3_600_000_000}
	return rapid.Int64Range(0, rapid.SampledFrom(steps).Draw(t, "scale")).Draw(t, "step")
}

// Redis and the model give the same answers to the same questions, whatever happens to the clock, the limits and the algorithm in between.
func TestAlgorithmIsItsModel(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	client := testkit.Client(t)
	for _, name := range job.Algorithms() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				tk, m := newTaker(client, testkit.Gateway(t)), &model{}
				alg, now := drawAlgorithm(rt, name), epoch
				for i := range rapid.IntRange(5, 25).Draw(rt, "steps") {
					switch rapid.IntRange(0, 19).Draw(rt, "event") {
					case 0, 1:
						alg = drawAlgorithm(rt, name)
					case 2:
						alg = drawAlgorithm(rt, rapid.SampledFrom(job.Algorithms()).Draw(rt, "name"))
					default:
						now += drawStep(rt)
					}
					n, cost := rapid.Int64Range(0, 30).Draw(rt, "n"), rapid.Int64Range(1, 400).Draw(rt, "cost")
					want := ask(rt, m, alg, now, n, cost)
					if got := ask(rt, tk, alg, now, n, cost); !reflect.DeepEqual(got, want) {
						rt.Fatalf("step %d, %#v, take %d of %d: got %v, want %v", i, alg, n, cost, got, want)
					}
				}
			})
		})
	}
}

// granted is what was granted, by a clock that runs evenly.
type granted struct{ at, cost int64 }

// broken says where a list of grants, in order, breaks the documented bound of the algorithm. It is empty if it does not.
func broken(alg Algorithm, all []granted) string {
	for _, l := range limitsOf(alg) {
		w := micro(l)
		for i := range all {
			sum := int64(0)
			for _, g := range all[i:] {
				sum += g.cost
				if most, length := bound(alg, l, g.at-all[i].at); length && sum > most {
					return fmt.Sprintf("%d in %d µs, limit %d per %d µs: at most %d", sum, g.at-all[i].at, l.N, w, most)
				}
			}
		}
	}
	return ""
}

// bound is the most that may be granted between two grants that are length µs apart, both included.
func bound(alg Algorithm, l job.Limit, length int64) (most int64, bounded bool) {
	w := micro(l)
	switch a := alg.(type) {
	case TokenBucket:
		return a.Burst + length*l.N/w, true
	case LeakyBucket:
		return a.Burst + length*l.N/w, true
	case FixedWindow:
		return 2 * l.N, length < w
	}
	return l.N, length < w
}

func limitsOf(alg Algorithm) []job.Limit {
	switch a := alg.(type) {
	case TokenBucket:
		return a.Limits
	case LeakyBucket:
		return a.Limits
	case FixedWindow:
		return a.Limits
	case SlidingWindow:
		return a.Limits
	case SlidingLog:
		return a.Limits
	}
	panic("unknown")
}

// No stretch of time holds more than the algorithm promises, even if Redis's clock is set back in between.
func TestBound(t *testing.T) {
	testkit.OneGoroutine(t)
	onBoth(t, func(t *testing.T, fresh func() keeper) {
		for _, name := range job.Algorithms() {
			rapid.Check(t, func(rt *rapid.T) {
				k, alg := fresh(), drawAlgorithm(rt, name)
				real, skew, back := int64(0), epoch, false
				var all []granted
				for range rapid.IntRange(5, 25).Draw(rt, "steps") {
					step := drawStep(rt)
					if step < 0 {
						skew, back = skew+step, true
					}
					real += max(step, 0)
					cost := rapid.Int64Range(1, min(alg.MaxCost(), 50)+1).Draw(rt, "cost")
					n := ask(rt, k, alg, skew+real, rapid.Int64Range(0, 40).Draw(rt, "n"), cost)[0]
					if n > 0 {
						all = append(all, granted{real, n * cost})
					}
				}
				if why := broken(alg, all); why != "" {
					rt.Fatalf("%#v: %s: %v", alg, why, all)
				}
				if fixed, ok := alg.(FixedWindow); ok && !back {
					aligned(rt, fixed, all)
				}
			})
		}
	})
}

// The same with work always waiting, which finds the edges: if one part is counted too few, 5 per 10 s in 10 parts
// let 5 in at 9.99 s and 5 more at 19 s.
func TestBoundWhenSaturated(t *testing.T) {
	testkit.OneGoroutine(t)
	onBoth(t, func(t *testing.T, fresh func() keeper) {
		for _, name := range job.Algorithms() {
			rapid.Check(t, func(rt *rapid.T) {
				n, parts := rapid.Int64Range(1, 20).Draw(rt, "N"), rapid.Int64Range(1, 10).Draw(rt, "precision")
				alg, _ := newAlgorithm(name, []job.Limit{{N: n, Window: 10 * time.Second}}, n, parts)
				k, now := fresh(), epoch+rapid.Int64Range(0, 10_000_000).Draw(rt, "start")
				var all []granted
				for range 40 {
					if got := ask(rt, k, alg, now, n, 1)[0]; got > 0 {
						all = append(all, granted{now - epoch, got})
					}
					now += rapid.Int64Range(1, 3_000_000).Draw(rt, "step")
				}
				if why := broken(alg, all); why != "" {
					rt.Fatalf("%#v: %s: %v", alg, why, all)
				}
				if fixed, ok := alg.(FixedWindow); ok {
					aligned(rt, fixed, all)
				}
			})
		}
	})
}

// aligned checks a fixed window's grants against N for each window.
func aligned(t *rapid.T, f FixedWindow, all []granted) {
	for _, l := range f.Limits {
		sums := map[int64]int64{}
		for _, g := range all {
			window := (epoch + g.at) / micro(l)
			if sums[window] += g.cost; sums[window] > l.N {
				t.Fatalf("%d in one window of %s", sums[window], l)
			}
		}
	}
}

// A window counts what was granted before the limit's number changed.
func TestNumberChangesLive(t *testing.T) {
	testkit.OneGoroutine(t)
	onBoth(t, func(t *testing.T, fresh func() keeper) {
		for _, name := range []string{job.SlidingWindow, job.SlidingLog} {
			rapid.Check(t, func(rt *rapid.T) {
				k, now, limits := fresh(), epoch, drawLimits(rt, 40)
				var all []granted
				for range rapid.IntRange(5, 25).Draw(rt, "steps") {
					if rapid.Bool().Draw(rt, "change") {
						i := rapid.IntRange(0, len(limits)-1).Draw(rt, "which")
						limits[i].N = rapid.Int64Range(1, 40).Draw(rt, "N")
					}
					now += max(drawStep(rt), 0)
					alg, _ := newAlgorithm(name, limits, 0, 10)
					n := ask(rt, k, alg, now, rapid.Int64Range(0, 40).Draw(rt, "n"), 1)[0]
					all = append(all, granted{now, n})
					if n == 0 {
						continue
					}
					for _, l := range limits {
						if sum := since(all, now-micro(l)); sum > l.N {
							rt.Fatalf("%s: %d in the window of %s: %v", name, sum, l, all)
						}
					}
				}
			})
		}
	})
}

// since is what was granted after a moment.
func since(all []granted, at int64) (sum int64) {
	for _, g := range all {
		if g.at > at {
			sum += g.cost
		}
	}
	return sum
}

// A change of algorithm never adds the room of the new algorithm to what the old one granted.
func TestAlgorithmChangesLive(t *testing.T) {
	testkit.OneGoroutine(t)
	onBoth(t, func(t *testing.T, fresh func() keeper) {
		const second = int64(1_000_000)
		limits := []job.Limit{{N: 100, Window: time.Second}}
		for _, from := range job.Algorithms() {
			for _, to := range job.Algorithms() {
				if from == to {
					continue
				}
				old, _ := newAlgorithm(from, limits, 100, 10)
				alg, _ := newAlgorithm(to, limits, 100, 10)
				k, last := fresh(), epoch+second/2 // half a fixed window is left
				ask(t, k, old, last, 70, 1)
				level := map[string]bool{job.TokenBucket: true, job.LeakyBucket: true}
				room := map[bool]int64{true: 25}[level[to]] // a quarter of a second's worth
				if level[from] && level[to] {
					room = 55 // they are one meter: what was left goes on
				}
				if got := ask(t, k, alg, last+second/4, 100, 1)[0]; got != room {
					t.Errorf("%s to %s: %d after 250 ms, want %d", from, to, got, room)
				}
				if got := ask(t, k, alg, last+2*second, 200, 1)[0]; got != 100 {
					t.Errorf("%s to %s: %d after 2 s, want 100", from, to, got)
				}
			}
		}
	})
}

// Limits that appear and disappear before and after another one don't change what it counts: a daily quota is not given back when another limit is dropped.
func TestLimitsMoveLive(t *testing.T) {
	testkit.OneGoroutine(t)
	onBoth(t, func(t *testing.T, fresh func() keeper) {
		for _, name := range job.Algorithms() {
			both, _ := newAlgorithm(name, []job.Limit{{N: 100, Window: time.Second}, {N: 100, Window: 24 * time.Hour}}, 100, 10)
			daily, _ := newAlgorithm(name, []job.Limit{{N: 100, Window: 24 * time.Hour}}, 100, 10)
			k := fresh()
			ask(t, k, both, epoch, 100, 1)
			if got := ask(t, k, daily, epoch+5_000_000, 1, 1)[0]; got != 0 {
				t.Errorf("%s: the daily limit was used up, and lets one more in", name)
			}
		}
	})
}

// The hint of a refusal is exact: one microsecond earlier the job is refused, then it is granted. A cost that can never be granted is reported as such.
func TestRetryIsExact(t *testing.T) {
	testkit.OneGoroutine(t)
	onBoth(t, func(t *testing.T, fresh func() keeper) {
		for _, name := range job.Algorithms() {
			rapid.Check(t, func(rt *rapid.T) {
				k, alg, now := fresh(), drawAlgorithm(rt, name), epoch
				cost := rapid.Int64Range(1, alg.MaxCost()).Draw(rt, "cost")
				for range rapid.IntRange(1, 5).Draw(rt, "earlier") {
					ask(rt, k, alg, now, rapid.Int64Range(0, 5).Draw(rt, "n"), max(cost/3, 1))
					now += max(drawStep(rt), -1_999_999)
				}
				retry := ask(rt, k, alg, now, 1+alg.MaxCost()/cost%1000, cost)[1]
				if retry > 0 {
					early, then := ask(rt, k, alg, now+retry-1, 1, cost), ask(rt, k, alg, now+retry, 1, cost)
					if early[0] != 0 || then[0] != 1 {
						rt.Fatalf("%#v: retry %d µs: %v just before, %v then", alg, retry, early, then)
					}
				}
				if got := ask(rt, k, alg, now, 1, alg.MaxCost()+1); got[0] != 0 || got[1] != -1 {
					rt.Fatalf("%#v: a cost of %d got %v", alg, alg.MaxCost()+1, got)
				}
			})
		}
	})
}

// A refusal changes nothing: a caller that asks all the time gets as much as one that asks once.
func TestRefusalsLeaveNoTrace(t *testing.T) {
	testkit.OneGoroutine(t)
	onBoth(t, func(t *testing.T, fresh func() keeper) {
		for _, name := range job.Algorithms() {
			alg, _ := newAlgorithm(name, []job.Limit{{N: 10, Window: time.Second}, {N: 1000, Window: time.Minute}}, 10, 10)
			k := fresh()
			ask(t, k, alg, epoch, 10, 1)
			for i := range int64(200) {
				if got := ask(t, k, alg, epoch+i*100, 1, 5); got[0] != 0 {
					t.Fatalf("%s: %v", name, got)
				}
			}
			if got := ask(t, k, alg, epoch+1_100_000, 20, 1)[0]; got != 10 {
				t.Errorf("%s: %d after a second of refusals, want 10", name, got)
			}
		}
	})
}

// Redis's clock goes back by five minutes while the bucket is full: room appears as if the clock had not changed.
func TestClockSetBackWhileFull(t *testing.T) {
	testkit.OneGoroutine(t)
	onBoth(t, func(t *testing.T, fresh func() keeper) {
		for _, name := range job.Algorithms() {
			alg, _ := newAlgorithm(name, []job.Limit{{N: 10, Window: time.Second}}, 10, 10)
			k, back := fresh(), epoch-300_000_000
			ask(t, k, alg, epoch, 10, 1)
			if got := ask(t, k, alg, back, 1, 1)[0]; got != 0 {
				t.Errorf("%s: room by a clock set back", name)
			}
			if got := ask(t, k, alg, back+1_100_000, 20, 1)[0]; got != 10 {
				t.Errorf("%s: %d one second later, want 10", name, got)
			}
		}
	})
}

// With work always waiting, a window is used as far as its algorithm promises.
func TestUtilisation(t *testing.T) {
	testkit.OneGoroutine(t)
	onBoth(t, func(t *testing.T, fresh func() keeper) {
		for _, name := range job.Algorithms() {
			const n, precision = 50, 20
			seconds := int64(testkit.Often(10, 40))
			alg, _ := newAlgorithm(name, []job.Limit{{N: n, Window: time.Second}}, n, precision)
			k, sum := fresh(), int64(0)
			for i := range seconds * 100 {
				sum += ask(t, k, alg, epoch+i*10_000, 3, 1)[0]
			}
			least := map[string]int64{job.SlidingWindow: n * seconds * precision / (precision + 1)}[name]
			if least == 0 {
				least = n * seconds
			}
			if sum < least {
				t.Errorf("%s: %d in %d s, want at least %d", name, sum, seconds, least)
			}
		}
	})
}

// However long it runs, a key holds only what its windows need, and expires when nothing is in use. The key of a level never expires, and is small.
func TestMemoryIsBounded(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	client := testkit.Client(t)
	ctx := context.Background()
	for _, name := range job.Algorithms() {
		tk := newTaker(client, testkit.Gateway(t))
		tk.expires = true
		alg, _ := newAlgorithm(name, []job.Limit{{N: 1000, Window: time.Second}, {N: 2000, Window: 10 * time.Second}}, 1000, 60)
		var most int64
		var wrote time.Time // before the key was last written
		steps := int64(testkit.Often(1200, 6000))
		each := 24_000_000 / steps // µs: more windows than one, however many steps
		for i := range steps {
			began := time.Now()
			if ask(t, tk, alg, epoch+i*each, 1, 1)[0] > 0 {
				wrote = began
			}
			if i%100 == 99 {
				most = max(most, client.MemoryUsage(ctx, tk.key, 0).Val())
			}
		}
		t.Logf("%s: %d bytes", name, most)
		if held := min(2000, steps*10/24); most > held*(14*2+10) {
			t.Errorf("%s: %d bytes", name, most)
		}
		reset := ask(t, tk, alg, epoch+24_000_000, 0, 1)[2]
		ttl := client.PTTL(ctx, tk.key).Val()
		if _, level := newKept(alg).(*levelModel); level {
			if bytes := client.MemoryUsage(ctx, tk.key, 0).Val(); ttl != -1 || bytes > 400 {
				t.Errorf("%s: kept for %s, in %d bytes", name, ttl, bytes)
			}
		} else if ttl+time.Since(wrote) < time.Duration(reset)*time.Microsecond || ttl > 15*time.Second {
			t.Errorf("%s: in use for %d µs, kept for %s", name, reset, ttl)
		}
	}
}

// FuzzTake plays a list of operations, four bytes each, to Redis and to the model.
func FuzzTake(f *testing.F) {
	f.Add([]byte("\x00\x05\x01\x03\x01\x80\x07\x01\x02\xff\x20\x05\x03\x00\x09\x09\x04\x70\x01\x01"))
	f.Add([]byte("\x04\x00\x05\x01\x04\x30\x05\x01\x04\xf1\x05\x01\x0c\x60\x85\x01\x03\x10\x05\x02"))
	client := testkit.Client(f)
	f.Fuzz(func(t *testing.T, ops []byte) {
		tk, m, now := newTaker(client, testkit.Gateway(t)), &model{}, epoch
		for ; len(ops) >= 4; ops = ops[4:] {
			if len(ops) > 256 {
				ops = ops[:256]
			}
			alg := fuzzedAlgorithm(ops[0])
			now += fuzzedStep(ops[1])
			n, cost := int64(ops[2]%64)-2, int64(ops[3]%40)+1
			want := ask(t, m, alg, now, n, cost)
			if got := ask(t, tk, alg, now, n, cost); !reflect.DeepEqual(got, want) {
				t.Fatalf("%#v, take %d of %d: got %v, want %v", alg, n, cost, got, want)
			}
		}
	})
}

// fuzzedAlgorithm is one of the algorithms under one of 4 sets of limits.
func fuzzedAlgorithm(b byte) Algorithm {
	sets := [][]job.Limit{{per(20, time.Second)}, {per(7, time.Second), per(50, time.Minute)}, {per(50, time.Minute)}, {per(3, 10*time.Millisecond), per(90, time.Hour)}}
	alg, err := newAlgorithm(job.Algorithms()[int(b)%len(job.Algorithms())], sets[b/5%4], 30, 1+int64(b/20))
	if err != nil {
		panic(err)
	}
	return alg
}

// fuzzedStep is from -300 s to about 70 min, and often small.
func fuzzedStep(b byte) int64 {
	if b >= 250 {
		return []int64{-1, -1_999_999, -2_000_000, -2_000_001, -3_000_000, -300_000_000}[b-250]
	}
	return int64(b%8) << (b / 8)
}

func TestAlgorithmCheck(t *testing.T) {
	t.Parallel()
	second := []job.Limit{{N: 10, Window: time.Second}}
	for _, c := range []struct {
		name             string
		limits           []job.Limit
		burst, precision int64
		want             string
	}{
		{"bucket", second, 1, 1, "is not an algorithm"},
		{job.FixedWindow, nil, 0, 0, "no limit"},
		{job.SlidingLog, make([]job.Limit, 9), 0, 0, "9 limits"},
		{job.SlidingLog, []job.Limit{{N: 0, Window: time.Second}}, 0, 0, "allows 0 calls"},
		{job.SlidingWindow, second, 0, 0, "can't have 0 parts"},
		{job.SlidingWindow, second, 0, 1001, "can't have 1001 parts"},
		{job.LeakyBucket, second, 0, 0, "burst of 0"},
		{job.LeakyBucket, []job.Limit{{N: 1, Window: 8760 * time.Hour}}, 100, 0, "too slow for a burst of 100"},
	} {
		if _, err := newAlgorithm(c.name, c.limits, c.burst, c.precision); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v: got %v, want %q", c.name, c.limits, err, c.want)
		}
	}
}

// NewAlgorithm computes once what the algorithm itself would compute each time.
func TestNewAlgorithmIsPrepared(t *testing.T) {
	t.Parallel()
	for _, name := range job.Algorithms() {
		limits := []job.Limit{{N: 10, Window: time.Second}, {N: 300, Window: time.Minute}}
		plain, _ := newAlgorithm(name, limits, 20, 10)
		prepared, err := NewAlgorithm(name, limits, 20, 10)
		if err != nil {
			t.Fatal(err)
		}
		if prepared.Lua() != plain.Lua() || !reflect.DeepEqual(prepared.Args(), plain.Args()) || prepared.MaxCost() != plain.MaxCost() {
			t.Errorf("%s: %v and %v", name, prepared.Args(), plain.Args())
		}
		if first, again := prepared.Args(), prepared.Args(); &first[0] != &again[0] {
			t.Errorf("%s: its arguments are computed again", name)
		}
	}
	if got := (TokenBucket{[]job.Limit{{N: 10, Window: time.Second}}, 20}).Args(); !reflect.DeepEqual(got, []any{"token-bucket 1/100000/2000000/ "}) {
		t.Errorf("a version that is not the one that is kept in Redis: %q", got)
	}
}
