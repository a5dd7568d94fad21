package bucket

import (
	_ "embed" // the script is a file
	"fmt"
	"math/big"
)

//go:embed level.lua
var levelLua string

// TokenBucket is what admission allows: Burst tokens at once, refilled at the rate of each limit. In any stretch of
// time L it lets through at most Burst + L × N / Window, for every limit.
type TokenBucket struct {
	// Limits all hold; one that has no room refuses for all.
	Limits []Limit
	// Burst is how many tokens a full bucket holds; at least 1.
	Burst int64
}

// units is a limit in whole numbers: r units leak out per µs, a token is c units, and cap units are Burst tokens.
type units struct{ r, c, cap int64 }

// unitsCap is the bound of cap, so that sums and products that matter stay below 2^52, where Lua is exact.
const unitsCap = 1 << 51

func (t TokenBucket) units() []units {
	out := make([]units, len(t.Limits))
	for i, l := range t.Limits {
		r, c := below(l.N, l.Window.Microseconds(), (unitsCap-1)/t.Burst)
		out[i] = units{r: r, c: c, cap: t.Burst * c}
	}
	return out
}

// Check returns why the bucket can't be kept, or nil.
func (t TokenBucket) Check() error {
	if err := checkLimits(t.Limits); err != nil {
		return err
	}
	if err := checkBurst(t.Burst); err != nil {
		return err
	}
	for i, u := range t.units() {
		if u.r == 0 {
			return fmt.Errorf("the limit %s is too slow for a burst of %d: make the burst smaller", t.Limits[i], t.Burst)
		}
	}
	return nil
}

// MaxCost is the largest cost for which there can ever be room.
func (t TokenBucket) MaxCost() int64 { return t.Burst }

// Args returns what bucket_load reads, r, c and cap of each limit. The bucket must have passed Check.
func (t TokenBucket) Args() []any {
	var rows [][]int64
	for _, u := range t.units() {
		rows = append(rows, []int64{u.r, u.c, u.cap})
	}
	return args(NameTokenBucket, rows)
}

// below returns the fraction r/c with c <= maxC that is nearest to n/w without being above it. r is 0 when even
// 1/maxC is above. Exact whenever the reduced n/w fits.
func below(n, w, maxC int64) (r, c int64) {
	exact := big.NewRat(n, w)
	if exact.Denom().Int64() <= maxC {
		return exact.Num().Int64(), exact.Denom().Int64()
	}
	return sternBrocot(exact, maxC)
}

// sternBrocot narrows low <= n/w < high down the tree of fractions, a whole run of equal turns at a time.
func sternBrocot(exact *big.Rat, maxC int64) (r, c int64) {
	n, w := exact.Num(), exact.Denom()
	low := [2]*big.Int{new(big.Int).Quo(n, w), big.NewInt(1)}
	high := [2]*big.Int{new(big.Int).Add(low[0], big.NewInt(1)), big.NewInt(1)}
	most := big.NewInt(maxC)
	for {
		// How far low may move towards high: low + k × high <= n/w, and its denominator within the bound.
		k := quotient(gap(n, w, low), gap(n, w, high))
		if fits := new(big.Int).Quo(new(big.Int).Sub(most, low[1]), high[1]); fits.Cmp(k) < 0 {
			return step(low, high, fits)[0].Int64(), step(low, high, fits)[1].Int64()
		}
		low = step(low, high, k)
		// And high towards low, staying above n/w.
		k = quotient(new(big.Int).Sub(gap(n, w, high), big.NewInt(1)), gap(n, w, low))
		if fits := new(big.Int).Quo(new(big.Int).Sub(most, high[1]), low[1]); fits.Cmp(k) < 0 {
			k = fits
		}
		high = step(high, low, k)
		if new(big.Int).Add(low[1], high[1]).Cmp(most) > 0 {
			return low[0].Int64(), low[1].Int64()
		}
	}
}

// gap is |n × c - w × r|: how far the fraction r/c lies from n/w, in units that compare.
func gap(n, w *big.Int, f [2]*big.Int) *big.Int {
	d := new(big.Int).Sub(new(big.Int).Mul(n, f[1]), new(big.Int).Mul(w, f[0]))
	return d.Abs(d)
}

func quotient(a, b *big.Int) *big.Int { return new(big.Int).Quo(a, b) }

func step(from, to [2]*big.Int, k *big.Int) [2]*big.Int {
	return [2]*big.Int{
		new(big.Int).Add(from[0], new(big.Int).Mul(k, to[0])),
		new(big.Int).Add(from[1], new(big.Int).Mul(k, to[1])),
	}
}

// Lua returns the fragment that keeps the limits.
func (TokenBucket) Lua() string { return levelLua }
