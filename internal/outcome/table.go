package outcome

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"spillway/internal/job"
)

// Rule gives an answer a meaning of its own. All that is set must match.
type Rule struct {
	// Status is the HTTP status, or 1 to 5 for all that begin with that digit. 0 = any.
	Status int
	// When is job.WhenFirst, job.WhenRepeat, or empty for both.
	When string
	// Header holds names, in any case, and the value wanted of each; "" wants the header absent. A value between slashes is a regular expression.
	Header map[string]string
	// Body holds dotted paths into the JSON answer (error.code, items.0.id) and the value wanted there, as text:
	// 301 and "301" are the same, true and null are words; "" wants the field absent or empty, in a body that has fields. A form-encoded answer is looked up by its flat names. A value between slashes is a regular expression.
	Body map[string]string
	// Then is what such an answer means.
	Then job.Verdict
	// Scope is what an answer concerns that means hold. Empty means the gateway.
	Scope job.Scope
	// Reference is the dotted path of the gateway's own reference in such an answer. Empty means the table's.
	Reference string
}

// Table is an ordered list of rules above what the status alone means. The zero Table is profile "default".
type Table struct {
	user, profile []Rule
	reference     string
	needs         map[string][]string // of the body of a 2xx, for done
	own           map[string]string   // fields of the body, and what they have to match
	saves         bool                // the gateway saves failures under the key
	most          time.Duration       // the longest wait that an answer can ask for; 0: usualMax
	hide          func([]byte) []byte // nil: nothing is to be hidden
}

// Profile returns a built-in table: "default" (also "") or "stripe".
func Profile(name string) (Table, error) {
	switch name {
	case "", "default":
		return Table{}, nil
	case "stripe":
		return Table{profile: stripe(), saves: true}, nil
	}
	return Table{}, fmt.Errorf("%q is not a profile of answers: use default or stripe, or write rules", name)
}

// With returns the table with rules put first. The first rule that matches decides.
func (t Table) With(rules []Rule) (Table, error) {
	var faults []error
	for i, r := range rules {
		if err := r.check(); err != nil {
			faults = append(faults, fmt.Errorf("rule %d: %w", i+1, err))
		}
	}
	if len(faults) > 0 {
		return Table{}, errors.Join(faults...)
	}
	t.user = append(slices.Clone(rules), t.user...)
	return t, nil
}

// Referring returns the table that reads the gateway's own reference at a dotted path of the body of answers that mean done; "" reads none.
func (t Table) Referring(path string) Table {
	t.reference = path
	return t
}

// Saving returns the table of a gateway that keeps 5xx under the key, as said. Empty leaves it as the profile has it.
func (t Table) Saving(failures job.Saved) Table {
	if failures != "" {
		t.saves = failures == job.SavedAnswer
	}
	return t
}

// Holding returns the table by which no answer asks for a longer wait than this. Zero means 15 min.
func (t Table) Holding(most time.Duration) Table {
	t.most = most
	return t
}

// Hiding returns the table that takes secrets which the gateway repeats out of what is kept of an answer. What the answer means is judged by the answer as it came: a
// merchant's number is a header too, and an answer with <secret> in its place is no JSON any more, so that a no would be taken for a yes.
func (t Table) Hiding(hide func([]byte) []byte) Table {
	t.hide = hide
	return t
}

// Needing returns the table that takes a 2xx for done only where its body has, at each of these dotted paths, one of the values. Rules go before it.
func (t Table) Needing(needs map[string][]string) Table {
	t.needs = needs
	return t
}

func (r Rule) check() error {
	switch {
	case r.Status == 0 && len(r.Header) == 0 && len(r.Body) == 0:
		return errors.New("it matches every answer: give it a status, a header or a body")
	case r.Status != 0 && r.Status/100 > 5 || r.Status < 0 || r.Status > 5 && r.Status < 100:
		return fmt.Errorf("status %d is not an HTTP status: use 100 to 599, 1 to 5 for a class, or leave it out for any", r.Status)
	case r.When != "" && r.When != job.WhenFirst && r.When != job.WhenRepeat:
		return fmt.Errorf("when: %q is not a call: use first or repeat, or leave it out for both", r.When)
	case !slices.Contains(job.Verdicts(), r.Then):
		return fmt.Errorf("then: %q is not a verdict: use one of %v", r.Then, job.Verdicts())
	case r.Scope != "" && !slices.Contains(job.Scopes(), r.Scope):
		return fmt.Errorf("scope: %q is not a scope: use one of %v", r.Scope, job.Scopes())
	case r.Scope != "" && r.Then != job.VerdictHold:
		return fmt.Errorf("scope: %s says what is held, and the rule says %s: write then: hold, or take the scope out", r.Scope, r.Then)
	}
	for _, wanted := range []map[string]string{r.Header, r.Body} {
		for name, want := range wanted {
			if err := job.CheckWanted(want); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// stripe knows that Stripe's 429 has several reasons. A lock time-out, which says so in its body and has no such
// header, and a limit of one resource concern that object only. A 429 for any other reason holds, by default. And that a key can be in use by a
// call that still runs, or have been used with other parameters, which says nothing of what became of that call
// (docs.stripe.com/api/errors, docs.stripe.com/error-low-level).
func stripe() []Rule {
	const header = "Stripe-Rate-Limited-Reason"
	otherUse := map[string]string{"error.type": "idempotency_error"}
	reason := func(value string, then job.Verdict) Rule {
		return Rule{Status: 429, Header: map[string]string{header: value}, Then: then}
	}
	return []Rule{
		reason("global-rate", job.VerdictHold),
		reason("endpoint-rate", job.VerdictHold),
		reason("global-concurrency", job.VerdictFewer),
		reason("endpoint-concurrency", job.VerdictFewer),
		reason("resource-specific", job.VerdictRetry),
		{Status: 409, Body: map[string]string{"error.code": "idempotency_key_in_use"}, Then: job.VerdictRetry},
		{Status: 400, Body: otherUse, Then: job.VerdictUnknown},
		{Status: 409, Body: otherUse, Then: job.VerdictUnknown},
		{Status: 429, Header: map[string]string{header: ""}, Body: map[string]string{"error.code": "lock_timeout"}, Then: job.VerdictRetry},
	}
}
