package outcome

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"spillway/internal/job"
)

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
func (t Table) With(rules []job.Rule) (Table, error) {
	var faults []error
	for i, r := range rules {
		if err := checkRule(r); err != nil {
			faults = append(faults, fmt.Errorf("rule %d: %w", i+1, err))
		}
	}
	if len(faults) > 0 {
		return Table{}, errors.Join(faults...)
	}
	t.user = append(slices.Clone(rules), t.user...)
	return t, nil
}

// Referring returns the table with a dotted path to the gateway's reference in answers that mean done; "" reads
// none.
func (t Table) Referring(path string) Table {
	t.reference = path
	return t
}

// Saving returns the table with whether the gateway saves 5xx answers under the key. Empty leaves the profile's
// setting.
func (t Table) Saving(failures job.Saved) Table {
	if failures != "" {
		t.saves = failures == job.SavedAnswer
	}
	return t
}

// Holding returns the table with a limit on the pause that an answer can ask for. Zero means 15 min.
func (t Table) Holding(most time.Duration) Table {
	t.most = most
	return t
}

// Hiding returns the table with hide applied to everything stored of an answer. The answer itself is judged
// unmasked: a merchant number may be in a header, and a masked answer may be invalid JSON, so that a no would
// be taken for a yes.
func (t Table) Hiding(hide func([]byte) []byte) Table {
	t.hide = hide
	return t
}

// Needing returns the table that takes a 2xx for done only if its body has, at each of these dotted paths, one
// of the values. Rules precede it.
func (t Table) Needing(needs map[string][]string) Table {
	t.needs = needs
	return t
}

func checkRule(r job.Rule) error {
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
	return checkWanted(r.Header, r.Body)
}

// checkWanted checks the values that headers and fields of an answer must have.
func checkWanted(all ...map[string]string) error {
	for _, wanted := range all {
		for name, want := range wanted {
			if err := job.CheckWanted(want); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// stripe returns the rules for Stripe (docs.stripe.com/api/errors, docs.stripe.com/error-low-level). A 429 has
// several reasons: a lock timeout, which the body names and which lacks the header, and a limit on one resource
// concern only that object; any other 429 holds, by default. A key can be in use by a call that is still
// running, or have been used with other parameters, which says nothing about that call's outcome.
func stripe() []job.Rule {
	const header = "Stripe-Rate-Limited-Reason"
	otherUse := map[string]string{"error.type": "idempotency_error"}
	reason := func(value string, then job.Verdict) job.Rule {
		return job.Rule{Status: 429, Header: map[string]string{header: value}, Then: then}
	}
	return []job.Rule{
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
