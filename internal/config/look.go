package config

import (
	"slices"
	"time"

	"spillway/internal/job"
)

// Lookup says how a gateway is asked what became of a payment.
type Lookup struct {
	// Doubted is how it is asked for jobs of which nobody knows whether they were charged. nil: it can't be, and they are parked.
	Doubted *Query
	// Accepted is how it is asked for jobs that it has accepted. nil: it can't be, and they are parked.
	Accepted *Query
	// Share is how much of the gateway's limits look-ups take at most while jobs wait, in percent; 1 to 100. Default 10.
	Share int64
	// Limits are those of look-ups alone. nil (default) = there are none.
	Limits []job.Limit
}

// For returns how the gateway is asked for a job, which it has accepted or of which nobody knows; nil where it can't be.
func (l *Lookup) For(accepted bool) *Query {
	switch {
	case l == nil:
		return nil
	case accepted:
		return l.Accepted
	}
	return l.Doubted
}

// Query is one way to ask.
type Query struct {
	// URL may hold {id}, {key}, {reference}, {first_call} and {payload.FIELD} behind its host. It may hold a secret. Empty only when Options.Secrets is off and a variable in it,
	// or in the request's, is not set.
	URL Secret
	// URLText is the URL as it stands in the file, without its password: to show.
	URLText string
	// Method is GET or POST. Default GET.
	Method string
	// Body of a POST is JSON, with the same places in its texts. Default {}.
	Body string
	// Schedule has the time from the end of the call to the first look-up, and from each to the next. Default 5s, 1m, 10m, 1h, 1d, 1d.
	Schedule []time.Duration
	// Scan walks a list. nil (default): an answer is about one payment.
	Scan *Scan
	// Matches holds dotted paths into the answer, or its item, and for each the payload's field, or job.OwnID, job.OwnKey or job.OwnReference, from which it must not differ.
	Matches map[string]string
	// Answers say what an answer means, in their order: the first that matches decides. No match: ask again later.
	Answers []LookRule
	// OneKey says that the answer can only be about the call with the job's present key.
	OneKey bool
}

// Pages is how many pages of a list are looked through at most; 1 where there is none, or none that says where it goes on.
func (q *Query) Pages() int {
	if q.Scan == nil || q.Scan.Next == "" {
		return 1
	}
	return q.Scan.Pages
}

// Scan says how a payment is found in a list.
type Scan struct {
	// Items is the dotted path of the list. Empty: the answer itself.
	Items string
	// Match holds dotted paths into an item, and what must be there, as Query.Matches.
	Match map[string]string
	// Next is the dotted path of what says where the list goes on. Empty (default): it has one page.
	Next string
	// Parameter is that of the URL's query which takes what Next says. Empty (default): Next says the whole address.
	Parameter string
	// Until is the dotted path, in an item, of the time at which it was made. Empty (default): the list ends where it says so.
	Until string
	// Pages is how many pages are looked through at most; 1 to 1000. Default 20.
	Pages int
}

// LookRule gives the answer to a look-up a meaning. All that is set must match.
type LookRule struct {
	// Status is the HTTP status, 100 to 499, or 1 to 4 for all that begin with that digit. 0 = 2xx.
	Status int
	// Header holds names and the value wanted of each, or a regular expression between slashes.
	Header map[string]string
	// Body holds dotted paths and the value wanted there, as those of a Rule; into the item, where there is a Scan.
	Body map[string]string
	// Absent is for the end of a list that has no such payment.
	Absent bool
	// Then is one of job.LookVerdicts.
	Then string
	// After is how long after the call a not_done is believed at the earliest.
	After time.Duration
	// Reference is the dotted path of the gateway's own reference in such an answer. Empty = Gateway.Reference.
	Reference string
}

// defaultSchedule is that of look-ups.
func defaultSchedule() []time.Duration {
	return []time.Duration{5 * time.Second, time.Minute, 10 * time.Minute, time.Hour, job.Day, job.Day}
}

