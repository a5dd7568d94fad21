package bucket

import (
	_ "embed" // the script is a file
	"math/big"

	"spillway/internal/job"
)

//go:embed level.lua
var levelLua string

// levelCheck is the fragment that the ledger composes with its scripts: one text for all gateways.
var levelCheck = algorithmLua + levelLua

func init() {
	makers[job.TokenBucket] = func(limits []job.Limit, burst, _ int64) Algorithm { return TokenBucket{limits, burst} }
}

// TokenBucket allows Burst tokens at once, and refills them at the rate of each limit. In any stretch of time L it
// lets through at most Burst + L × N / Window, for every limit.
type TokenBucket struct {
	// Limits all hold; if one has no room, the job is refused.
	Limits []job.Limit
	// Burst is how many tokens a full bucket holds; at least 1.
	Burst int64
}

// units is a limit in whole numbers: r units leak out per µs, a token is c units, and cap units, fewer than
// job.MaxUnits, are Burst tokens.
type units struct{ r, c, cap int64 }

func (t TokenBucket) units() []units {
	out := make([]units, len(t.Limits))
	for i, l := range t.Limits {
		r, c := below(l.N, l.Window.Microseconds(), (job.MaxUnits-1)/t.Burst)
		out[i] = units{r: r, c: c, cap: t.Burst * c}
	}
	return out
}

// Check returns why the bucket can't be kept, or nil.
func (t TokenBucket) Check() error { return checkBucket(job.TokenBucket, t.Limits, t.Burst) }

// MaxCost is the largest cost for which there can ever be room.
func (t TokenBucket) MaxCost() int64 { return t.Burst }

// Args returns what bucket_load reads: r, c and cap of each limit. The bucket must have passed Check.
func (t TokenBucket) Args() []any {
	var rows [][]int64
	for _, u := range t.units() {
		rows = append(rows, []int64{u.r, u.c, u.cap})
	}
	return args(job.TokenBucket, rows)
}

// below returns a fraction r/c with c <= maxC that is at most n/w, and below it by at most 2 parts in maxC. r is 0
// if even 1/maxC is above n/w. The fraction is exact if the reduced n/w fits.
func below(n, w, maxC int64) (r, c int64) {
	exact := big.NewRat(n, w)
	if exact.Denom().Int64() <= maxC {
		return exact.Num().Int64(), exact.Denom().Int64()
	}
	most := new(big.Int).Mul(big.NewInt(n), big.NewInt(maxC))
	num := most.Quo(most, big.NewInt(w))
	if num.Sign() == 0 {
		return 0, maxC
	}
	den, rest := new(big.Int).QuoRem(new(big.Int).Mul(num, big.NewInt(w)), big.NewInt(n), new(big.Int))
	if rest.Sign() > 0 {
		den.Add(den, big.NewInt(1))
	}
	return num.Int64(), den.Int64()
}

// Lua returns the fragments that keep the limits.
func (TokenBucket) Lua() string { return levelCheck }
