package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"spillway/internal/job"
)

// lookPlaces are the placeholders of look-ups in addition to those of calls.
var lookPlaces = []string{"key", "reference", "first_call"}

// onRequest matches the start of a URL that is relative to the request's: to its server (/…) or its path (?…,
// ./…, and ../… for each part removed).
var onRequest = regexp.MustCompile(`^(/[^/]|/$|\?|\./|\.\.)`)

// checkLookURL checks a whole or relative URL.
func checkLookURL(text string) string {
	if onRequest.MatchString(text) {
		text = joined("https://x/", text)
	}
	if !strings.HasPrefix(text, "http://") && !strings.HasPrefix(text, "https://") {
		return "is not a URL: write one like https://api.example.com/v1/payments?reference={id}, or /v1/payments?reference={id} for the request's server"
	}
	return checkURLWith(text, lookPlaces)
}

// joined resolves a relative URL.
func joined(base, text string) string {
	base = behind(base, "?")
	at := len(server(base))
	if text[0] == '/' {
		return base[:at] + text
	}
	path := strings.TrimRight(base[at:], "/")
	for rest, up := strings.CutPrefix(text, ".."); up; rest, up = strings.CutPrefix(text, "..") {
		path, text = path[:max(strings.LastIndexByte(path, '/'), 0)], rest
		if next, more := strings.CutPrefix(rest, "/.."); more {
			text = ".." + next
		}
	}
	return base[:at] + path + strings.TrimPrefix(text, ".")
}

// inText matches a placeholder in a body, which must be within a JSON string.
var inText = regexp.MustCompile(`\{(?:id|lane|key|reference|first_call|payload\.[^{}\s"]+)\}`)

// checkLookBody checks that a body is a JSON object with placeholders only in strings.
func checkLookBody(text string) string {
	if plain := inText.ReplaceAllString(text, "x"); !strings.HasPrefix(strings.TrimSpace(text), "{") || !json.Valid([]byte(plain)) {
		return "is not a JSON object: write one, with places in its texts alone, like '{\"reference\": \"{id}\"}'"
	}
	return ""
}

// checkLookRule reports contradictory settings of a rule.
func (r *reader) checkLookRule(path string, rule job.LookRule) {
	then, after := path+".then", path+".after"
	if !slices.ContainsFunc([]string{"status", "header", "body", "absent"}, func(k string) bool { return r.written(path + "." + k) }) {
		r.fault(path, "the rule would match every answer: give it a status, a header, a body or absent")
	}
	switch {
	case !r.written(then):
		r.missing(then, "say what such an answer means: done, refused, later or not_done")
	case rule.Then == job.LookNotDone && !r.written(after):
		r.missing(after, "say how long after the call the gateway may still make the payment, or not show it yet; 0s if it promises that a look-up sees all that was made before")
	case rule.Then != job.LookNotDone && r.written(after):
		r.clash(after, then, "only a not_done is believed later than it is seen: take after out")
	}
	if rule.Absent && r.written(path+".body") {
		r.clash(path+".body", path+".absent", "absent is the end of a list without the payment, so there is no body to look at: take one of the two out")
	}
}

// checkLookup reports contradictory settings of a gateway's look-ups, and resolves their URLs.
func (r *reader) checkLookup(path string, g *Gateway) {
	l := g.Lookup
	if l == nil || r.faulted[path] {
		return
	}
	if l.Doubted != nil {
		r.checkQuery(path, path, g, l.Doubted)
	}
	if l.Accepted != nil && l.Accepted != l.Doubted {
		r.checkQuery(path+".accepted", path, g, l.Accepted)
	}
}

// checkQuery checks one query. Keys that it lacks are inherited from base.
func (r *reader) checkQuery(path, base string, g *Gateway, q *Query) {
	at := func(key string) string {
		if p := path + "." + key; r.written(p) || !r.written(base+"."+key) {
			return p
		}
		return base + "." + key
	}
	r.wholeURL(at("url"), g.Request, q)
	r.checkPlaces(path, at, g, q)
	if q.Body != "" && q.Method != "POST" {
		r.clash(at("body"), at("method"), "a GET has no body: write method: POST, or take body out")
	}
	if len(q.Answers) == 0 && !r.written(at("answers")) {
		r.missing(path+".answers", "say what the gateway's answers mean, like [{body: {status: paid}, then: done}]")
	}
	if len(q.Matches) == 0 && q.Scan == nil && !r.written(at("matches")) && !r.written(at("scan")) {
		r.missing(path+".matches", `say by what an answer is known to be about the job's payment, like {reference: "{id}"}`)
	}
	if q.Scan == nil && slices.ContainsFunc(q.Answers, func(rule job.LookRule) bool { return rule.Absent }) {
		r.clash(at("answers"), path+".scan", "absent is the end of a list, and there is no scan that walks one: write scan, or a status or body in place of absent")
	}
	r.checkSchedule(at("schedule"), at("answers"), q)
}

