package provider

import (
	"slices"
	"time"
)

// maxCalls is how many arrivals are kept before the older half is dropped.
const maxCalls = 2_000_000

// call is one arrival.
type call struct {
	at     int64 // ns since 1970
	key    string
	id     string
	status int  // 0: not answered, or not yet
	first  bool // no call of its job came before
	over   bool
	look   bool          // it only asked
	wait   time.Duration // with over: when to come again
}

// callLog is the arrivals in the order of their stamps, and apart from it those that used up the limit.
type callLog struct {
	keep  int
	calls []*call
	taken []int64
	most  map[Limit]int // the most in a window among what has been dropped
}

// arrive decides over a call by the limits and writes it down. Stamps may come a little out of order: each goes to
// its place, and the windows on both sides of it are looked at.
func (l *callLog) arrive(c *call, limits []Limit, countRefused bool) {
	i := place(l.taken, c.at)
	for _, limit := range limits {
		if !limit.fits(l.taken, i, c.at) {
			c.over = true
			c.wait = max(c.wait, limit.wait(l.taken, c.at))
		}
	}
	if !c.over || countRefused {
		l.taken = slices.Insert(l.taken, i, c.at)
	}
	at := len(l.calls)
	for at > 0 && l.calls[at-1].at > c.at {
		at--
	}
	l.calls = slices.Insert(l.calls, at, c)
	l.trim(limits)
}

// trim drops the older half when the log is full.
func (l *callLog) trim(limits []Limit) {
	if len(l.calls) >= l.keep {
		l.most = l.mostIn(limits)
		l.calls = slices.Clone(l.calls[l.keep/2:])
	}
	if len(l.taken) >= l.keep {
		l.taken = slices.Clone(l.taken[l.keep/2:])
	}
}

// mostIn returns the most arrivals in any window of each limit, refused ones too.
func (l *callLog) mostIn(limits []Limit) map[Limit]int {
	times := l.times()
	most := map[Limit]int{}
	for _, limit := range limits {
		most[limit] = max(l.most[limit], limit.most(times))
	}
	return most
}

func (l *callLog) times() []int64 {
	times := make([]int64, len(l.calls))
	for i, c := range l.calls {
		times[i] = c.at
	}
	return times
}
