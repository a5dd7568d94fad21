package dispatch

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/access"
	"spillway/internal/config"
	"spillway/internal/gateway"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/outcome"
)

// lookup is how to make look-ups at a gateway. The zero lookup: not at all.
type lookup struct {
	// Share is the largest share of the gateway's limits that look-ups use while jobs wait, above 0 and up to
	// 1.
	Share float64
	// Limits are limits on look-ups only; nil = none.
	Limits []job.Limit
	// Pages is the most pages of a list that one look-up reads.
	Pages int

	doubted, accepted query
}

// lookups holds the lookup for each route. The empty name is for jobs that name none.
type lookups struct {
	// Share, Limits and Pages are as in lookup. The first two are the same for all routes.
	Share  float64
	Limits []job.Limit
	Pages  int

	routes map[string]lookup
}

// newLookups returns how to make look-ups at a gateway; nil if it has none.
func newLookups(g config.Gateway, tokens *access.Keeper, dial dialer) (*lookups, error) {
	if !g.Asked() {
		return nil, nil
	}
	all := &lookups{routes: map[string]lookup{}}
	for name, as := range g.Ways() {
		l, err := newLookup(as, tokens, dial)
		if err != nil {
			return nil, err
		}
		if as.Lookup != nil {
			all.Share, all.Limits, all.Pages = l.Share, l.Limits, max(all.Pages, l.Pages)
		}
		all.routes[name] = l
	}
	return all, nil
}

// has returns an error if the configuration lacks a route. The next file may have it, or another process, so a
// job of it is not left to a person.
func (l *lookups) has(route string) error {
	if _, ok := l.routes[route]; !ok && route != "" {
		return fmt.Errorf("%s%q at this gateway: put it back there", job.Unrouted, route)
	}
	return nil
}

// For returns the query for a job: the zero query if there is none.
func (l *lookups) For(look job.Look) query { return l.routes[look.Job.Route].For(look.Accepted) }

// close closes idle connections. Look-ups in flight finish.
func (l *lookups) close() {
	for _, one := range l.routes {
		one.close()
	}
}

// query is one kind of look-up. The zero query: none.
type query struct {
	// Send makes one request. Its answer may be as long as one page of a list.
	Send func(context.Context, job.LookRequest) job.Result
	// Judge says what the answer means.
	Judge func(outcome.LookInput) job.Finding
	// Schedule is the time from the end of the call to the first look-up, and from each to the next.
	Schedule []time.Duration

	close func()
}

// any reports whether there is such a query.
func (q query) any() bool { return q.Send != nil }

// For returns the query for a job that the gateway accepted, or whose outcome is unknown.
func (l lookup) For(accepted bool) query {
	if accepted {
		return l.accepted
	}
	return l.doubted
}

func (l lookup) close() {
	for _, q := range []query{l.doubted, l.accepted} {
		if q.close != nil {
			q.close()
		}
	}
}

// newLookup returns how to make look-ups at a gateway; the zero lookup if none are configured. tokens are the
// access tokens to mask in answers; nil = none.
func newLookup(g config.Gateway, tokens *access.Keeper, dial dialer) (l lookup, err error) {
	if g.Lookup == nil {
		return lookup{}, nil
	}
	hide := lookMask(g).with(tokens)
	const percent = 100
	l = lookup{Share: float64(g.Lookup.Share) / percent, Limits: g.Lookup.Limits, Pages: 1}
	how, err := callConfig(g)
	if err != nil {
		return lookup{}, err
	}
	how.Dial = dial
	for accepted, to := range map[bool]*query{false: &l.doubted, true: &l.accepted} {
		q := g.Lookup.For(accepted)
		if q == nil {
			continue
		}
		if *to, err = newQuery(g, how, *q, hide); err != nil {
			return lookup{}, fmt.Errorf("lookup: %w", err)
		}
		l.Pages = max(l.Pages, q.Pages())
	}
	return l, nil
}

func newQuery(g config.Gateway, how gateway.Config, q config.Query, hide func([]byte) []byte) (query, error) {
	ask := gateway.LookConfig{URL: q.URL.Reveal(), Method: q.Method, Body: q.Body}
	means := outcome.LookConfig{Matches: q.Matches, Reference: g.Reference, Key: g.Request.Key, OneKey: q.OneKey, ByID: q.ByID, Rules: q.Answers, Scan: q.Scan, Within: gateway.ClockMargin, Most: g.Hold.Max, Hide: hide}
	if s := q.Scan; s != nil {
		ask.Parameter = s.Parameter
	}
	looker, err := gateway.NewLooker(how, ask)
	if err != nil {
		return query{}, err
	}
	table, err := outcome.NewLookTable(means)
	return query{Send: looker.Look, Judge: table.Judge, Schedule: q.Schedule, close: looker.Close}, err
}

// lookMask masks in answers to look-ups what maskOf does, and the secrets of the look-ups' own URLs.
func lookMask(g config.Gateway) mask {
	m := maskOf(g)
	all := map[string]bool{}
	for _, accepted := range []bool{false, true} {
		if q := g.Lookup.For(accepted); q != nil {
			inURL(q.URL.Reveal(), all)
		}
	}
	for text := range all {
		m.add(text)
	}
	return m
}

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
		l.u.complain(ctx, "a look-up's answer not recorded, trying again", err)
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

// asks returns when the first look-up is made after a call in doubt, for any route: the earliest time of all. A
// job whose route has no look-up is parked then.
func asks(g config.Gateway) (a job.Asks) {
	for _, as := range g.Ways() {
		of := asksOf(as)
		a.Unknown, a.Accepted = sooner(a.Unknown, of.Unknown), sooner(a.Accepted, of.Accepted)
	}
	return a
}

// sooner returns the shorter of two times; zero means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// asksOf is asks for the jobs of one route.
func asksOf(as config.Gateway) (a job.Asks) {
	for accepted, first := range map[bool]*time.Duration{false: &a.Unknown, true: &a.Accepted} {
		if q := as.Lookup.For(accepted); q != nil {
			*first = max(q.Schedule[0], time.Microsecond)
		}
	}
	return a
}

// routeAsks is asksOf for each route, by name; nil if the gateway has none.
func routeAsks(g config.Gateway) map[string]job.Asks { return byRoute(g, asksOf) }
