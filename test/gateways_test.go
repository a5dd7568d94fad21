package test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/packs"
)

var update = flag.Bool("update", false, "write docs/gateways.md from the packs")

const gatewaysPage = "../docs/gateways.md"

// docs/gateways.md is made from the packs: go test ./test -run TestTheGatewaysPage -update
func TestTheGatewaysPageIsMadeFromThePacks(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("# Payment gateways\n\nThis page shows the contents of each [pack](configuration.md#packs). It is generated from the packs; " +
		"`dispatcher packs show NAME` prints one with the source of each value.\n\nThe table *trouble* shows how a job ends in each kind of trouble. Each pack was tested against the " +
		"[double](doubles.md#fates) of its gateway; see there for the words in its first column. The last column applies if the process dies before or after the job's first call. *Done* means charged once, *refused* means not charged. " +
		"*Accepted* means that the outcome comes later, *unknown* that it is not known. More than one word means that it depends on the gateway's answer.\n\n" +
		"The table *look-up* shows how Spillway [looks up](configuration.md#look-ups) unknown and accepted jobs; times count from the end of the call. A job that is not settled after the last look-up, or can't be looked up, is parked for a person.\n\n")
	for _, name := range packs.Names() {
		section(t, &b, name)
	}
	want := strings.TrimRight(b.String(), "\n") + "\n"
	if *update {
		if err := os.WriteFile(gatewaysPage, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(gatewaysPage); err != nil || string(got) != want {
		t.Errorf("docs/gateways.md is not what the packs make: run go test ./test -run TestTheGatewaysPage -update (%v)", err)
	}
}

// section writes what is known of one gateway.
func section(t *testing.T, b *strings.Builder, name string) {
	t.Helper()
	p, err := packs.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("pack.yaml", []byte("gateways: {g: {like: "+name+", request: {url: \"https://gateway.example\"}, leak: {limits: [1/d]}}}\n"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := c.Gateways[0]
	fmt.Fprintf(b, "## %s\n\n`like: %s`, read on %s.\n\n", p.Title, name, p.Read)
	fmt.Fprintf(b, "- Keys: %s\n", keys(p, g))
	fmt.Fprintf(b, "- Limits: %s\n", limits(p))
	fmt.Fprintf(b, "- Done: %s\n\n", done(g))
	if len(g.Answers.Rules) > 0 {
		b.WriteString("| event | answer | call | what it means |\n|---|---|---|---|\n")
		for _, e := range events(g.Answers.Rules) {
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", e.name, e.answers, e.when, e.then)
		}
		b.WriteString("\n")
	}
	lookups(b, g.Lookup)
	b.WriteString("| trouble | the job is | if its process dies |\n|---|---|---|\n")
	for _, f := range fatesOf(t, name) {
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", f.name, either(f.ends), either(f.dies))
	}
	b.WriteString("\n")
	for _, caveat := range p.Caveats {
		fmt.Fprintf(b, "- %s\n", caveat)
	}
	if len(p.Unverified) > 0 {
		fmt.Fprintf(b, "- No source was found for: %s.\n", "`"+strings.Join(p.Unverified, "`, `")+"`")
	}
	b.WriteString("\nSources: ")
	var letters []string
	for letter := range p.Sources {
		letters = append(letters, letter)
	}
	slices.Sort(letters)
	for i, letter := range letters {
		if i > 0 {
			b.WriteString(", ")
		}
		address, remark, _ := strings.Cut(p.Sources[letter], " ")
		b.WriteString(strings.TrimSpace(fmt.Sprintf("[%s](%s) %s", letter, address, remark)))
	}
	b.WriteString(".\n\n")
}

func keys(p packs.Pack, g config.Gateway) string {
	k := g.Request.Key
	if !k.Any() {
		return "none. A call without a clear answer is never sent again."
	}
	in := k.In
	if in == "" {
		in = "header"
	}
	text := fmt.Sprintf("in the %s, as `%s`", in, k.Name)
	if k.Form != "" && k.Form != "id" {
		text += ", written as " + k.Form
	}
	if k.Max > 0 {
		text += fmt.Sprintf(", at most %d characters", k.Max)
	}
	if life, ok := config.PackLifetime(p); ok {
		text += fmt.Sprintf(". The gateway keeps them for %s.", job.FormatDuration(life))
	} else {
		text += ". The gateway publishes no lifetime, so a key is trusted for 5 minutes."
	}
	if g.Request.KeyForgets {
		text += " After a failure or a lost answer a key covers no second call."
	}
	return text
}

func limits(p packs.Pack) string {
	if len(p.Limits) == 0 {
		return "none is published."
	}
	var all []string
	for _, l := range p.Limits {
		all = append(all, l.Limit+" per "+l.Per)
	}
	return strings.Join(all, ", ") + "."
}

func done(g config.Gateway) string {
	if len(g.Answers.DoneNeeds) == 0 {
		return "a 2xx, unless a rule says otherwise."
	}
	var needs []string
	for field, values := range g.Answers.DoneNeeds {
		needs = append(needs, fmt.Sprintf("`%s` is %s", field, strings.Join(values, " or ")))
	}
	slices.Sort(needs)
	return "a 2xx in which " + strings.Join(needs, " and ") + ", or if a rule says so."
}

// event is a rule as the page shows it.
type event struct{ name, answers, when, then string }

// events are rules, those that one rule of a pack made taken together.
func events(rules []job.Rule) (all []event) {
	for _, r := range rules {
		e := event{r.Event, matched(r), r.When, string(r.Then)}
		if e.when == "" {
			e.when = "any"
		}
		if last := len(all) - 1; last >= 0 && all[last].name == e.name && all[last].when == e.when && all[last].then == e.then {
			all[last].answers += "; " + e.answers
			continue
		}
		all = append(all, e)
	}
	return all
}

func matched(r job.Rule) string {
	var parts []string
	switch {
	case r.Status >= 100:
		parts = append(parts, fmt.Sprint(r.Status))
	case r.Status > 0:
		parts = append(parts, fmt.Sprintf("%dxx", r.Status))
	}
	for _, wanted := range []map[string]string{r.Header, r.Body} {
		var names []string
		for name := range wanted {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			parts = append(parts, fmt.Sprintf("`%s: %s`", name, strings.ReplaceAll(wanted[name], "|", `\|`)))
		}
	}
	return strings.Join(parts, " ")
}

// lookups writes how the gateway is asked.
func lookups(b *strings.Builder, l *config.Lookup) {
	if l == nil {
		b.WriteString("There is no look-up in the pack.\n\n")
		return
	}
	b.WriteString("| look-up of | asks | after | done | refused | not there |\n|---|---|---|---|---|---|\n")
	for _, accepted := range []bool{false, true} {
		q, of := l.For(accepted), map[bool]string{false: "unknown jobs", true: "accepted jobs"}[accepted]
		switch {
		case q == nil:
			fmt.Fprintf(b, "| %s | nothing | | | | |\n", of)
		case accepted && l.Accepted == l.Doubted:
			fmt.Fprintf(b, "| %s | as above | | | | |\n", of)
		default:
			fmt.Fprintf(b, "| %s | `%s` | %s | %s | %s | %s |\n", of, q.URLText, times(q.Schedule), means(q, "done"), means(q, "refused"), absent(q))
		}
	}
	b.WriteString("\n")
}

// times are the moments of look-ups after the call.
func times(schedule []time.Duration) string {
	var all []string
	var at time.Duration
	for _, wait := range schedule {
		at += wait
		all = append(all, job.FormatDuration(at))
	}
	return strings.Join(all, ", ")
}

// means is which answers to a look-up mean a verdict.
func means(q *config.Query, then string) string {
	var all []string
	for _, r := range q.Answers {
		if string(r.Then) == then {
			all = append(all, matched(job.Rule{Status: r.Status, Header: r.Header, Body: r.Body}))
		}
	}
	return strings.Join(all, "; ")
}

// absent is what becomes of a job whose payment is not found.
func absent(q *config.Query) string {
	for _, r := range q.Answers {
		if r.Then == job.LookNotDone {
			return "called again, at the earliest " + job.FormatDuration(r.After) + " after the call"
		}
	}
	return "a person"
}
