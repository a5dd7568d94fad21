package bucket

import (
	_ "embed" // the scripts are files
	"fmt"

	"spillway/internal/job"
)

//go:embed fixed_window.lua
var fixedWindowLua string

//go:embed sliding_window.lua
var slidingWindowLua string

//go:embed sliding_log.lua
var slidingLogLua string

// The fragments that the ledger composes with its scripts: one text each for all gateways.
var (
	fixedWindowCheck   = algorithmLua + fixedWindowLua
	slidingWindowCheck = algorithmLua + slidingWindowLua
	slidingLogCheck    = algorithmLua + slidingLogLua
)

func init() {
	makers[job.FixedWindow] = func(limits []job.Limit, _, _ int64) Algorithm { return FixedWindow{limits} }
	makers[job.SlidingWindow] = func(limits []job.Limit, _, precision int64) Algorithm { return SlidingWindow{limits, precision} }
	makers[job.SlidingLog] = func(limits []job.Limit, _, _ int64) Algorithm { return SlidingLog{limits} }
}

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
