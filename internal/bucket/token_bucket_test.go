package bucket

import (
	"context"
	_ "embed"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

//go:embed testdata/take.lua
var takeLua string

// taker asks a real Redis.
type taker struct {
	client redis.UniversalClient
	script *redisdb.Script
	key    string
}

func newTaker(client redis.UniversalClient, gateway string) *taker {
	return &taker{client, redisdb.NewScript(redisdb.NowLua, TokenBucketLua, takeLua), redisdb.NewKeys(gateway).Admission()}
}

// take returns how many were taken, µs until the next would find room, µs until empty, and the tokens left by limit.
func (tk *taker) take(b TokenBucket, now, n, cost int64) ([]int64, error) {
	args := append([]any{now, n, cost}, b.Args()...)
	v, err := tk.script.Run(context.Background(), tk.client, []string{tk.key}, args...).Slice()
	out := make([]int64, len(v))
	for i := range v {
		if _, err := fmt.Sscan(fmt.Sprint(v[i]), &out[i]); err != nil {
			return nil, err
		}
	}
	return out, err
}

// model is the same bucket in integers without bound.
type model struct {
	last int64
	used []*big.Int
	unit []units
}

func big64(x int64) *big.Int { return big.NewInt(x) }

func mul(a, b *big.Int) *big.Int { return new(big.Int).Mul(a, b) }

// ceilDiv rounds up, also for negative a.
func ceilDiv(a *big.Int, b int64) *big.Int {
	q, r := new(big.Int).DivMod(a, big64(b), new(big.Int))
	if r.Sign() > 0 {
		q.Add(q, big64(1))
	}
	return q
}

func (m *model) load(unit []units, now int64) {
	if m.last == 0 {
		m.last = now
	}
	if now < m.last && m.last-now <= 2_000_000 {
		now = m.last
	}
	elapsed := max(now-m.last, 0)
	used := make([]*big.Int, len(unit))
	for i, u := range unit {
		used[i] = new(big.Int)
		if i < len(m.used) {
			used[i] = m.carried(i, u)
		}
		used[i].Sub(used[i], mul(big64(elapsed), big64(u.r)))
		if used[i].Sign() < 0 {
			used[i].SetInt64(0)
		}
	}
	m.used, m.unit, m.last = used, unit, now
}

// carried is what limit i has in use, in the units of u.
func (m *model) carried(i int, u units) *big.Int {
	in := new(big.Int).Set(m.used[i])
	if from := m.unit[i].c; from != u.c {
		exact := ceilDiv(mul(in, big64(u.c)), from)
		if rest := mul(new(big.Int).Mod(in, big64(from)), big64(u.c)); rest.Cmp(big64(1<<52)) >= 0 {
			exact = mul(ceilDiv(in, from), big64(u.c)) // a started token counts whole
			if rest.Sign() == 0 {
				exact = mul(new(big.Int).Quo(in, big64(from)), big64(u.c))
			}
		}
		in = exact
	}
	if in.Cmp(big64(u.cap)) > 0 {
		in.SetInt64(u.cap)
	}
	return in
}

func (m *model) room(cost int64) bool {
	for i, u := range m.unit {
		if new(big.Int).Add(m.used[i], mul(big64(cost), big64(u.c))).Cmp(big64(u.cap)) > 0 {
			return false
		}
	}
	return true
}

func (m *model) add(cost int64) {
	for i, u := range m.unit {
		m.used[i].Add(m.used[i], mul(big64(cost), big64(u.c)))
		if m.used[i].Sign() < 0 {
			m.used[i].SetInt64(0)
		}
	}
}

// take does what take.lua does. A refusal leaves no trace, not even of the time.
func (m *model) take(b TokenBucket, now, n, cost int64) []int64 {
	before := *m
	m.load(b.units(), now)
	taken := int64(0)
	if n < 0 {
		m.add(n * cost)
	}
	for taken < n && m.room(cost) {
		m.add(cost)
		taken++
	}
	out := m.answer(taken, cost)
	if taken == 0 && n >= 0 {
		*m = before
	}
	return out
}

func (m *model) answer(taken, cost int64) []int64 {
	retry, reset := new(big.Int), new(big.Int)
	var left []int64
	for i, u := range m.unit {
		need := new(big.Int).Sub(new(big.Int).Add(m.used[i], mul(big64(cost), big64(u.c))), big64(u.cap))
		if mul(big64(cost), big64(u.c)).Cmp(big64(u.cap)) > 0 {
			need, retry = new(big.Int), big64(-1)
		}
		if w := ceilDiv(need, u.r); retry.Sign() >= 0 && w.Cmp(retry) > 0 {
			retry = w
		}
		if w := ceilDiv(m.used[i], u.r); w.Cmp(reset) > 0 {
			reset = w
		}
		left = append(left, new(big.Int).Quo(new(big.Int).Sub(big64(u.cap), m.used[i]), big64(u.c)).Int64())
	}
	return append([]int64{taken, retry.Int64(), reset.Int64()}, left...)
}

func drawBucket(t *rapid.T) TokenBucket {
	windows := []time.Duration{time.Microsecond, 7 * time.Microsecond, time.Millisecond, time.Second, 90 * time.Second, time.Hour, 24 * time.Hour}
	limit := rapid.Custom(func(t *rapid.T) Limit {
		return Limit{rapid.Int64Range(1, 2_000_000).Draw(t, "N"), rapid.SampledFrom(windows).Draw(t, "window")}
	})
	return TokenBucket{Limits: rapid.SliceOfN(limit, 1, 3).Draw(t, "limits"), Burst: rapid.Int64Range(1, 10_000).Draw(t, "burst")}
}

// Redis and the model give the same answers to the same questions, whatever the clock and the limits do in between.
func TestTokenBucketIsItsModel(t *testing.T) {
	t.Parallel()
	client := testkit.Client(t)
	rapid.Check(t, func(rt *rapid.T) {
		tk, m := newTaker(client, testkit.Gateway(t)), &model{}
		b, now := drawBucket(rt), epoch
		for i := range rapid.IntRange(5, 25).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "event") {
			case 0:
				b = drawBucket(rt)
			case 1:
				now -= rapid.SampledFrom([]int64{1, 1_999_999, 2_000_000, 2_000_001, 300_000_000}).Draw(rt, "back")
			default:
				now += rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(0, 50_000_000)).Draw(rt, "step")
			}
			if err := b.Check(); err != nil {
				rt.Fatal(err)
			}
			n, cost := rapid.Int64Range(-2, 30).Draw(rt, "n"), rapid.Int64Range(1, 400).Draw(rt, "cost")
			want := m.take(b, now, n, cost)
			got, err := tk.take(b, now, n, cost)
			if err != nil || !reflect.DeepEqual(got, want) {
				rt.Fatalf("step %d, %v, take %d of %d: got %v (%v), want %v", i, b, n, cost, got, err, want)
			}
		}
	})
}

