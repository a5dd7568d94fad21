package config

import (
	"maps"
	"net/textproto"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"spillway/internal/job"
)

// answers reads the name of a profile, a list of rules that precede the default profile, or a mapping of both.
func (r *reader) answers(n node, a *Answers) {
	profile := r.word(&a.Profile, choice("a profile of answers", ProfileDefault, ProfileStripe))
	rules := func(n node) {
		for _, item := range r.items(n, "write at least one rule, like {status: 429, then: hold}") {
			a.Rules = append(a.Rules, r.rules(item)...)
		}
	}
	switch n.tree.(type) {
	case *ast.SequenceNode:
		rules(n)
	case *ast.MappingNode, *ast.MappingValueNode:
		r.object(n, field{"profile", profile}, field{"rules", rules}, field{"done_needs", func(n node) { a.DoneNeeds = r.needs(n) }},
			field{"matches", func(n node) {
				a.Matches = r.matches(n, "the payload's field with the same value, like {merchantReference: reference}", "\"{id}\" for the job's id", job.OwnID)
			}},
			field{"saved", func(n node) { a.Saved = r.saved(n) }})
	default:
		profile(n)
	}
}

// scoped is the scope of a rule, and its position.
type scoped struct {
	path  string
	scope job.Scope
}

// checkScopes reports rules whose scope the gateway does not have.
func (r *reader) checkScopes(g *Gateway, routes bool) {
	for _, s := range r.scopes {
		switch {
		case s.scope == job.ScopeLane && g.Lanes == nil:
			r.fault(s.path, "the answer concerns a lane, and the gateway has none: write scope: gateway, or give it lanes, like lanes: {key: payload.account}")
		case s.scope == job.ScopeRoute && !routes:
			r.fault(s.path, "the answer concerns a route, and the gateway has none: write scope: gateway, or give it routes")
		}
	}
}

// needs reads the fields that an answer must have to mean done, each with one or several accepted values.
func (r *reader) needs(n node) map[string][]string {
	all := map[string][]string{}
	for _, e := range r.named(n, "asks for", "write a field of the answer's body and its value, like {resultCode: Authorised}", checkField) {
		for _, v := range r.values(e.value, "write at least one value, like [paid, captured]") {
			if text, ok := r.wantedText(v); ok {
				all[e.key] = append(all[e.key], text)
			}
		}
	}
	return all
}

// named returns the entries of a mapping whose names pass a check. An empty mapping is an error, because it
// asks for, or compares, nothing.
func (r *reader) named(n node, does, hint string, check func(string) string) (good []entry) {
	entries := r.entries(n)
	if len(entries) == 0 && !r.faulted[n.path] {
		r.fault(n.path, "this is empty, so it %s nothing: %s", does, hint)
	}
	for _, e := range entries {
		if rule := check(e.key); rule != "" {
			r.places[e.value.path] = e.at
			r.fault(e.value.path, "%q %s", e.key, rule)
			continue
		}
		good = append(good, e)
	}
	return good
}

// values returns the items of a list, or a single node.
func (r *reader) values(n node, hint string) []node {
	if _, list := n.tree.(*ast.SequenceNode); list {
		return r.items(n, hint)
	}
	return []node{n}
}

// matches reads the fields of an answer that identify the payment, each with the payload field of the same
// value, or one of the job's own values. like says how they are written, and or which own values there are.
func (r *reader) matches(n node, like, or string, owns ...string) map[string]string {
	all := map[string]string{}
	for _, e := range r.named(n, "compares", "write a field of the answer's body and "+like, checkField) {
		text, ok := r.text(e.value)
		switch {
		case !ok:
		case !slices.Contains(owns, text) && checkField(text) != "":
			r.fault(e.value.path, "%q is not a field of the payload: write its name, with dots between the levels, or %s", text, or)
		default:
			all[e.key] = text
		}
	}
	return all
}

// saved reads what repeated calls get after answers of each class.
func (r *reader) saved(n node) map[string]job.Saved {
	all := map[string]job.Saved{}
	var fields []field
	for _, class := range []string{Class2xx, Class4xx, Class5xx} {
		fields = append(fields, field{class, func(n node) {
			var word string
			r.word(&word, choice("what a repeat gets", job.Saveds()...))(n)
			all[class] = job.Saved(word)
		}})
	}
	r.object(n, fields...)
	return all
}

// wantedText reads the required value of a field. null is a word here, like true.
func (r *reader) wantedText(n node) (string, bool) {
	if isNull(n) {
		return "null", true
	}
	return r.text(n)
}

