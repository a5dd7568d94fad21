package config

import (
	"net/textproto"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"spillway/internal/job"
)

// answers reads the name of a profile, or a list of rules above the default one, or a mapping of both.
func (r *reader) answers(n node, a *Answers) {
	profile := r.word(&a.Profile, choice("a profile of answers", ProfileDefault, ProfileStripe))
	rules := func(n node) {
		for _, item := range r.items(n, "write at least one rule, like {status: 429, then: hold}") {
			a.Rules = append(a.Rules, r.rule(item))
		}
	}
	switch n.tree.(type) {
	case *ast.SequenceNode:
		rules(n)
	case *ast.MappingNode, *ast.MappingValueNode:
		r.object(n, field{"profile", profile}, field{"rules", rules}, field{"done_needs", func(n node) { a.DoneNeeds = r.needs(n) }})
	default:
		profile(n)
	}
}

// needs reads the fields that an answer must have to mean done, each with a value or a list of values that will do.
func (r *reader) needs(n node) map[string][]string {
	all := map[string][]string{}
	entries := r.entries(n)
	if len(entries) == 0 && !r.faulted[n.path] {
		r.fault(n.path, "this is empty, so it asks for nothing: write a field of the answer's body and its value, like {resultCode: Authorised}")
	}
	for _, e := range entries {
		if rule := checkField(e.key); rule != "" {
			r.places[e.value.path] = e.at
			r.fault(e.value.path, "%q %s", e.key, rule)
			continue
		}
		values := []node{e.value}
		if _, list := e.value.tree.(*ast.SequenceNode); list {
			values = r.items(e.value, "write at least one value, like [paid, captured]")
		}
		for _, v := range values {
			if text, ok := r.wantedText(v); ok {
				all[e.key] = append(all[e.key], text)
			}
		}
	}
	return all
}

// wantedText reads a value wanted in an answer. null is one: a word, as true is.
func (r *reader) wantedText(n node) (string, bool) {
	if isNull(n) {
		return "null", true
	}
	return r.text(n)
}

func (r *reader) rule(n node) Rule {
	var rule Rule
	var status int64
	r.object(n,
		field{"status", r.count(&status, 100, 599)},
		field{"header", func(n node) { rule.Header = r.wantedHeaders(n) }},
		field{"body", func(n node) { rule.Body = r.wantedFields(n) }},
		field{"then", r.word(&rule.Then, choice("a verdict", job.Verdicts()...))},
	)
	rule.Status = int(status)
	if r.faulted[n.path] {
		return rule
	}
	if !slices.ContainsFunc([]string{"status", "header", "body"}, func(k string) bool { return r.written(join(n.path, k)) }) {
		r.fault(n.path, "the rule would match every answer: give it a status, a header or a body")
	}
	if !r.written(join(n.path, "then")) {
		r.missing(n.path+".then", "say what such an answer means: "+verdictList())
	}
	return rule
}

// verdictList is the verdicts as a person lists them.
func verdictList() string {
	var words []string
	for _, v := range job.Verdicts() {
		words = append(words, string(v))
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func (r *reader) wantedHeaders(n node) map[string]string {
	names := map[string]string{}
	return r.wanted(n, "write the answer's header and its value, like {Reason: busy}", func(key string) string {
		rule := checkWantedHeader(key, names)
		names[textproto.CanonicalMIMEHeaderKey(key)] = key
		return rule
	})
}

func (r *reader) wantedFields(n node) map[string]string {
	return r.wanted(n, "write a field of the answer's body and its value, like {error.code: busy}", checkField)
}

// wanted reads a mapping of names to the texts wanted there.
func (r *reader) wanted(n node, hint string, check func(string) string) map[string]string {
	all := map[string]string{}
	entries := r.entries(n)
	if len(entries) == 0 && !r.faulted[n.path] {
		r.fault(n.path, "this is empty, so it asks for nothing: %s", hint)
	}
	for _, e := range entries {
		if rule := check(e.key); rule != "" {
			r.places[e.value.path] = e.at
			r.fault(e.value.path, "%q %s", e.key, rule)
			continue
		}
		if text, ok := r.wantedText(e.value); ok {
			all[e.key] = text
		}
	}
	return all
}
