package dispatch

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"spillway/internal/job"
)

// What the judge of upsets allows. It knows only the promises, and not how they are kept.
const (
	// takenOver is how long after a command a changed limit holds everywhere: a second, and the allowed lateness of calls that have their slots.
	takenOver = 1500 * time.Millisecond
	// recovered is how long after the end of a trouble calls continue.
	recovered = 5 * time.Second
	// unsaid is how long the only reason that `job` gives may be a wait for a slot: the shortest window, and the time of a look.
	unsaid = time.Second
	// lookEvery is how often the judge looks which process can call, and askEvery how often it asks why none does.
	lookEvery, askEvery = 100 * time.Millisecond, 500 * time.Millisecond
)

// upsetLimits are limits that hold together, as text with a space between. Empty: the file's.
type upsetLimits = string

// upsetForce is what may be in force from a moment on.
type upsetForce struct {
	from time.Duration
	sets []upsetLimits
}

// upsetMark is an event that may delay calls.
type upsetMark struct {
	at      time.Duration
	kind    string
	tail    time.Duration // of the data, that was lost
	noticed bool          // somebody was there since who could call, for long enough to find it
	apart   bool          // nobody could call when it happened, or not for long enough after it

	unsure bool                    // Redis can't tell how much it has lost: it took over from another one, or has an old file
	able   time.Duration           // when somebody could call last before it
	held   map[time.Duration]int64 // all was lost, also the calls of limits that were not among these
}

// upsetJudge judges the calls that were made, and the reasons why none were.
type upsetJudge struct {
	t     *upsetTrial
	calls []time.Duration
	force []upsetForce
	marks []upsetMark

	live      upsetLimits   // set by an operator, as he knows
	maybe     []upsetLimits // what else may hold: commands whose outcome nobody knows, or that Redis has forgotten; "" is the file's
	old       []upsetLimits // files that some process may not have given up
	paused    bool          // by an operator, as he knows
	forgot    bool          // Redis may have forgotten whether it is
	turned    time.Duration // when the pause began or ended
	ready     time.Duration // since when somebody can call; negative: nobody can
	able      time.Duration // when somebody could call last
	explained time.Duration // the last moment at which a wait had a reason
	asked     time.Duration // when it last asked
	wrong     []string
}

func (j *upsetJudge) find(format string, args ...any) {
	if len(j.wrong) < 3 {
		j.wrong = append(j.wrong, fmt.Sprintf(format, args...))
	}
	j.t.enough()
}

func (j *upsetJudge) mark(kind string, tail time.Duration) *upsetMark {
	j.marks = append(j.marks, upsetMark{at: j.t.since(), kind: kind, tail: tail, able: j.able})
	return &j.marks[len(j.marks)-1]
}

// notice marks the losses that a process can have found by now. A loss is charged when it is found, which is later than it happened if no process
// was there to find it. If Redis can't tell how much it lost, the charge is all that can have been used since a process was last there.
func (j *upsetJudge) notice(now time.Duration) {
	for i := range j.marks {
		m := &j.marks[i]
		if m.noticed {
			continue
		}
		m.apart = m.apart || m.at < j.ready
		if m.noticed = now-max(m.at, j.ready) >= recovered; !m.noticed || m.kind != "loss" {
			continue
		}
		if m.unsure {
			m.tail = max(m.tail, now-m.able)
		}
		if m.apart {
			m.at = now
		}
	}
}

// changed notes what may be in force from now on.
func (j *upsetJudge) changed() {
	sets := append([]upsetLimits{j.live}, j.maybe...)
	if slices.Contains(sets, "") {
		sets = append(sets, j.t.file)
		sets = append(sets, j.old...)
		sets = slices.DeleteFunc(sets, func(s upsetLimits) bool { return s == "" })
	}
	j.force = append(j.force, upsetForce{j.t.since(), sets})
}

// bounds returns the windows that hold at a moment, and how many calls each allows: the largest number of all limits in force since takenOver before.
func (j *upsetJudge) bounds(at time.Duration) map[time.Duration]int64 {
	var all map[time.Duration]int64
	for i, f := range slices.Backward(j.force) {
		for _, set := range f.sets {
			own := map[time.Duration]int64{}
			for _, l := range upsetParse(set) {
				own[l.Window] = l.N
			}
			if all == nil {
				all = own
				continue
			}
			for w, n := range all {
				if other, ok := own[w]; ok {
					all[w] = max(n, other)
				} else {
					delete(all, w)
				}
			}
		}
		if i == 0 || f.from <= at-takenOver {
			break
		}
	}
	return all
}

func upsetParse(text upsetLimits) (all []job.Limit) {
	for word := range strings.FieldsSeq(text) {
		l, err := job.ParseLimit(word)
		if err != nil {
			panic(err)
		}
		all = append(all, l)
	}
	return all
}

// called judges one more call.
func (j *upsetJudge) called(at time.Duration) {
	j.calls = append(j.calls, at)
	if j.paused && !j.forgot && at-j.turned > takenOver {
		j.find("a call at %s, though the gateway is paused", at)
	}
	for w, most := range j.bounds(at) {
		if n := j.within(at, w); n > most {
			j.find("at %s the call number %d within %s, the limit is %d", at, n, w, most)
		}
	}
}