// rules reads one rule. A rule with lists of statuses or values becomes a rule for each combination.
func (r *reader) rules(n node) []job.Rule {
	one, of := job.Rule{}, newAnswerLists()
	r.object(n,
		field{"event", r.word(&one.Event, checkEvent)},
		field{"when", r.word(&one.When, choice("a call", job.WhenFirst, job.WhenRepeat))},
		field{"status", func(n node) { of.statuses = r.statuses(n) }},
		field{"header", func(n node) { of.headers = r.wantedHeaders(n) }},
		field{"body", func(n node) { of.fields = r.wantedFields(n) }},
		field{"then", r.word((*string)(&one.Then), choice("a verdict", job.Verdicts()...))},
		field{"scope", func(n node) {
			r.word((*string)(&one.Scope), choice("what an answer concerns", job.Scopes()...))(n)
			r.scopes = append(r.scopes, scoped{n.path, one.Scope})
		}},
		field{"reference", r.word(&one.Reference, checkReference)},
	)
	if r.faulted[n.path] {
		return nil
	}
	if one.Scope != "" && one.Then != job.VerdictHold {
		r.clash(join(n.path, "scope"), join(n.path, "then"), "a scope says what is held, and the rule does not say hold: write then: hold, or take scope out")
	}
	if !slices.ContainsFunc([]string{"status", "header", "body"}, func(k string) bool { return r.written(join(n.path, k)) }) {
		r.fault(n.path, "the rule would match every answer: give it a status, a header or a body")
	}
	if !r.written(join(n.path, "then")) {
		r.missing(n.path+".then", "say what such an answer means: "+verdictList())
	}
	var all []job.Rule
	r.combine(n, of, func(status int, header, body map[string]string) {
		one.Status, one.Header, one.Body = status, header, body
		all = append(all, one)
	})
	return all
}

// mostOfRule is the most combinations of the lists of one rule.
const mostOfRule = 200

// answerLists are the statuses, headers and fields that a rule names. Each list has at least one item.
type answerLists struct {
	statuses        []int
	headers, fields []map[string]string
}

func newAnswerLists() *answerLists {
	return &answerLists{[]int{0}, []map[string]string{nil}, []map[string]string{nil}}
}

// combine calls add for each combination of a rule's lists.
func (r *reader) combine(n node, of *answerLists, add func(status int, header, body map[string]string)) {
	if len(of.statuses)*len(of.headers)*len(of.fields) > mostOfRule {
		r.fault(n.path, "its lists have more than %d combinations: write several rules, or regular expressions between slashes", mostOfRule)
		return
	}
	for _, status := range of.statuses {
		for _, header := range of.headers {
			for _, body := range of.fields {
				add(status, header, body)
			}
		}
	}
}

func checkEvent(text string) string {
	if !plainKey(text) {
		return "is not an event: use letters, digits, _ and -, like key_in_use"
	}
	return ""
}

// The classes of statuses.
const (
	Class2xx = "2xx"
	Class4xx = "4xx"
	Class5xx = "5xx"
)

// statuses reads a status, a class, or a list of these.
func (r *reader) statuses(n node) []int {
	var all []int
	for _, one := range r.values(n, "write at least one status, like [409, 422]") {
		if text, ok := r.filled(one); ok && len(text) == 3 && text[1:] == "xx" && text[0] >= '1' && text[0] <= '5' {
			all = append(all, int(text[0]-'0'))
			continue
		}
		var status int64
		r.count(&status, 100, 599)(one)
		all = append(all, int(status))
	}
	return all
}

// verdictList returns the verdicts as a list for people.
func verdictList() string {
	all := job.Texts(job.Verdicts())
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

func (r *reader) wantedHeaders(n node) []map[string]string {
	names := map[string]string{}
	return r.wanted(n, "write the answer's header and its value, like {Reason: busy}", func(key string) string {
		rule := checkWantedHeader(key, names)
		names[textproto.CanonicalMIMEHeaderKey(key)] = key
		return rule
	})
}

func (r *reader) wantedFields(n node) []map[string]string {
	return r.wanted(n, "write a field of the answer's body and its value, like {error.code: busy}", checkField)
}

// wanted reads a mapping of names to required values: a text, a regular expression between slashes, or a list
// of these. It returns each combination.
func (r *reader) wanted(n node, hint string, check func(string) string) []map[string]string {
	all := []map[string]string{{}}
	for _, e := range r.named(n, "asks for", hint, check) {
		values := r.values(e.value, "write at least one value, like [busy, locked]")
		if all = r.times(all, e.key, values); len(all) > mostOfRule {
			return all // the rule reports that
		}
	}
	return all
}

// times combines each of the mappings with each value for one more name.
func (r *reader) times(all []map[string]string, name string, values []node) (product []map[string]string) {
	for _, v := range values {
		text, ok := r.wantedText(v)
		if !ok {
			continue
		}
		if err := job.CheckWanted(text); err != nil {
			r.fault(v.path, "%v", err)
			continue
		}
		for _, one := range all {
			with := maps.Clone(one)
			with[name] = text
			product = append(product, with)
		}
	}
	if len(product) == 0 {
		return all // every value is invalid
	}
	return product
}
