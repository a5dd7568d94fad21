package dispatch

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/job"
	"spillway/internal/ledger"
)

// tell tells the pacer what a look-up says about the gateway. A request to wait applies to all calls, unless
// look-ups have limits of their own. Other trouble of a look-up says nothing about calls: counted as an outage,
// it would cost jobs attempts. A look-up sent as the probe after a hold ends the hold if it was answered.
func (l *lookUp) tell(ctx context.Context, res job.Result, f job.Finding) {
	waits := f.Limited || f.Wait > 0 && f.Status == http.StatusServiceUnavailable
	fail := job.Failure{Kind: job.Wait, For: f.Wait, Job: l.look.Job.ID, Slot: l.slot.At, Took: res.Took, Written: res.Stage != job.NotSent, Why: "a look-up: " + said(res)}
	switch {
	case waits && len(l.s.asks.Limits) == 0:
	case l.slot.Probe && (f.Verdict != job.LookLater || res.Status/100 == 2) && l.pacer.Succeeded(ctx, l.slot, false):
		l.u.log.Info("circuit closed: the gateway answers again", "job", l.look.Job.ID, "status", res.Status)
		return
	default:
		return
	}
	out, err := l.pacer.Failed(ctx, fail)
	switch {
	case err != nil:
		l.u.complain(ctx, "trouble of a look-up not counted", err)
	case out.Opened:
		l.u.log.Warn("the gateway asks to wait: held", "job", l.look.Job.ID, "answer", fail.Why, "held", out.Held)
	}
}

// said describes the result of a look-up without quoting the answer.
func said(res job.Result) string {
	if res.Status > 0 {
		return fmt.Sprintf("HTTP %d", res.Status)
	}
	return "no answer"
}

// end records the result of the look-up and when the next one is due.
func (l *lookUp) end(ctx context.Context, f job.Finding, made bool) {
	schedule := l.s.asks.For(l.look).Schedule
	e := ledger.LookEnd{Finding: f, At: l.at, Took: l.took, Next: -1, Unmade: !made}
	if len(schedule) > 0 {
		e.Least = schedule[0]
	}
	switch after := l.look.Made + 1; {
	case !made:
		e.Next = 0
	case f.Failed:
		e.Next = max(backOff(l.look.Failed), f.Wait)
		if f.Limited && len(l.s.asks.Limits) > 0 {
			e.Hold = e.Next
		}
	case after < len(schedule):
		e.Next = schedule[after]
	}
	came := l.write(ctx, e)
	if !made || came == "" {
		return
	}
	verdict := string(f.Verdict)
	if f.Failed {
		verdict = verdictFailed
	}
	l.u.tools.looking.made(l.u.name, verdict)
	switch came {
	case ledger.AfterAsking, ledger.AfterGone:
		l.u.log.Debug("look-up", "job", l.look.Job.ID, "verdict", verdict, "status", f.Status, "next", came)
	case ledger.AfterQueued, ledger.AfterDone:
		l.u.log.Info("look-up", "job", l.look.Job.ID, "verdict", verdict, "status", f.Status, "next", came)
	default:
		l.s.worker.Parked(l.look.Job.ID, job.Reason(came))
	}
}

// backOff returns the back-off after so many failed look-ups.
func backOff(failed int) time.Duration {
	const most = 10 // doublings: more than lastRetry
	return min(firstRetry<<min(failed, most), lastRetry)
}

// write records the end of the look-up. It retries until its claim has expired; then the look-up is made again.
// It returns what became of the job; empty if unknown.
func (l *lookUp) write(ctx context.Context, e ledger.LookEnd) string {
	for wait := firstWrite; ; wait = min(2*wait, lastWrite) {
		came, err := l.s.books.EndLook(ctx, l.look, e)
		if err == nil {
			return came
		}
		l.u.complain(ctx, "a look-up's answer not written down, trying again", err)
		if time.Now().Add(wait).After(l.until) || !await(l.u.ctx, wait) {
			return ""
		}
	}
}

const (
	firstWrite = 50 * time.Millisecond
	lastWrite  = 2 * time.Second
)

// verdictFailed is the metrics' name for a failed look-up.
const verdictFailed = "failed"

// lookMetrics counts look-ups.
type lookMetrics struct{ looks *prometheus.CounterVec }

func newLookMetrics(reg prometheus.Registerer) lookMetrics {
	m := lookMetrics{prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_lookups_total",
		Help: "Look-ups of pending jobs by what they said; failed: they said nothing."}, []string{"gateway", "verdict"})}
	if reg != nil {
		reg.MustRegister(m.looks)
	}
	return m
}

// begin sets the counts of a gateway to zero.
func (m lookMetrics) begin(gateway string) {
	for _, v := range job.LookVerdicts() {
		m.looks.WithLabelValues(gateway, string(v))
	}
	m.looks.WithLabelValues(gateway, verdictFailed)
}

func (m lookMetrics) made(gateway, verdict string) { m.looks.WithLabelValues(gateway, verdict).Inc() }

func (m lookMetrics) forget(gateway string) {
	m.looks.DeletePartialMatch(prometheus.Labels{"gateway": gateway})
}