// wholeURL resolves a URL relative to the request's.
func (r *reader) wholeURL(path string, of Request, q *Query) {
	base, text := of.URL.Reveal(), q.URL.Reveal()
	switch {
	case text == "" || r.faulted[path]:
	case onRequest.MatchString(text) && base == "":
		q.URL = ""
	case onRequest.MatchString(text):
		q.URL = Secret(joined(base, text))
	case strings.HasPrefix(base, "https://") && !strings.HasPrefix(text, "https://"):
		r.fault(path, "the look-up carries the headers of the request, whose url is https: write https here too")
	}
}

// server returns a URL up to the end of its host.
func server(of string) string {
	scheme, rest, _ := strings.Cut(of, "://")
	return scheme + "://" + behind(rest, "/?")
}

// behind returns a text up to the first of some characters.
func behind(text, end string) string {
	if i := strings.IndexAny(text, end); i >= 0 {
		return text[:i]
	}
	return text
}

// checkPlaces checks that jobs can have the values of the placeholders, and that these identify the call.
func (r *reader) checkPlaces(path string, at func(string) string, g *Gateway, q *Query) {
	has := func(what string) bool {
		in := []map[string]string{q.Matches}
		if q.Scan != nil {
			in = append(in, q.Scan.Match)
		}
		matched := slices.ContainsFunc(in, func(m map[string]string) bool { return slices.Contains(slices.Collect(maps.Values(m)), what) })
		return matched || strings.Contains(q.URLText+q.Body, what)
	}
	q.OneKey = has(job.OwnKey) || has(job.OwnReference)
	q.ByID = has(job.OwnID) && !q.OneKey && !g.Request.carriesID()
	if has(job.OwnKey) && !g.Request.Key.Any() {
		r.fault(at("url"), "the look-up uses {key}, and the gateway has no keys: use {id} or {reference}")
	}
	if has("{lane}") && g.Lanes == nil {
		r.fault(at("url"), "the look-up uses {lane}, and the gateway has no lanes: write lanes: {key: payload.account}, say")
	}
	for _, used := range placeholder.FindAllStringSubmatch(q.URLText+q.Body, -1) {
		if field, inPayload := strings.CutPrefix(used[1], "payload."); inPayload && g.Map != nil && !makes(g.Map, field) {
			r.clash(at("url"), parent(path)+".map", "the look-up takes the payload's field %q, and the map does not make it: name it there", field)
		}
	}
	if has(job.OwnReference) && g.Reference == "" {
		r.fault(at("url"), "the look-up uses {reference}, and the gateway's reference is \"\", so none is kept: use {id} or {key}")
	}
}

// carriesID reports whether each call carries the job's id outside its payload: in the URL, a header or the key.
func (q Request) carriesID() bool {
	for _, parts := range q.JobHeaders {
		if slices.ContainsFunc(parts, func(p HeaderPart) bool { return p.Place == "id" }) {
			return true
		}
	}
	return strings.Contains(q.URLText, job.OwnID) || q.Key.Any() && (q.Key.Form == "" || q.Key.Form == job.KeyID)
}

// checkSchedule reports look-ups that end before a not_done can be believed: that takes two, the second one
// after that time.
func (r *reader) checkSchedule(path, answers string, q *Query) {
	var whole time.Duration
	for _, one := range q.Schedule {
		whole += one
	}
	if slices.Contains(q.Schedule, 0) || len(q.Schedule) == 0 {
		return // reported already
	}
	for _, rule := range q.Answers {
		switch {
		case rule.Then != job.LookNotDone:
		case len(q.Schedule) < 2:
			r.clash(path, answers, "a not_done is believed only when two look-ups in a row say it, and there is one: give the schedule one more time")
			return
		case whole < rule.After:
			r.clash(path, answers, "the last look-up is made %s after the call%s, and a not_done is believed only %s after it: make the schedule longer, or after shorter",
				whole, r.defaulted(path), job.FormatDuration(rule.After))
			return
		}
	}
}

// placesHint lists the placeholders of a URL.
func placesHint(more []string) string {
	if len(more) == 0 {
		return "{id}, {lane} and {payload.FIELD} are all there is"
	}
	return fmt.Sprintf("{id}, {lane}, {%s} and {payload.FIELD} are all there is", strings.Join(more, "}, {"))
}
