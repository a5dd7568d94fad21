package bucket

import (
	_ "embed" // the scripts are files
	"fmt"
	"math/big"
	"slices"
	"strings"

	"spillway/internal/job"
)

var (
	//go:embed algorithm.lua
	algorithmLua string
	//go:embed fixed_window.lua
	fixedWindowLua string
	//go:embed sliding_window.lua
	slidingWindowLua string
	//go:embed sliding_log.lua
	slidingLogLua string
)

// levelNames gives the functions of the default algorithm, which is in algorithm.lua, the names that the ledger's
// scripts use.
const levelNames = `
local bucket_load = level_load
local bucket_take = bucket_add
local bucket_retry = level_retry
local bucket_reset = level_reset
local bucket_save = level_save
`

// The fragments that the ledger composes with its scripts: one text each for all gateways.
var (
	levelCheck         = algorithmLua + levelNames // of the token bucket and the leaky bucket
	fixedWindowCheck   = algorithmLua + fixedWindowLua
	slidingWindowCheck = algorithmLua + slidingWindowLua
	slidingLogCheck    = algorithmLua + slidingLogLua
)

// Algorithm is one way to keep the limits of admission. All algorithms decide in one script on one key, by
// Redis's clock. Either every limit has room for a job, or none is charged; a refusal changes nothing.
type Algorithm interface {
	// Lua returns the fragment that the ledger composes with its own scripts. It defines bucket_load, bucket_take,
	// bucket_retry, bucket_reset, bucket_remaining and bucket_save, all local: see algorithm.lua.
	Lua() string
	// Args returns what bucket_load reads: one text, the version of the limits. It has the algorithm's name and
	// the numbers of each limit. The algorithm must have passed Check. The caller must not change the result.
	Args() []any
	// MaxCost is the largest cost for which there can ever be room.
	MaxCost() int64
	// Check returns why the limits can't be kept in this way, or nil.
	Check() error
}

// MaxPrecision is how many parts a sliding window can have.
const MaxPrecision = 1000

// NewAlgorithm returns the algorithm of that name, or an error if it can't keep these limits. Only token-bucket
// and leaky-bucket use burst. Only sliding-window uses precision, the number of parts of a window.
func NewAlgorithm(name string, limits []job.Limit, burst, precision int64) (Algorithm, error) {
	a, err := newAlgorithm(name, limits, burst, precision)
	if err != nil {
		return nil, err
	}
	return prepared{a, a.Lua(), a.Args()}, nil
}

// prepared is an algorithm that has computed once what is used with every chunk of jobs.
type prepared struct {
	Algorithm
	lua  string
	args []any
}

func (p prepared) Lua() string { return p.lua }

func (p prepared) Args() []any { return p.args }

// makers has a function that makes each algorithm, by its name.
var makers = map[string]func(limits []job.Limit, burst, precision int64) Algorithm{
	job.TokenBucket:   func(limits []job.Limit, burst, _ int64) Algorithm { return TokenBucket{limits, burst} },
	job.LeakyBucket:   func(limits []job.Limit, burst, _ int64) Algorithm { return LeakyBucket{limits, burst} },
	job.FixedWindow:   func(limits []job.Limit, _, _ int64) Algorithm { return FixedWindow{limits} },
	job.SlidingWindow: func(limits []job.Limit, _, precision int64) Algorithm { return SlidingWindow{limits, precision} },
	job.SlidingLog:    func(limits []job.Limit, _, _ int64) Algorithm { return SlidingLog{limits} },
}

func newAlgorithm(name string, limits []job.Limit, burst, precision int64) (Algorithm, error) {
	makes, ok := makers[name]
	if !ok {
		return nil, fmt.Errorf("%q is not an algorithm of admission: use one of %s", name, strings.Join(job.Algorithms(), ", "))
	}
	a := makes(limits, burst, precision)
	return a, a.Check()
}

// args returns the version of limits: the algorithm's name, then the numbers of each limit, such as "token-bucket 1/10/600/ 1/90/5400/ ".
func args(name string, rows [][]int64) []any {
	version := name + " "
	for _, row := range rows {
		for _, x := range row {
			version += fmt.Sprintf("%d/", x)
		}
		version += " "
	}
	return []any{version}
}

// checkLimits returns why limits can't be kept by any algorithm, or nil.
func checkLimits(limits []job.Limit) error {
	if len(limits) == 0 || len(limits) > MaxLimits {
		return fmt.Errorf("admission has %s: give 1 to %d, such as 100/s", count(len(limits)), MaxLimits)
	}
	for _, l := range limits {
		if err := check(l); err != nil {
			return err
		}
	}
	return nil
}

func count(limits int) string {
	if limits == 0 {
		return "no limit"
	}
	return fmt.Sprintf("%d limits", limits)
}

// checkBucket returns why limits can't be kept by a bucket of that burst, or nil.
func checkBucket(name string, limits []job.Limit, burst int64) error {
	if err := checkLimits(limits); err != nil {
		return err
	}
	if burst < 1 || burst > job.MaxCount {
		return fmt.Errorf("the burst of %d can't be kept: give a number from 1 to %d", burst, int64(job.MaxCount))
	}
	for _, l := range limits {
		if !job.Fills(name, l, burst) {
			return fmt.Errorf("the limit %s is too slow for a burst of %d: make the burst smaller", l, burst)
		}
	}
	return nil
}