const (
	usualShare = 10 // percent
	usualPages = 20
	mostPages  = 1000
)

// lookup reads how a gateway is asked; nil where the file says off.
func (r *reader) lookup(n node) *Lookup {
	if _, scalar := raw(n); scalar {
		var word string
		r.word(&word, checkLookupWord)(n)
		return nil
	}
	l := &Lookup{Share: usualShare}
	main, accepted := &Query{Method: "GET", Schedule: defaultSchedule()}, node{}
	fields := append(r.query(n, main),
		field{"share", r.percent(&l.Share)},
		field{"limits", r.limits(&l.Limits)},
		field{"accepted", func(n node) { accepted = n }})
	r.object(n, fields...)
	if r.written(join(n.path, "url")) {
		l.Doubted, l.Accepted = main, main
	}
	if accepted.path != "" {
		l.Accepted = r.accepted(accepted, main)
	}
	if l.Doubted == nil && l.Accepted == nil {
		r.missing(join(n.path, "url"), "write where the gateway is asked, like https://api.example.com/v1/payments?reference={id}")
	}
	return l
}

func checkLookupWord(text string) string {
	if text == "off" {
		return ""
	}
	return "is not a look-up: write off, or its keys, like {url: /v1/payments/{reference}, answers: […]}"
}

// accepted reads how it is asked for accepted jobs. What is not written is as for the others; but what goes with a url goes with its own.
func (r *reader) accepted(n node, main *Query) *Query {
	q := *main
	q.Schedule, q.Answers, q.Matches = nil, nil, nil
	if isMapping(n.tree) && valueOf(n.tree, "url") != nil {
		q = Query{Method: "GET"}
	}
	r.object(n, r.query(n, &q)...)
	if q.Schedule == nil {
		q.Schedule = main.Schedule
	}
	if q.Matches == nil {
		q.Matches = main.Matches
	}
	if q.Answers == nil {
		q.Answers = slices.Clone(main.Answers)
		if q.Scan == nil {
			q.Answers = slices.DeleteFunc(q.Answers, func(rule LookRule) bool { return rule.Absent })
		}
	}
	if !r.written(join(n.path, "url")) && q.URL == "" && q.URLText == "" {
		r.missing(join(n.path, "url"), "write where the gateway is asked for accepted jobs, like https://api.example.com/v1/payments/{reference}")
	}
	return &q
}

// query returns the keys of one way to ask.
func (r *reader) query(n node, q *Query) []field {
	url := func(n node) { n.optional = !r.opt.Secrets; r.lookURL(n, q) }
	return []field{
		{"url", url},
		{"method", r.word(&q.Method, choice("a method of look-ups", "GET", "POST"))},
		{"body", r.word(&q.Body, checkLookBody)},
		{"schedule", func(n node) { q.Schedule = r.schedule(n) }},
		{"scan", func(n node) { q.Scan = r.scan(n) }},
		{"matches", func(n node) { q.Matches = r.lookMatches(n) }},
		{"answers", func(n node) { q.Answers = r.lookRules(n) }},
	}
}

// lookURL reads a whole URL, or one on the request's server: the check makes that whole.
func (r *reader) lookURL(n node, q *Query) {
	var text string
	r.word(&text, checkLookURL)(n)
	if raw, ok := r.filled(n); ok {
		q.URLText = RedactURL(raw)
	}
	q.URL = Secret(text)
}

const (
	shortestLook  = 100 * time.Millisecond
	longestLook   = 90 * job.Day
	mostLookTimes = 50
)

