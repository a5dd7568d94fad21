package dispatch

import (
	"os"
	"runtime/debug"
	"sync"
)

// ballast is memory that is never touched, so the system never provides it. Go collects garbage when there is
// as much of it as of live memory, and a dispatcher has only a few MiB live: under load that would be fifteen
// collections a second, a fifth of the process's work. The ballast counts as live and allows ballastSize more
// garbage. A higher GOGC would instead multiply the memory that large payloads take.
var ballast = sync.OnceValue(func() []byte { return make([]byte, ballastSize) })

const ballastSize = 32 << 20 // bytes

// boundGarbage sets how much garbage is allowed, relative to live memory: as much as is live, and a smaller
// share above wholeGarbage gateways, since serving thousands takes 300 MB. $GOGC and $GOMEMLIMIT take
// precedence.
func boundGarbage(gateways int) {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(garbage(gateways))
	}
}

const (
	wholeGarbage = 1500 // gateways
	leastGarbage = 50   // percent
)

// garbage returns the allowed garbage, in percent of live memory.
func garbage(gateways int) int {
	return max(leastGarbage, 100*wholeGarbage/max(gateways, wholeGarbage))
}
