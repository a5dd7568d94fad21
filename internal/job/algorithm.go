package job

// The algorithms of admission, by their names in the configuration.
const (
	TokenBucket   = "token-bucket"
	LeakyBucket   = "leaky-bucket"
	FixedWindow   = "fixed-window"
	SlidingWindow = "sliding-window"
	SlidingLog    = "sliding-log"
)

// Algorithms returns the names of all algorithms of admission.
func Algorithms() []string {
	return []string{TokenBucket, LeakyBucket, FixedWindow, SlidingWindow, SlidingLog}
}

// Bursts reports that an algorithm is a bucket: it has a burst apart from its limits.
func Bursts(algorithm string) bool { return algorithm == TokenBucket || algorithm == LeakyBucket }
