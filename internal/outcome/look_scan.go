package outcome

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"spillway/internal/job"
)

// scan searches a page of a list for the job's payment.
func (a *lookAnswer) scan(f *job.Finding, doc any) {
	s := a.t.Scan
	if missing := a.unknown(); missing != "" {
		f.Error = "the list is searched for " + missing + ", and the job has none"
		return
	}
	items, ok := itemsOf(doc, s.Items)
	if !ok {
		f.Error = a.line.why() + ": the answer has no list at " + s.Items
		return
	}
	found := false
	for _, item := range items {
		if !a.ours(item) {
			continue
		}
		one := a.about(job.Finding{Verdict: job.LookLater, Status: f.Status}, item, func() string { return a.said(item) })
		if !found || weight(one.Verdict) > weight(f.Verdict) {
			*f = one
		}
		found = true
	}
	if found {
		return
	}
	if f.Page = a.next(doc); f.Page != "" && !a.past(items) {
		f.Error = "the payment is not in the first pages of the list"
		return
	}
	f.Page, f.Error = "", a.line.why()+": the list has no payment of this job"
	if rule, ok := a.rule(doc, true); ok {
		f.Verdict, f.After = rule.Then, rule.After
	}
}

// weight orders the verdicts of several payments of one job: a charged one decides, and an open one prevents
// any other decision.
func weight(v job.LookVerdict) int {
	return slices.Index([]job.LookVerdict{job.LookNotDone, job.LookRefused, job.LookLater, job.LookDone}, v)
}

func itemsOf(doc any, path string) ([]any, bool) {
	if path != "" {
		doc, _ = follow(doc, path)
	}
	items, ok := doc.([]any)
	return items, ok
}

// unknown returns a value that the search needs and the job lacks; empty if it has all.
func (a *lookAnswer) unknown() string {
	for _, path := range slices.Sorted(maps.Keys(a.t.Scan.Match)) {
		if field := a.t.Scan.Match[path]; textOf(a.own(field)) == "" {
			return field
		}
	}
	return ""
}

// ours reports whether an item of a list is the job's payment.
func (a *lookAnswer) ours(item any) bool {
	for path, field := range a.t.Scan.Match {
		theirs, _ := follow(item, path)
		if mine, _ := a.is(field, theirs); !mine || textOf(theirs) == "" {
			return false
		}
	}
	return true
}

// next returns a page's reference to the next one; empty if it is the last.
func (a *lookAnswer) next(doc any) string {
	if a.t.Scan.Next == "" {
		return ""
	}
	v, _ := follow(doc, a.t.Scan.Next)
	if _, word := v.(bool); word {
		return ""
	}
	return textOf(v)
}

// past reports whether a page, with the newest first, reaches back before the job's first call.
func (a *lookAnswer) past(items []any) bool {
	if a.t.Scan.Until == "" || a.in.Look.First.IsZero() || len(items) < 2 {
		return false
	}
	var last time.Time
	for i, item := range items {
		text, _ := lookUp(item, a.t.Scan.Until)
		made, err := time.Parse(time.RFC3339, text)
		if err != nil || i > 0 && made.After(last) {
			return false
		}
		last = made
	}
	return last.Before(a.in.Look.First.Add(-a.t.Within))
}

// said returns the status and the beginning of an item. The rest of the list is about other people's payments.
func (a *lookAnswer) said(item any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(item) != nil {
		return a.line.why()
	}
	one := answer{in: a.line.in}
	one.in.Result.Body = []byte(b.String())
	return one.line()
}
