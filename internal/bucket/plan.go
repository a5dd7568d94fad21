package bucket

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"spillway/internal/job"
)

// MaxLimits is how many limits one gateway can have.
const MaxLimits = 8

const (
	keptMost    = 4                // how many windows that are out of force are remembered
	exactN      = 1024             // up to this many permits, a window is kept exactly
	exactWindow = 10 * time.Second // and every window shorter than this
	subBuckets  = 256              // otherwise in this many parts
	horizonMost = 100 * time.Millisecond
	lateMost    = 250 * time.Millisecond // what windows in parts allow for, as reports of lateness don't pay there
	lateEver    = time.Second            // a slot missed by more is never used
	epsilonMost = 2 * time.Millisecond   // lateness that isn't worth a report
	leaseMargin = 5 * time.Second
	batchLeast  = 16 // slots reserved at a time, or as many as come in batchSpan
	batchMost   = 128
	batchSpan   = 10 * time.Millisecond
	batchPart   = 64 // but at most this part of any limit: they are lost with the process, for a whole window
	longestW    = 366 * 24 * time.Hour
	evenLeast   = 20               // calls of a window: with fewer, each comes when its permit does
	evenMost    = 30 * time.Second // a longer window: what a loss took from it is counted by the spacing of calls, see loss_most in pool.lua
)

// window is one limit as reserve.lua reads it, all times in µs.
type window struct{ n, length, ready, width int64 }

// plan is what follows from a PacerConfig, all times in µs.
type plan struct {
	cfg       PacerConfig
	windows   []window // shortest first
	exact     bool     // at least one window is not kept in parts
	shape     string
	horizon   int64
	spacing   int64
	even      int64 // spacing in the first window after a rest
	wave      int64 // that window
	tolerance int64
	batch     int64
	shortest  time.Duration // of all windows there may be
	inHand    int64         // most slots that one process holds while its machine is busy
	reach     int64         // slots that fit in the horizon, and so in one answer
	epsilon   int64
	tooLate   int64
	outlives  int64
	maxCost   int64
	audit     *audit
	laned     bool     // there are lanes, or routes with limits: slots come with their jobs
	waiting   []string // sets of the lanes with jobs
	lane      []window
	routes    map[string][]window
}

func newPlan(cfg PacerConfig) (*plan, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	limits := slices.Clone(cfg.Limits)
	slices.SortStableFunc(limits, func(a, b job.Limit) int { return int(a.Window - b.Window) })
	shortest := limits[0].Window
	for _, l := range cfg.beside() {
		shortest = min(shortest, l.Window)
	}
	if cfg.Lanes != nil {
		shortest = min(shortest, shortestOwn) // a lane may get such a limit of its own
	}
	p := &plan{
		cfg:      cfg,
		shortest: shortest,
		horizon:  min(horizonMost, shortest/2).Microseconds(),
		epsilon:  min(epsilonMost, shortest/200).Microseconds(),
		tooLate:  min(lateEver, shortest/4).Microseconds(),
		outlives: (cfg.CallTimeout + leaseMargin).Microseconds(),
		maxCost:  job.MaxCount,
	}
	p.spacing, p.even, p.wave = spacing(limits)
	p.tolerance = (max(cfg.Burst, 1) - 1) * p.spacing
	for _, l := range limits {
		p.addWindow(l)
	}
	if p.laned = cfg.Laned(); p.laned {
		p.addLanes()
	}
	p.batch = max(min(batchSpan.Microseconds()/max(p.spacing, 1), p.maxCost/batchPart, batchMost), batchLeast)
	p.inHand = max((p.horizon+p.tooLate)/max(p.spacing, 1), batchLeast, cfg.Burst)
	p.reach = 1 + (p.horizon+p.tolerance)/max(p.spacing, 1)
	p.audit = newAudit(p.windows)
	return p, nil
}

// spacing is 0.9 × window/N of the limit that allows the quickest pace: the others are kept by their permits
// alone, and a tenth quicker than the limit lets the slots catch up after one was given back. Still quicker
// does not help: 97.4 and 98.2 % of 1,000/s at 0.5, 98.0 and 98.3 % at 0.9. After a rest of a whole window
// every permit is free, and the pace of the first N calls recurs in each window: even is 0.99 × window/N, so
// that calls don't wait for the tenth of a window that 0.9 would leave empty each time.
func spacing(limits []job.Limit) (quick, even, wave int64) {
	quick = job.MaxCount
	for _, l := range limits {
		if at := l.Window.Microseconds() * 9 / (l.N * 10); at < quick {
			quick, even, wave = at, l.Window.Microseconds()*99/(l.N*100), l.Window.Microseconds()
		}
	}
	if wave < evenLeast*quick || wave > evenMost.Microseconds() { // quick is 0 if more than 900,000 calls a second are allowed
		even = quick
	}
	return quick, even, wave
}

func (p *plan) addWindow(l job.Limit) {
	w := p.window(l, exactN, subBuckets)
	p.exact = p.exact || w.width == 0
	p.windows = append(p.windows, w)
	p.shape += fmt.Sprintf("%d:%d ", w.length, w.width)
	p.maxCost = min(p.maxCost, l.N)
}

// window works out a limit: one of more units than exact in a long window is kept in parts.
func (p *plan) window(l job.Limit, exact, parts int64) window {
	length := l.Window.Microseconds()
	w := window{n: l.N, length: length}
	w.ready = length + (length+9999)/10000 + p.cfg.Jitter.Microseconds() + p.epsilon
	if l.N > exact && l.Window >= exactWindow {
		w.width = (length + parts - 1) / parts
		p.tooLate = min(p.tooLate, lateMost.Microseconds())
		w.ready += p.tooLate
	}
	return w
}

func (c PacerConfig) check() error {
	switch {
	case c.Gateway == "" || strings.ContainsAny(c.Gateway, "{}"):
		return fmt.Errorf("the pacer has no usable gateway name (%q): give the gateway's name", c.Gateway)
	case len(c.Limits) == 0:
		return errors.New("the gateway has no limit: give at least one, such as 100/s")
	case len(c.Limits) > MaxLimits:
		return fmt.Errorf("the gateway has %d limits: give at most %d", len(c.Limits), MaxLimits)
	case c.Jitter < 0 || c.CallTimeout < 0 || c.MaxInFlight < 0 || c.Burst < 0 || c.Version < 0:
		return errors.New("burst, jitter, timeout, calls in flight and version can't be negative: give 0 or more")
	}
	for _, l := range c.Limits {
		if err := check(l); err != nil {
			return err
		}
		if l.Window > longestW {
			return fmt.Errorf("the limit %s has a window of more than a year: give a shorter one", l)
		}
		if c.Burst > l.N {
			return fmt.Errorf("the burst of %d is above the limit %s: make it at most %d", c.Burst, l, l.N)
		}
	}
	return c.checkLanes()
}