func smallestN(limits []job.Limit) int64 {
	return slices.MinFunc(limits, func(a, b job.Limit) int { return int(a.N - b.N) }).N
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

// LeakyBucket is a leaky bucket as a meter (GCRA): one job every Window/N, of which up to Burst may come early.
// Window/N is rounded up to whole microseconds, so it never allows more than the limit: in any stretch of time L
// it lets through at most Burst + L × N / Window. Limits of many thousands a second lose some of their rate to the
// rounding.
type LeakyBucket struct {
	// Limits all hold; if one has no room, the job is refused.
	Limits []job.Limit
	// Burst is how many jobs a rested bucket takes at once, at least 1. With 1, jobs are spaced evenly.
	Burst int64
}

// Lua returns the fragments that keep the limits. They are those of the token bucket: one unit leaks out per µs.
func (LeakyBucket) Lua() string { return levelCheck }

// interval is how long one token takes to leak out, in µs.
func interval(l job.Limit) int64 { return (l.Window.Microseconds() + l.N - 1) / l.N }

// Args returns for each limit 1, the units that leak out per µs, then the µs of a token and those of the burst.
func (b LeakyBucket) Args() []any {
	var rows [][]int64
	for _, l := range b.Limits {
		rows = append(rows, []int64{1, interval(l), interval(l) * b.Burst})
	}
	return args(job.LeakyBucket, rows)
}

// MaxCost is the burst.
func (b LeakyBucket) MaxCost() int64 { return b.Burst }

// Check returns why the bucket can't be kept, or nil.
func (b LeakyBucket) Check() error { return checkBucket(job.LeakyBucket, b.Limits, b.Burst) }

// FixedWindow counts in windows that begin at whole multiples of their length since 1970, in UTC. Each holds at
// most N, so a window that begins elsewhere can hold up to 2 N. It is the cheapest algorithm.
type FixedWindow struct {
	// Limits all hold; if one has no room, the job is refused.
	Limits []job.Limit
}

// Lua returns the fragments that keep the limits.
func (FixedWindow) Lua() string { return fixedWindowCheck }

// Args returns, for each limit, its number and its window in µs.
func (f FixedWindow) Args() []any { return windowArgs(job.FixedWindow, f.Limits) }

// MaxCost is the smallest number of the limits.
func (f FixedWindow) MaxCost() int64 { return smallestN(f.Limits) }

// Check returns why the limits can't be kept, or nil.
func (f FixedWindow) Check() error { return checkLimits(f.Limits) }

// SlidingWindow counts in parts of a window. It never lets through more than N in a window, wherever that begins,
// and with P parts at least P/(P + 1) of what the limit allows. Its memory and time grow with P.
type SlidingWindow struct {
	// Limits all hold; if one has no room, the job is refused.
	Limits []job.Limit
	// Precision is the number of parts, 1 to MaxPrecision.
	Precision int64
}

// Lua returns the fragments that keep the limits.
func (SlidingWindow) Lua() string { return slidingWindowCheck }

// Args returns, for each limit, its number, its window and the length of a part, in µs.
func (s SlidingWindow) Args() []any {
	var rows [][]int64
	for _, l := range s.Limits {
		w := l.Window.Microseconds()
		rows = append(rows, []int64{l.N, w, (w + s.Precision - 1) / s.Precision})
	}
	return args(job.SlidingWindow, rows)
}

// MaxCost is the smallest number of the limits.
func (s SlidingWindow) MaxCost() int64 { return smallestN(s.Limits) }

// Check returns why the limits can't be kept, or nil.
func (s SlidingWindow) Check() error {
	if s.Precision < 1 || s.Precision > MaxPrecision {
		return fmt.Errorf("a window can't have %d parts: give a precision from 1 to %d", s.Precision, MaxPrecision)
	}
	return checkLimits(s.Limits)
}

// SlidingLog keeps the time of everything that was taken. It lets through exactly what the limit allows in a
// window, wherever that begins. It takes 14 bytes for each script run in the longest window; a run may take many
// jobs.
type SlidingLog struct {
	// Limits all hold; if one has no room, the job is refused.
	Limits []job.Limit
}

// Lua returns the fragments that keep the limits.
func (SlidingLog) Lua() string { return slidingLogCheck }

// Args returns, for each limit, its number and its window in µs.
func (s SlidingLog) Args() []any { return windowArgs(job.SlidingLog, s.Limits) }

// MaxCost is the smallest number of the limits.
func (s SlidingLog) MaxCost() int64 { return smallestN(s.Limits) }

// Check returns why the limits can't be kept, or nil.
func (s SlidingLog) Check() error { return checkLimits(s.Limits) }

func windowArgs(name string, limits []job.Limit) []any {
	var rows [][]int64
	for _, l := range limits {
		rows = append(rows, []int64{l.N, l.Window.Microseconds()})
	}
	return args(name, rows)
}
