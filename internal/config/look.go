package config

import (
	"slices"
	"time"

	"spillway/internal/job"
)

// Lookup says how to look up payments at a gateway.
type Lookup struct {
	// Doubted is the query for jobs whose outcome is unknown. nil: none, and they are parked.
	Doubted *Query
	// Accepted is the query for jobs that the gateway has accepted. nil: none, and they are parked.
	Accepted *Query
	// Share is the largest share of the gateway's limits that look-ups use while jobs wait, in percent; 1 to
	// 100. Default 10.
	Share int64
	// Limits are limits on look-ups only. nil (default) = none.
	Limits []job.Limit
}

// For returns the query for a job that the gateway accepted, or whose outcome is unknown; nil if there is none.
func (l *Lookup) For(accepted bool) *Query {
	switch {
	case l == nil:
		return nil
	case accepted:
		return l.Accepted
	}
	return l.Doubted
}

// Query is one kind of look-up.
type Query struct {
	// URL may contain {id}, {key}, {reference}, {first_call} and {payload.FIELD} after its host. It may contain
	// a secret. It is empty only if Options.Secrets is off and a variable in it, or in the request's, is not
	// set.
	URL Secret
	// URLText is the URL as in the file, without its password, for display.
	URLText string
	// Method is GET or POST. Default GET.
	Method string
	// Body is the JSON body of a POST, with the same placeholders in its strings. Default {}.
	Body string
	// Schedule is the time from the end of the call to the first look-up, and from each to the next. Default
	// 5s, 1m, 10m, 1h, 1d, 1d.
	Schedule []time.Duration
	// Scan searches a list. nil (default): an answer is about one payment.
	Scan *job.Scan
	// Matches maps dotted paths in the answer or its item to the payload field, or job.OwnID, job.OwnKey or
	// job.OwnReference, of the same value.
	Matches map[string]string
	// Answers are rules for the meaning of an answer: the first that matches decides. If none matches, ask
	// again later.
	Answers []job.LookRule
	// OneKey says that the answer can only be about the call with the job's current key.
	OneKey bool
	// ByID says that the payment is found by the job's id alone, which calls carry in the payload, if at all.
	ByID bool
}

// Pages returns how many pages of a list are searched at most; 1 if there is no list, or only one page.
func (q *Query) Pages() int {
	if q.Scan == nil || q.Scan.Next == "" {
		return 1
	}
	return q.Scan.Pages
}

// defaultSchedule returns the default schedule of look-ups.
func defaultSchedule() []time.Duration {
	return []time.Duration{5 * time.Second, time.Minute, 10 * time.Minute, time.Hour, job.Day, job.Day}
}

const (
	usualShare = 10 // percent
	usualPages = 20
	mostPages  = 1000
)

// lookup reads how to make look-ups; nil if the file says off.
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

// accepted reads the query for accepted jobs. It inherits from the main query, but the keys that belong to a
// url are inherited only with the url.
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
			q.Answers = slices.DeleteFunc(q.Answers, func(rule job.LookRule) bool { return rule.Absent })
		}
	}
	if !r.written(join(n.path, "url")) && q.URL == "" && q.URLText == "" {
		r.missing(join(n.path, "url"), "write where the gateway is asked for accepted jobs, like https://api.example.com/v1/payments/{reference}")
	}
	return &q
}

// query returns the fields of one query.
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

// lookURL reads a whole URL, or one relative to the request's, which the check resolves.
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

func (r *reader) scan(n node) *job.Scan {
	s, pages := &job.Scan{}, int64(usualPages)
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

// lookMatches reads fields of an answer, each with the job's value.
func (r *reader) lookMatches(n node) map[string]string {
	return r.matches(n, `what the job has there, like {reference: "{id}"}`, `"{id}", "{key}" or "{reference}"`, job.OwnID, job.OwnKey, job.OwnReference)
}

// lookRules reads a list of rules. A rule with lists of statuses or values becomes a rule for each combination.
func (r *reader) lookRules(n node) (all []job.LookRule) {
	for _, item := range r.items(n, "write at least one rule, like {body: {status: paid}, then: done}") {
		all = append(all, r.lookRule(item)...)
	}
	return all
}

func (r *reader) lookRule(n node) (all []job.LookRule) {
	one, of := job.LookRule{}, newAnswerLists()
	r.object(n,
		field{"status", func(n node) { of.statuses = r.lookStatuses(n) }},
		field{"header", func(n node) { of.headers = r.wantedHeaders(n) }},
		field{"body", func(n node) { of.fields = r.wantedFields(n) }},
		field{"absent", r.truth(&one.Absent)},
		field{"then", r.word((*string)(&one.Then), choice("a verdict of look-ups", job.LookVerdicts()...))},
		field{"after", r.duration(&one.After, 0)},
		field{"reference", r.word(&one.Reference, checkReference)},
	)
	if r.faulted[n.path] {
		return nil
	}
	r.checkLookRule(n.path, one)
	r.combine(n, of, func(status int, header, body map[string]string) {
		one.Status, one.Header, one.Body = status, header, body
		all = append(all, one)
	})
	return all
}

// lookStatuses reads the statuses that can settle an outcome: others mean that the look-up itself failed.
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
