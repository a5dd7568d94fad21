package bucket

import "spillway/internal/job"

func init() {
	makers[job.LeakyBucket] = func(limits []job.Limit, burst, _ int64) Algorithm { return LeakyBucket{limits, burst} }
}

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
