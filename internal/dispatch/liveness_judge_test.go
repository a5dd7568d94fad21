package dispatch

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/record"
)

const (
	stretch = 5 * time.Second // what is looked at for the use of the limit
	step    = stretch / 10
	// used is the least share of the limit that is used while there is no trouble. Jobs that were never called get half of it.
	used = 0.95
	// late is how much longer a job may wait than computed: a call that fails, a back-off that is rounded, the move to the queue.
	late = 2 * time.Second
)

// ended is the result of one run.
type ended struct {
	*endpoint
	s        schedule
	attempts []time.Duration // the longest back-off after each failure
	troubled []trouble       // with what follows each, and none of them touches another
	parked   map[string]job.Reason
	until    time.Duration
}

// judge returns what is wrong with the run.
func (r *trial) judge(s record.Standing) []string {
	g := r.cfg.Gateways[0]
	e := ended{endpoint: r.gw, s: r.s, until: time.Since(r.gw.began), parked: map[string]job.Reason{}}
	e.troubled = merged(slices.Concat(r.s.lasting(), r.gw.held.spans, r.gw.hopeless(e.until)), g.Circuit.Max+time.Second)
	for range g.Retry.Attempts {
		e.attempts = append(e.attempts, min(g.Retry.First<<len(e.attempts), g.Retry.Max))
	}
	for rec, err := range Store(r.v.db.Client, g).List(r.t.Context(), deadletter.Filter{Reasons: job.Reasons()}) {
		r.must(err)
		e.parked[rec.Job.ID] = rec.Reason
	}
	var wrong []string
	if left := s.Queued + s.InFlight + s.Retrying + s.Scheduled; left > 0 {
		wrong = append(wrong, fmt.Sprintf("%d jobs still wait after %s: %d queued, %d in a back-off", left, e.until, s.Queued, s.Retrying))
	}
	for _, check := range []func() []string{e.limitHeld, e.finished, e.gatewayUsed, e.waited} {
		wrong = append(wrong, shortened(check())...)
	}
	if len(wrong) > 0 {
		wrong = append(wrong, e.timeline())
	}
	return wrong
}

// timeline returns what the gateway was called for, for each tenth of a run, or each 5 s if that is longer.
func (e *ended) timeline() string {
	var text strings.Builder
	text.WriteString("calls, of jobs never called before, answers:")
	span := max(e.until/60, 5*time.Second).Truncate(time.Second)
	for from := time.Duration(0); from < e.until; from += span {
		all, first, answers := e.count(from, from+span)
		calm := ""
		if e.calm(from, from+span) == 0 {
			calm = " (trouble)"
		}
		fmt.Fprintf(&text, "\n  %6s %4d %4d %v%s", from, all, first, answers, calm)
	}
	return text.String()
}

// shortened keeps the first faults: thousands of jobs may wait for the same reason.
func shortened(all []string) []string {
	const most = 4
	if len(all) <= most {
		return all
	}
	return append(all[:most:most], fmt.Sprintf("… and %d more", len(all)-most))
}

// merged returns spans without overlaps, each extended by after.
func merged(all []trouble, after time.Duration) (out []trouble) {
	slices.SortFunc(all, func(a, b trouble) int { return cmp.Compare(a.from, b.from) })
	for _, t := range all {
		t.to += after
		if n := len(out); n > 0 && t.from <= out[n-1].to {
			out[n-1].to = max(out[n-1].to, t.to)
			continue
		}
		out = append(out, t)
	}
	return out
}

// lasting returns the troubles of a schedule, as the program can know them: a call without an answer is known only after its time-out.
func (s schedule) lasting() []trouble {
	all := slices.Clone(s.troubles)
	for i, t := range all {
		if t.kind == silent {
			all[i].to += patient
		}
	}
	return all
}

// hopeless returns the times in which all waiting jobs are bad: such a gateway looks like one that is down.
func (e *endpoint) hopeless(until time.Duration) (spans []trouble) {
	var hopes []trouble // from when to when there is a good job
	for _, j := range e.jobs {
		if j.fate.bad() || j.saved {
			continue
		}
		end := until
		if n := len(j.calls); n > 0 && e.calls[j.calls[n-1]].answer == "200" {
			end = e.calls[j.calls[n-1]].at
		}
		hopes = append(hopes, trouble{"", j.accepted, end})
	}
	from := time.Duration(0)
	for _, h := range merged(hopes, 0) {
		spans = append(spans, trouble{"bad jobs alone", from, h.from})
		from = h.to
	}
	return append(spans, trouble{"bad jobs alone", from, until})
}

// calm returns how much of a span is without trouble.
func (e *ended) calm(from, to time.Duration) time.Duration {
	rest := to - from
	for _, t := range e.troubled {
		rest -= max(0, min(t.to, to)-max(t.from, from))
	}
	return rest
}

// limitHeld looks for windows with too many calls.
func (e *ended) limitHeld() (wrong []string) {
	var at []time.Duration
	for _, c := range e.calls {
		if c.answer != "refused" {
			at = append(at, c.at)
		}
	}
	slices.Sort(at)
	for i := range at {
		if n := int64(i) - e.s.limit; n >= 0 && at[i]-at[n] < time.Second {
			wrong = append(wrong, fmt.Sprintf("more than %d calls in the second before %s", e.s.limit, at[i]))
		}
	}
	return wrong
}