// A refusal's retry is exact: refused one microsecond before, granted then.
func TestRetryIsExact(t *testing.T) {
	t.Parallel()
	client := testkit.Client(t)
	rapid.Check(t, func(rt *rapid.T) {
		tk, b := newTaker(client, testkit.Gateway(t)), drawBucket(rt)
		cost := rapid.Int64Range(1, b.Burst).Draw(rt, "cost")
		now := epoch
		first, err := tk.take(b, now, b.Burst/cost, cost)
		if err != nil {
			rt.Fatal(err)
		}
		if retry := first[1]; retry > 0 {
			early, _ := tk.take(b, now+retry-1, 1, cost)
			then, _ := tk.take(b, now+retry, 1, cost)
			if early[0] != 0 || then[0] != 1 {
				rt.Fatalf("retry %d µs: %v just before, %v then", retry, early, then)
			}
		}
	})
}

// The fraction kept is the limit's own, or the nearest below it: never faster, and slower by no more than a millionth.
func TestUnitsAreNeverFaster(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := drawBucket(rt)
		b.Burst = rapid.Int64Range(1, 10_000_000).Draw(rt, "large burst")
		if b.Check() != nil {
			rt.Skip("too slow for the burst")
		}
		for i, u := range b.units() {
			if u.cap != b.Burst*u.c || u.cap >= unitsCap {
				rt.Fatalf("%v: %+v", b, u)
			}
			limit, kept := big.NewRat(b.Limits[i].N, b.Limits[i].Window.Microseconds()), big.NewRat(u.r, u.c)
			short := new(big.Rat).Quo(new(big.Rat).Sub(limit, kept), limit)
			if f, _ := short.Float64(); f < 0 || f > 1e-6 {
				rt.Fatalf("%s kept as %d/%d, short by %g", b.Limits[i], u.r, u.c, f)
			}
		}
	})
}

func TestUnitsExamples(t *testing.T) {
	t.Parallel()
	b := TokenBucket{Limits: []Limit{{1_000_000, 24 * time.Hour}, {100, time.Second}, {3, time.Second}}, Burst: 5}
	want := []units{{1, 86_400, 5 * 86_400}, {1, 10_000, 50_000}, {3, 1_000_000, 5_000_000}}
	if got := b.units(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if r, c := below(355, 113, 10); r != 25 || c != 8 { // 22/7 is nearer, but above
		t.Errorf("355/113 with a denominator up to 10 is %d/%d, want 25/8", r, c)
	}
}

func TestTokenBucketCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		b    TokenBucket
		want string
	}{
		{TokenBucket{Burst: 1}, "no limit"},
		{TokenBucket{Limits: []Limit{{1, time.Second}}}, "burst of 0"},
		{TokenBucket{Limits: []Limit{{0, time.Second}}, Burst: 1}, "allows 0 calls"},
		{TokenBucket{Limits: []Limit{{1, time.Nanosecond}}, Burst: 1}, "whole number of microseconds"},
		{TokenBucket{Limits: []Limit{{1, 8760 * time.Hour}}, Burst: 100}, "too slow for a burst of 100"},
	} {
		if err := c.b.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.b, err, c.want)
		}
	}
}

func BenchmarkTake(b *testing.B) {
	tk := newTaker(testkit.Client(b), "bench")
	bucket := TokenBucket{Limits: []Limit{{1000, time.Second}, {50_000, time.Minute}}, Burst: 60_000}
	for b.Loop() {
		if _, err := tk.take(bucket, 0, 100, 1); err != nil {
			b.Fatal(err)
		}
	}
}
