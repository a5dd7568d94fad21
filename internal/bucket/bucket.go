// Package bucket keeps the limits: step 2 and step 4 of 8, the maths and the scripts of admission and of the
// pacer.
//
// Admission asks an Algorithm: may this job enter the queue now? Its Lua fragment is composed into the script
// that admits jobs, so that admission, record and queueing are one atomic step.
//
// The Pacer hands out slots: the moments at which calls may start. Every limit is a pool of N permits. A call
// takes one permit from each pool, and a permit taken for a slot is ready again at
//
//	edge + R    with R = window × 1.0001 + jitter + 2 ms
//
// where edge is the latest moment at which the call was written: the slot, or the reported moment when the call
// was late. A call is never written before its slot, and arrives at most the jitter later than the quickest one
// would. So two calls that use one permit arrive at least one window apart, and no window of that length,
// wherever it begins, holds more than N calls. This does not depend on order, on the number of processes, or on
// any clock but Redis's.
package bucket

import (
	"fmt"
	"time"

	"spillway/internal/job"
)

// check returns why a limit can't be kept, or nil.
func check(l job.Limit) error {
	switch {
	case l.N < 1 || l.N > job.MaxCount:
		return fmt.Errorf("the limit %s allows %d calls: give a number from 1 to %d", l, l.N, int64(job.MaxCount))
	case l.Window < time.Microsecond || l.Window%time.Microsecond != 0:
		return fmt.Errorf("the limit %s has a window of %s: give a whole number of microseconds, at least one", l, l.Window)
	}
	return nil
}