// finished looks for jobs with a wrong end.
func (e *ended) finished() (wrong []string) {
	for _, id := range e.order {
		j, why := e.jobs[id], e.parked[id]
		ok := false
		switch {
		case j.charged > 1:
		case j.fate.bad():
			ok = j.charged == 0 && (why == job.Exhausted || why == job.Refused || why == job.UnknownOutcome)
		case j.saved:
			ok = why == job.Exhausted || why == job.UnknownOutcome || why == "" && j.charged == 1
		default:
			ok = why == "" && j.charged == 1
		}
		if !ok {
			wrong = append(wrong, fmt.Sprintf("%s, %s: charged %d times, parked as %q, called %d times%s", id, e.fate(j), j.charged, why, len(j.calls), e.history(j)))
		}
	}
	return wrong
}

func (e *ended) fate(j *payee) string {
	if j.saved {
		return string(j.fate) + ", a 500 saved under its key"
	}
	return string(j.fate)
}

// history returns the last calls of a job.
func (e *ended) history(j *payee) (text string) {
	for _, n := range j.calls[max(0, len(j.calls)-3):] {
		text += fmt.Sprintf("; at %s: %s", e.calls[n].at.Round(time.Millisecond), e.calls[n].answer)
	}
	return text
}

// firstCalled returns when a job was called first, or never.
func (e *ended) firstCalled(j *payee) time.Duration {
	if len(j.calls) == 0 {
		return math.MaxInt64
	}
	return e.calls[j.calls[0]].at
}

// gatewayUsed looks for times without trouble in which the gateway is called too rarely, or jobs that were never called get too
// few of the calls, although some wait all the time.
func (e *ended) gatewayUsed() (wrong []string) {
	waits := make([]bool, int(e.until/step)+1) // during the stretch that begins then
	for _, j := range e.jobs {
		last := min(e.firstCalled(j), e.until) - stretch
		for i := int((j.accepted + step - 1) / step); i < len(waits) && time.Duration(i)*step <= last; i++ {
			waits[i] = true
		}
	}
	least := used*float64(e.s.limit)*stretch.Seconds() - 1
	for i := range waits {
		from := time.Duration(i) * step
		to := from + stretch
		if !waits[i] || e.calm(from, to) < stretch {
			continue
		}
		all, first, answers := e.count(from, to)
		if float64(all) < least || float64(first) < least/2 {
			wrong = append(wrong, fmt.Sprintf("%s to %s: %d calls, %d of them of jobs that were never called, want %.0f and %.0f; answers %v", from, to, all,
				first, least, least/2, answers))
		}
	}
	return wrong
}

// count counts the used slots of a span, those of them for jobs that were never called, and the answers.
func (e *ended) count(from, to time.Duration) (all, first int, answers map[string]int) {
	answers = map[string]int{}
	for _, c := range e.calls {
		if c.at < from || c.at >= to {
			continue
		}
		all++
		answers[c.answer]++
		if c.first {
			first++
		}
	}
	return all, first, answers
}

// waited looks for good jobs that wait longer than their place in the queue, the limit, and the troubles and their consequences explain.
func (e *ended) waited() (wrong []string) {
	place := func(n int) time.Duration {
		return time.Duration(float64(n+1) / (used / 2 * float64(e.s.limit)) * float64(time.Second))
	}
	for _, id := range e.order {
		j := e.jobs[id]
		if j.fate.bad() || j.saved {
			continue
		}
		from, most, what := j.accepted, place(j.line)+late, fmt.Sprintf("%d before it in line", j.line)
		for n := 0; n <= len(j.calls) && (n == 0 || e.calls[j.calls[n-1]].answer != "200"); n++ {
			to := e.until
			if n < len(j.calls) {
				to = e.calls[j.calls[n]].at
			}
			if n > 0 {
				line := e.again(from, to)
				most = place(line) + late + e.attempts[min(n-1, len(e.attempts)-1)]
				what = fmt.Sprintf("%d others were called again", line)
			}
			if waited := e.calm(from, to); waited > most {
				wrong = append(wrong, fmt.Sprintf("%s, %s, waited %s from %s on, without %s of trouble, want %s at most: %s; call %d%s", id, j.fate,
					waited.Round(time.Millisecond), from.Round(time.Millisecond), (to-from-waited).Round(time.Millisecond), most.Round(time.Millisecond), what, n+1, e.history(j)))
				break
			}
			from = to
		}
	}
	return wrong
}

// again counts the jobs that were called before a span's end, and are called again, or wait for that, after its beginning.
func (e *ended) again(from, to time.Duration) (n int) {
	for id, j := range e.jobs {
		if e.firstCalled(j) > to {
			continue
		}
		last := e.calls[j.calls[len(j.calls)-1]]
		if last.at > from || last.answer != "200" && e.parked[id] == "" {
			n++
		}
	}
	return n
}
