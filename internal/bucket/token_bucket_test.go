package bucket

import (
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"spillway/internal/job"
)

// The stored fraction is the limit's own, or just below it: never faster, and slower by at most a millionth.
func TestUnitsAreNeverFaster(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := rapid.Custom(func(rt *rapid.T) TokenBucket {
			return TokenBucket{drawLimits(rt, 2_000_000), rapid.Int64Range(1, 10_000_000).Draw(rt, "burst")}
		}).Filter(func(b TokenBucket) bool { return b.Check() == nil }).Draw(rt, "bucket") // not too slow for the burst
		for i, u := range b.units() {
			if u.cap != b.Burst*u.c || u.cap >= job.MaxUnits {
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
	b := TokenBucket{Limits: []job.Limit{{N: 1_000_000, Window: 24 * time.Hour}, {N: 100, Window: time.Second}, {N: 3, Window: time.Second}}, Burst: 5}
	want := []units{{1, 86_400, 5 * 86_400}, {1, 10_000, 50_000}, {3, 1_000_000, 5_000_000}}
	if got := b.units(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if r, c := below(355, 113, 10); r != 31 || c != 10 { // 22/7 is nearer, but above
		t.Errorf("355/113 with a denominator up to 10 is %d/%d, want 31/10", r, c)
	}
}

func TestTokenBucketCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		b    TokenBucket
		want string
	}{
		{TokenBucket{Burst: 1}, "no limit"},
		{TokenBucket{Limits: []job.Limit{{N: 1, Window: time.Second}}}, "burst of 0"},
		{TokenBucket{Limits: []job.Limit{{N: 0, Window: time.Second}}, Burst: 1}, "allows 0 calls"},
		{TokenBucket{Limits: []job.Limit{{N: 1, Window: time.Nanosecond}}, Burst: 1}, "whole number of microseconds"},
		{TokenBucket{Limits: []job.Limit{{N: 1, Window: 8760 * time.Hour}}, Burst: 100}, "too slow for a burst of 100"},
	} {
		if err := c.b.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.b, err, c.want)
		}
	}
}
