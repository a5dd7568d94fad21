package job

import "math/bits"

// The admission algorithms, as named in the configuration.
const (
	TokenBucket   = "token-bucket"
	LeakyBucket   = "leaky-bucket"
	FixedWindow   = "fixed-window"
	SlidingWindow = "sliding-window"
	SlidingLog    = "sliding-log"
)

// algorithms is the only table of their names and bounds. Package bucket implements them.
var algorithms = []struct {
	name string
	// fills reports whether a bucket of that burst fills at that limit soon enough to be counted in whole
	// numbers. Nil: the algorithm has no burst.
	fills func(l Limit, burst int64) bool
}{
	{TokenBucket, fillsTokens}, {LeakyBucket, fillsInterval}, {FixedWindow, nil}, {SlidingWindow, nil}, {SlidingLog, nil},
}

// Algorithms returns the names of all admission algorithms.
func Algorithms() []string {
	names := make([]string, len(algorithms))
	for i, a := range algorithms {
		names[i] = a.name
	}
	return names
}

// Bursts reports whether an algorithm is a bucket, with a burst apart from its limits.
func Bursts(algorithm string) bool {
	for _, a := range algorithms {
		if a.name == algorithm {
			return a.fills != nil
		}
	}
	return false
}

// Fills reports whether an algorithm can keep that limit with that burst; a burst of 0 counts as 1. An
// algorithm without a burst keeps every limit.
func Fills(algorithm string, l Limit, burst int64) bool {
	for _, a := range algorithms {
		if a.name == algorithm && a.fills != nil {
			return a.fills(l, max(burst, 1))
		}
	}
	return true
}

// MaxUnits bounds the units of a full bucket, so that sums stay below 2^52, where Lua is exact.
const MaxUnits = 1 << 51

func fillsTokens(l Limit, burst int64) bool {
	over, low := bits.Mul64(uint64(l.N), uint64((MaxUnits-1)/burst))
	return over > 0 || low >= uint64(l.Window.Microseconds())
}

// fillsInterval counts whole microseconds for each job, as a leaky bucket does.
func fillsInterval(l Limit, burst int64) bool {
	return (l.Window.Microseconds()-1)/l.N+1 <= (MaxUnits-1)/burst
}