func (r *reader) schedule(n node) (all []time.Duration) {
	const hint = "write at least one time, like [5s, 1m, 10m, 1h]"
	items := r.items(n, hint)
	if len(items) > mostLookTimes {
		r.fault(n.path, "%d look-ups are too many: give at most %d", len(items), mostLookTimes)
	}
	for _, item := range items {
		var one time.Duration
		r.duration(&one, shortestLook)(item)
		if one > longestLook {
			r.wrong(item, "is too long: give at most "+job.FormatDuration(longestLook))
		}
		all = append(all, one)
	}
	return all
}

func (r *reader) scan(n node) *Scan {
	s, pages := &Scan{}, int64(usualPages)
	r.object(n,
		field{"items", r.word(&s.Items, checkReference)},
		field{"match", func(n node) { s.Match = r.lookMatches(n) }},
		field{"next", r.word(&s.Next, checkField)},
		field{"parameter", r.word(&s.Parameter, checkKeyName)},
		field{"until", r.word(&s.Until, checkField)},
		field{"pages", r.count(&pages, 1, mostPages)},
	)
	s.Pages = int(pages)
	if !r.written(join(n.path, "match")) {
		r.missing(join(n.path, "match"), `write by which field of an item the job's payment is found, like {metadata.job_id: "{id}"}`)
	}
	if s.Parameter != "" && s.Next == "" {
		r.clash(join(n.path, "parameter"), join(n.path, "next"), "nothing says what the parameter is to take: write next, the field that has it")
	}
	return s
}

// lookMatches reads fields of an answer, each with what the job has there.
func (r *reader) lookMatches(n node) map[string]string {
	all := map[string]string{}
	for _, e := range r.named(n, "compares", `write a field of the answer's body and what the job has there, like {reference: "{id}"}`, checkField) {
		text, ok := r.text(e.value)
		switch {
		case !ok:
		case !slices.Contains(owns, text) && checkField(text) != "":
			r.fault(e.value.path, `%q is not a field of the payload: write its name, with dots between the levels, or "{id}", "{key}" or "{reference}"`, text)
		default:
			all[e.key] = text
		}
	}
	return all
}

var owns = []string{job.OwnID, job.OwnKey, job.OwnReference}

// lookRules reads a list of rules; one with lists of statuses or values is a rule for each of their combinations.
func (r *reader) lookRules(n node) (all []LookRule) {
	for _, item := range r.items(n, "write at least one rule, like {body: {status: paid}, then: done}") {
		all = append(all, r.lookRule(item)...)
	}
	return all
}

func (r *reader) lookRule(n node) (all []LookRule) {
	one := LookRule{}
	statuses, headers, fields := []int{0}, []map[string]string{nil}, []map[string]string{nil}
	r.object(n,
		field{"status", func(n node) { statuses = r.lookStatuses(n) }},
		field{"header", func(n node) { headers = r.wantedHeaders(n) }},
		field{"body", func(n node) { fields = r.wantedFields(n) }},
		field{"absent", r.truth(&one.Absent)},
		field{"then", r.word(&one.Then, choice("a verdict of look-ups", job.LookVerdicts()...))},
		field{"after", r.duration(&one.After, 0)},
		field{"reference", r.word(&one.Reference, checkReference)},
	)
	if r.faulted[n.path] {
		return nil
	}
	r.checkLookRule(n.path, one)
	if len(statuses)*len(headers)*len(fields) > mostOfRule {
		r.fault(n.path, "its lists have more than %d combinations: write several rules, or regular expressions between slashes", mostOfRule)
		return nil
	}
	for _, one.Status = range statuses {
		for _, one.Header = range headers {
			for _, one.Body = range fields {
				all = append(all, one)
			}
		}
	}
	return all
}

// lookStatuses reads the statuses that can settle anything: others say that the look-up itself failed.
func (r *reader) lookStatuses(n node) (all []int) {
	for _, status := range r.statuses(n) {
		if status == 5 || status >= 500 || status == 429 {
			r.fault(n.path, "a 429 or 5xx says nothing of the payment, and is asked again in any case: take it out")
			return nil
		}
		all = append(all, status)
	}
	return all
}
