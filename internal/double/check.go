package double

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// always has the answers that each table must have.
var always = []string{"paid", "decline", "error", "unavailable", "unauthorised", "invalid", "not-found"}

// check returns the first fault of a table.
func (t *Table) check() error {
	for _, check := range []func() error{t.checkWords, t.checkRequest, t.checkKeys, t.checkAnswers, t.checkLimits, t.checkEndpoints, t.checkFates} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) checkWords() error {
	switch {
	case t.Gateway == "" || t.About == "" || t.Read == "":
		return fmt.Errorf("gateway, about and read have to be written")
	case t.Auth.Header == "":
		return fmt.Errorf("auth.header: write which header a call must carry")
	case !strings.Contains(t.ID, "{n}"):
		return fmt.Errorf("id: %q gives all payments one id: write {n} for their number", t.ID)
	case t.Words["paid"] == "" || t.Words[t.Normal] == "":
		return fmt.Errorf("words: there is none for paid, or none for the normal state %q", t.Normal)
	}
	for from, moves := range t.Moves {
		for _, m := range moves {
			if t.Words[from] == "" || t.Words[m.To] == "" {
				return fmt.Errorf("moves: from %s to %s: words has no such state", from, m.To)
			}
		}
	}
	return nil
}

func (t *Table) checkRequest() error {
	r := t.Request
	switch {
	case r.Encoding != "json" && r.Encoding != "form":
		return fmt.Errorf("request.encoding: %q: write json or form", r.Encoding)
	case amounts[r.Unit] == nil && r.Amount != "":
		return fmt.Errorf("request.unit: %q: write minor, string or number", r.Unit)
	}
	return nil
}

func (t *Table) checkKeys() error {
	for _, k := range t.Keys {
		_, err := regexp.Compile("[" + k.Alphabet + "]")
		switch {
		case k.In != "header" && k.In != "body":
			return fmt.Errorf("keys: %s: in: %q: write header or body", k.Name, k.In)
		case k.Life <= 0:
			return fmt.Errorf("keys: %s: write its life, and unpublished: true where it is a guess", k.Name)
		case k.Alphabet != "" && err != nil:
			return fmt.Errorf("keys: %s: alphabet: %w", k.Name, err)
		case k.Form != "" && k.Form != "uuid":
			return fmt.Errorf("keys: %s: form: %q: write uuid, or leave it out", k.Name, k.Form)
		case k.Required && k.Missing == "":
			return fmt.Errorf("keys: %s: missing: write the answer to a call without it", k.Name)
		case (k.Min > 0 || k.Max > 0 || k.Alphabet != "" || k.Form != "") && k.Bad == "":
			return fmt.Errorf("keys: %s: bad: write the answer to a key that can't be one", k.Name)
		}
		for _, s := range k.Scope {
			if s != "path" && s != "host" && !strings.HasPrefix(s, "header:") {
				return fmt.Errorf("keys: %s: scope: %q: write path, host or header:NAME", k.Name, s)
			}
		}
	}
	return nil
}

