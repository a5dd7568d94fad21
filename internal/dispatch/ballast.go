package dispatch

import (
	"os"
	"runtime/debug"
	"sync"
)

// ballast is memory that nobody ever touches, so that the system never gives it. Go collects its garbage when there is as much of it as of what
// is in use, which is a few MiB in a dispatcher: with much to do that is fifteen times a second, for a fifth of the process's work. This counts as in use. So
// there may be ballastSize more of garbage, however much there is of the rest: a factor (GOGC) would multiply what large payloads take.
var ballast = sync.OnceValue(func() []byte { return make([]byte, ballastSize) })

const ballastSize = 32 << 20 // bytes

// boundGarbage says how much garbage there may be beside what serves so many gateways: as much, and of more than wholeGarbage gateways a smaller share, as what
// serves thousands takes 300 MB. $GOGC and $GOMEMLIMIT come before it.
func boundGarbage(gateways int) {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(garbage(gateways))
	}
}

const (
	wholeGarbage = 1500 // gateways
	leastGarbage = 50   // percent
)

// garbage is how much garbage there may be, in percent of what is in use.
func garbage(gateways int) int {
	return max(leastGarbage, 100*wholeGarbage/max(gateways, wholeGarbage))
}