// within counts the calls of the window that ends with that moment.
func (j *upsetJudge) within(at, window time.Duration) (n int64) {
	for _, c := range slices.Backward(j.calls) {
		if c <= at-window {
			break
		}
		n++
	}
	return n
}

func (j *upsetJudge) shortest() (time.Duration, int64) {
	w, n := time.Duration(math.MaxInt64), int64(1)
	for _, f := range j.force[len(j.force)-1].sets {
		for _, l := range upsetParse(f) {
			if l.Window < w {
				w, n = l.Window, l.N
			}
		}
	}
	return w, n
}

// look judges why there is no call, if there is none. able says that a process can call.
func (j *upsetJudge) look(able bool) {
	j.t.mu.Lock()
	from, idle := j.idle(able)
	j.t.mu.Unlock()
	if !idle {
		return
	}
	now, g := j.t.since(), j.t.gateway(j.t.file)
	j50 := job.Record{Job: job.Job{ID: "j0050", Gateway: g.Name, Cost: 1}, Generation: 1, State: job.Queued}
	why, err := WhyNot(context.Background(), j.t.eye.db.Client, g, j50)
	if err != nil {
		return // Redis has just gone away
	}
	j.t.mu.Lock()
	defer j.t.mu.Unlock()
	if j.honest(why, now) {
		j.explained = now
		return
	}
	window, _ := j.shortest()
	longest := max(window, soon) + unsaid
	if j.force[len(j.force)-1].from > from-window { // a slot that is given back when others keep the new limits already stays charged
		longest += window
	}
	if now-from > longest && now-j.ready > recovered {
		j.find("no call from %s to %s: job says %q", from, now, why)
	}
}

// idle reports whether there was no call for half of the shortest window although a process can call, and since when there is no reason for that.
func (j *upsetJudge) idle(able bool) (from time.Duration, idle bool) {
	now := j.t.since()
	if !able {
		j.ready = -1
		return 0, false
	}
	if j.ready < 0 {
		j.ready = now
	}
	j.able = now
	j.notice(now)
	from = j.ready
	if n := len(j.calls); n > 0 {
		from = max(from, j.calls[n-1])
	}
	if window, _ := j.shortest(); now-from <= window/2 || now-j.asked < askEvery {
		return 0, false
	}
	j.asked = now
	for _, m := range j.marks {
		from = max(from, m.at)
	}
	return max(from, j.explained), true
}

var (
	usedUp   = regexp.MustCompile(`^the limit (\S+) is used up until ([^ ,]+)`)
	noBefore = regexp.MustCompile(`^no call before ([^ ,]+), as `)
)

// honest reports whether a reason is a valid one, and true as far as the judge can know.
func (j *upsetJudge) honest(why string, now time.Duration) bool {
	if m := usedUp.FindStringSubmatch(why); m != nil {
		l, err := job.ParseLimit(m[1])
		return err == nil && j.used(l, now) >= l.N
	}
	if m := noBefore.FindStringSubmatch(why); m != nil {
		return j.waits(m[1], now)
	}
	switch {
	case strings.HasPrefix(why, "waiting for a slot"), strings.HasPrefix(why, "a worker has pulled it"), strings.HasPrefix(why, "no dispatcher"):
		return false
	case strings.HasPrefix(why, "the gateway is paused: Redis was restored"): // an operator's to settle: the sign of life is older than the data
		return slices.ContainsFunc(j.marks, func(m upsetMark) bool { return m.tail > 0 })
	case strings.HasPrefix(why, "the gateway is paused"):
		return j.paused || j.forgot || now-j.turned < 2*time.Second
	}
	return true
}

// used returns how much of a limit may count as used by the promises: by calls, and for each loss by the calls that can have been in the lost data and in
// the few seconds without a sign of life of dispatchers. The time for which Redis was away does not count, unless Redis can't tell it. If all was lost, the
// whole limit counts as used.
func (j *upsetJudge) used(l job.Limit, now time.Duration) int64 {
	shortest, n := j.shortest()
	units := j.within(now, l.Window+l.Window/10+2*time.Second) + l.N/10 + 2
	for _, m := range j.marks {
		switch {
		case m.at+min(m.tail, recovered) < now-l.Window:
		case m.held != nil: // all was lost
			units += l.N
		case m.kind == "loss":
			units += (int64((m.tail+6*time.Second)/shortest) + 2) * n
		default:
			units += 3 // slots that came to nobody
		}
	}
	return units
}

// waits reports whether there is a reason to wait until then: a window after a loss or a change of the clock, or a minute for new limits.
func (j *upsetJudge) waits(until string, now time.Duration) bool {
	t, err := time.Parse(time.RFC3339, until)
	if err != nil {
		return false
	}
	j.t.r.mu.Lock()
	left := time.Duration(t.UnixMicro()-j.t.r.now()) * time.Microsecond
	j.t.r.mu.Unlock()
	window, _ := j.shortest()
	for _, m := range j.marks {
		most := window*13/10 + 3*time.Second
		if m.kind == "limits" {
			most = max(most, 70*time.Second)
		}
		if now-m.at+left <= most+time.Second {
			return true
		}
	}
	return false
}