// checkAnswers finds answers that are named but missing, and bodies that are no JSON when they are filled in.
func (t *Table) checkAnswers() error {
	named := slices.Clone(always)
	for _, k := range t.Keys {
		named = append(named, k.Missing, k.Bad)
	}
	named = append(named, t.Normal, t.Saved.Mismatch)
	named = append(named, t.Running...)
	for _, modes := range []names{t.Saved.Success, t.Saved.Refusal, t.Saved.Failure} {
		if len(t.Keys) > 0 && len(modes) == 0 {
			return fmt.Errorf("saved: write what a repeat gets after 2xx, 4xx and 5xx")
		}
		for _, mode := range modes {
			named = append(named, strings.Split(mode, "|")...)
		}
	}
	for _, l := range t.Limits {
		named = append(named, l.Answer)
	}
	for _, e := range t.Endpoints {
		named = append(named, e.Answer, e.Again)
	}
	if t.Duplicates != nil {
		named = append(named, t.Duplicates.Answer)
	}
	for _, name := range named {
		if _, ok := t.Answers[name]; !ok && !slices.Contains([]string{"", "answer", "state", "nothing", "wait"}, name) {
			return fmt.Errorf("answers: there is no %q, which is named", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Answers)) {
		a := t.Answers[name]
		if a.Status < 200 || a.Status > 599 {
			return fmt.Errorf("answers.%s: status %d: write 200 to 599", name, a.Status)
		}
		if a.Body != nil && *a.Body != "" {
			if err := isJSON(*a.Body); err != nil {
				return fmt.Errorf("answers.%s.body: %w", name, err)
			}
		}
	}
	for name, template := range map[string]string{"payment": t.Payment, "item": cmp.Or(t.Item, "{}")} {
		if err := isJSON(template); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// isJSON checks a template with plain values filled in.
func isJSON(template string) error {
	words := map[string]string{}
	for _, name := range bodyWords {
		words[name] = "1"
	}
	filled := fillIn(template, words)
	if !json.Valid([]byte(filled)) {
		return fmt.Errorf("filled in it is not JSON: %s", filled)
	}
	if left := regexp.MustCompile(`\{[a-z_]+\}`).FindString(filled); left != "" {
		return fmt.Errorf("%s is not a word that is filled in; there are %s", left, strings.Join(bodyWords, ", "))
	}
	return nil
}

func (t *Table) checkLimits() error {
	for i, l := range t.Limits {
		switch {
		case (l.Limit == nil) == (l.AtOnce == 0):
			return fmt.Errorf("limits: the %d.: write limit or at_once, one of the two", i+1)
		case !slices.Contains([]string{"account", "endpoint", "writes", "lookups", "ip", "unauthorised"}, l.Over):
			return fmt.Errorf("limits: the %d.: over: %q: write account, endpoint, writes, lookups, ip or unauthorised", i+1, l.Over)
		case l.Over == "unauthorised" && l.Limit == nil:
			return fmt.Errorf("limits: the %d.: answers are counted in windows: write limit", i+1)
		}
	}
	return nil
}

func (t *Table) checkEndpoints() error {
	for _, e := range t.Endpoints {
		switch {
		case e.Kind == "token" && t.Auth.Life <= 0:
			return fmt.Errorf("endpoints: %s: auth.life: write how long a token lives", e.Path)
		case (e.Kind == "get" || e.Kind == "step") && !strings.Contains(e.Path, "{id}"), e.Kind == "stored" && !strings.Contains(e.Path, "{key}"):
			return fmt.Errorf("endpoints: %s: a %s finds one payment: write {id}, or of what is stored {key}", e.Path, e.Kind)
		case e.Leaves != "" && t.Words[e.Leaves] == "":
			return fmt.Errorf("endpoints: %s: leaves: words has no state %q", e.Path, e.Leaves)
		case e.Kind == "search" && e.Param == "", e.Kind == "cancel" && (e.Param == "" || t.Words["canceled"] == ""):
			return fmt.Errorf("endpoints: %s: a %s needs its param, and to cancel a word for canceled", e.Path, e.Kind)
		case (e.After != "" || e.Page != "" || e.Since != "" || e.Order != "" || e.Inclusive) && e.Kind != "list":
			return fmt.Errorf("endpoints: %s: after, inclusive, page, since and order are words of a list", e.Path)
		case e.After != "" && e.Page != "":
			return fmt.Errorf("endpoints: %s: a list goes on after a payment, or by the number of its page: write after or page", e.Path)
		case !slices.Contains([]string{"pay", "step", "get", "search", "list", "stored", "cancel", "token"}, e.Kind):
			return fmt.Errorf("endpoints: %s: there is no kind %q", e.Path, e.Kind)
		}
		if e.Body == "" {
			continue
		}
		if err := isJSON(strings.ReplaceAll(e.Body, "{stored_body}", "null")); err != nil {
			return fmt.Errorf("endpoints: %s: body: %w", e.Path, err)
		}
	}
	return nil
}

// checkFates finds a plan that the table can't carry out.
func (t *Table) checkFates() error {
	for name := range t.Without {
		if _, known := kinds[name]; !known || t.has(name) {
			return fmt.Errorf("without: %s: there is no such fate, or the gateway has it", name)
		}
	}
	for name := range t.Fates {
		if kinds[name].says == "" || kinds[name].common || kinds[name].looks {
			return fmt.Errorf("fates: %s: there is no such fate, or every gateway has it", name)
		}
	}
	for _, name := range t.FateNames() {
		if err := t.checkPlan(t.plan(name)); err != nil {
			return fmt.Errorf("fates.%s: %w", name, err)
		}
	}
	return nil
}

func (t *Table) checkPlan(p Plan) error {
	if p.empty() {
		return fmt.Errorf("it has no answer of its own: write a plan, or the answers it is about")
	}
	for _, name := range slices.Concat(p.Gate, p.First, p.Running, p.Repeat, p.Save) {
		if _, ok := t.Answers[name]; !ok && !slices.Contains([]string{"wait", "answer", "state", "nothing"}, name) {
			return fmt.Errorf("there is no answer %q", name)
		}
	}
	keyed, short := len(t.Keys) > 0, false
	for _, k := range t.Keys {
		short = short || k.Short > 0
	}
	switch {
	case !keyed && (p.Outage || p.Foreign || p.WithKey || len(p.Repeat) > 0):
		return fmt.Errorf("the gateway has no keys")
	case p.Short && !short:
		return fmt.Errorf("keys: write the short life")
	case p.To != "" && t.Words[p.To] == "":
		return fmt.Errorf("words has no state %q", p.To)
	case p.Look != "" && !slices.Contains([]string{"nothing", "another", "half"}, p.Look):
		return fmt.Errorf("look: %q: write nothing, another or half", p.Look)
	case p.Fill && !slices.ContainsFunc(t.Limits, func(l Limit) bool { return l.Limit != nil }):
		return fmt.Errorf("the gateway has no windows")
	case p.Step && !slices.ContainsFunc(t.Endpoints, func(e Endpoint) bool { return e.Kind == "step" }):
		return fmt.Errorf("endpoints has no step")
	case p.Lag && !slices.ContainsFunc(t.Endpoints, func(e Endpoint) bool { return e.WorstLag > 0 }):
		return fmt.Errorf("endpoints has no worst_lag")
	}
	return nil
}

// running lists what a repeat can get while the first call runs.
func (t *Table) running() []string {
	all := slices.Clone(t.Running)
	for _, p := range t.Fates {
		all = append(all, p.Running...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (t *Table) states() []string { return slices.Sorted(maps.Keys(t.Words)) }

func (t *Table) checkChoices(choices map[string]string) error {
	of := map[string][]string{"running": t.running(), "2xx": t.Saved.Success, "4xx": t.Saved.Refusal, "5xx": t.Saved.Failure}
	for occasion, name := range choices {
		if !slices.Contains(of[occasion], name) {
			return fmt.Errorf("%s: %s=%s can't be chosen; there are running=%s, 2xx=%s, 4xx=%s, 5xx=%s", t.Gateway, occasion, name, strings.Join(of["running"], "|"),
				strings.Join(of["2xx"], "|"), strings.Join(of["4xx"], "|"), strings.Join(of["5xx"], "|"))
		}
	}
	return nil
}
