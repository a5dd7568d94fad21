package dispatch

import (
	"context"
	"fmt"
	"time"

	"spillway/internal/access"
	"spillway/internal/config"
	"spillway/internal/gateway"
	"spillway/internal/job"
	"spillway/internal/outcome"
)

// lookup is how a gateway is asked what became of payments. The zero lookup: it is not.
type lookup struct {
	// Share is how much of the gateway's limits look-ups take at most while jobs wait, above 0 and up to 1.
	Share float64
	// Limits are those of look-ups alone; nil = none.
	Limits []job.Limit
	// Pages is how many pages of a list one look-up reads at most.
	Pages int

	doubted, accepted query
}

// lookups are how a gateway is asked, by the routes of its jobs. The empty name is for jobs that name none.
type lookups struct {
	// Share, Limits and Pages are as in lookup; all routes have the first two in common.
	Share  float64
	Limits []job.Limit
	Pages  int

	routes map[string]lookup
}

// newLookups returns how a gateway is asked; nil where it is not.
func newLookups(g config.Gateway, tokens *access.Keeper) (*lookups, error) {
	if !g.Asked() {
		return nil, nil
	}
	all := &lookups{routes: map[string]lookup{}}
	for name, as := range g.Ways() {
		l, err := newLookup(as, tokens)
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

// For returns how the gateway is asked for a job: the zero query where it can't be.
func (l *lookups) For(look job.Look) query { return l.routes[look.Job.Route].For(look.Accepted) }

// close lets go of idle connections. Look-ups under way finish.
func (l *lookups) close() {
	for _, one := range l.routes {
		one.close()
	}
}

// query is one way to ask. The zero query: there is none.
type query struct {
	// Send makes one request. Its answer may be as long as a page of a list.
	Send func(context.Context, job.LookRequest) job.Result
	// Judge says what the answer means.
	Judge func(outcome.LookInput) job.Finding
	// Schedule has the time from the end of the call to the first look-up, and from each to the next.
	Schedule []time.Duration

	close func()
}

// any says that there is such a way.
func (q query) any() bool { return q.Send != nil }

// For returns how the gateway is asked for a job that it has accepted, or of which nobody knows.
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

// newLookup returns how a gateway is asked; the zero lookup where its configuration does not say. tokens has the access tokens that no answer may show; nil = there are none.
func newLookup(g config.Gateway, tokens *access.Keeper) (l lookup, err error) {
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
	means := outcome.LookConfig{Matches: q.Matches, Reference: g.Reference, Key: g.Request.Key, OneKey: q.OneKey, Within: gateway.ClockMargin, Most: g.Hold.Max, Hide: hide}
	if s := q.Scan; s != nil {
		ask.Parameter = s.Parameter
		means.Scan = &outcome.Scan{Items: s.Items, Match: s.Match, Next: s.Next, Until: s.Until}
	}
	for _, r := range q.Answers {
		means.Rules = append(means.Rules, outcome.LookRule{Status: r.Status, Header: r.Header, Body: r.Body, Absent: r.Absent, Then: job.LookVerdict(r.Then), After: r.After, Reference: r.Reference})
	}
	looker, err := gateway.NewLooker(how, ask)
	if err != nil {
		return query{}, err
	}
	table, err := outcome.NewLookTable(means)
	return query{Send: looker.Look, Judge: table.Judge, Schedule: q.Schedule, close: looker.Close}, err
}

// lookMask takes out of the answers to look-ups what maskOf does, and the secrets of their own URLs.
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
