package doctor

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"spillway/internal/config"
	"spillway/internal/job"
)

// sensitive matches header names that identify the caller.
var sensitive = regexp.MustCompile(`(?i)auth|key|token|secret|account|merchant`)

// lintNewKey warns of rules that ask for the next key where there are no keys.
func lintNewKey(g config.Gateway) []Check {
	asks := slices.ContainsFunc(g.Answers.Rules, func(r config.Rule) bool { return r.Then == string(job.VerdictNewKey) })
	if g.Request.Key.Any() || !asks {
		return nil
	}
	return []Check{warn("answers", g.Name, "write then: refused; or name the header of the gateway's idempotency keys in request.idempotency_header",
		"a rule says then: new_key, and the gateway has no idempotency keys: there is no key to take another one of, so the job is parked as refused")}
}

// sharedAccounts warns of gateways with the same address and credentials while ids are unique only within a
// gateway: a file sent to both is charged twice.
func (x *examination) sharedAccounts() {
	if x.p.Config.DedupeScope == config.DedupeAll {
		return
	}
	same := map[string][]string{}
	var order []string
	for _, g := range x.p.Gateways {
		account := account(g)
		if account == "" {
			continue
		}
		if same[account] == nil {
			order = append(order, account)
		}
		same[account] = append(same[account], g.Name)
	}
	for _, account := range order {
		if names := same[account]; len(names) > 1 {
			x.add(warn("dedupe_scope", names[0], "write dedupe_scope: all; or make them one gateway",
				"the gateways %s call the same address with the same credentials, and an id is known to each of them alone: a job sent to two of them is called twice", named3(names)))
		}
	}
}

// named3 names the first few.
func named3(names []string) string {
	const few = 3
	text := strings.Join(names[:min(few, len(names))], ", ")
	if more := len(names) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// account returns a text that is equal for gateways that use the same account; empty if unknown.
func account(g config.Gateway) string {
	var whose []string
	for _, name := range slices.Sorted(maps.Keys(g.Request.Headers)) {
		if value := g.Request.Headers[name].Reveal(); sensitive.MatchString(name) && value != "" {
			whose = append(whose, strings.ToLower(name)+": "+value)
		}
	}
	if o := g.Request.OAuth2; o.On && o.ClientID != "" {
		whose = append(whose, "oauth2 "+o.ClientID+" "+o.ClientSecret.Reveal())
	}
	if secret := g.Request.Sign.Secret.Reveal() + g.Request.Sign.PrivateKey.Reveal(); secret != "" {
		whose = append(whose, "sign "+secret)
	}
	url := g.Request.URL.Reveal()
	if len(whose) == 0 || url == "" || len(g.Request.JobHeaders) > 0 { // which may name another account for each job
		return ""
	}
	return strings.Join(append(whose, url), "\n")
}
