package outcome

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"spillway/internal/job"
)

// LookRule gives the answer to a look-up a meaning. All that is set must match.
type LookRule struct {
	// Status is the HTTP status, or 1 to 5 for all that begin with that digit. 0 = 2xx.
	Status int
	// Header and Body are as those of a Rule; Body is about the item, where a list is walked. A field that is wanted absent from a list is so only where the list is there.
	Header, Body map[string]string
	// Absent is for the end of a list that has no such payment.
	Absent bool
	// Then is what such an answer means.
	Then job.LookVerdict
	// After is, with job.LookNotDone, how long after the end of the call it is believed at the earliest.
	After time.Duration
	// Reference is the dotted path of the gateway's own reference in such an answer, or in its item. Empty means the table's.
	Reference string
}

// Scan says how the payment is found in a list.
type Scan struct {
	// Items is the dotted path of the list in an answer. Empty: the answer is the list.
	Items string
	// Match holds dotted paths into an item and what must be there: a field of the payload (dotted), or {id}, {key} or {reference} of the job. All must be there and equal.
	Match map[string]string
	// Next is the dotted path of what says where the list goes on. Empty: it has one page.
	Next string
	// Until is the dotted path of the time at which an item was made (RFC 3339), in a list with the newest first: it ends before the job's first call. Empty: it ends where it says so.
	Until string
}

// LookTable is what the answers to a gateway's look-ups mean. Make it with NewLookTable.
type LookTable struct{ LookConfig }

// LookConfig is what a LookTable goes by.
type LookConfig struct {
	// Rules are tried in their order: the first that matches decides. None: ask again later.
	Rules []LookRule
	// Scan walks a list. nil: an answer is about one payment.
	Scan *Scan
	// Matches holds dotted paths into the answer, or its item, and what must be there, as in Scan.Match: else the answer is another payment's.
	// A payment is booked as done, or as refused by a 2xx, only by an answer that has all of them which the job has.
	Matches map[string]string
	// Reference is the dotted path of the gateway's own reference; empty = none.
	Reference string
	// Key is the form of the idempotency keys.
	Key job.KeyShape
	// OneKey says that an answer can only be about the call with the job's present key. Else it may be about an earlier call, which ended in a definite no.
	OneKey bool
	// Within is how long before the job's first call a list must go back, as the gateway's clock may differ.
	Within time.Duration
	// Most is the longest wait that an answer can ask for. Zero means 15 min.
	Most time.Duration
	// Hide takes out of a text of an answer what nobody is to see. nil: nothing.
	Hide func(text []byte) []byte
}

// NewLookTable checks the rules.
func NewLookTable(c LookConfig) (LookTable, error) {
	for i, r := range c.Rules {
		if err := r.check(); err != nil {
			return LookTable{}, fmt.Errorf("rule %d: %w", i+1, err)
		}
	}
	if c.Most <= 0 {
		c.Most = usualMax
	}
	return LookTable{c}, nil
}

// Hiding returns the table that takes out of answers what hide does.
func (t LookTable) Hiding(hide func(text []byte) []byte) LookTable {
	t.Hide = hide
	return t
}

func (r LookRule) check() error {
	switch {
	case r.Status < 0 || r.Status > 5 && r.Status < 100 || r.Status >= 500 || r.Status == 5 || r.Status == http.StatusTooManyRequests:
		return fmt.Errorf("status %d decides nothing: use 100 to 499 but 429, or 1 to 4 for a class", r.Status)
	case !slices.Contains(job.LookVerdicts(), r.Then):
		return fmt.Errorf("then: %q is not a verdict of look-ups: use one of %v", r.Then, job.LookVerdicts())
	case r.Then != job.LookNotDone && r.After != 0:
		return errors.New("after: it is for not_done alone")
	case r.After < 0:
		return errors.New("after: it is below 0")
	case r.Absent && len(r.Body) > 0:
		return errors.New("absent: there is no item that could have a body")
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

// LookInput is one look-up's result with what has to be known beside it to judge it.
type LookInput struct {
	Result job.Result
	Look   job.Look
	// Received is the moment at which the answer arrived, by the local clock: see Input.Received.
	Received time.Time
}

// Judge says what a look-up's result means. What can't be read, or is not certainly about this job's payment, settles nothing.
func (t LookTable) Judge(in LookInput) job.Finding {
	res := in.Result
	f := job.Finding{Verdict: job.LookLater, Status: res.Status}
	a := &lookAnswer{t: t, in: in, line: answer{in: Input{Result: res, hide: t.Hide}}}
	switch {
	case res.Stage == job.NotSent && !res.Late && job.CodeOf(res.Err) == job.CodeInvalid:
		f.Error = errorText(res.Err, "")
	case res.Stage == job.NotSent:
		f.Failed, f.Error = true, errorText(res.Err, "the look-up was not sent")
	case res.Stage != job.Answered:
		f.Failed, f.Error = true, errorText(res.Err, "no answer came")
	case failing(res):
		f.Failed, f.Limited, f.Error = true, res.Status == http.StatusTooManyRequests, a.line.line()
		f.Wait, _ = HoldHint(res.Header, res.Status, in.Received, t.Most)
	case res.Err != nil:
		f.Failed, f.Error = true, a.line.why()+", answer cut off: "+errorText(res.Err, "")
	default:
		a.judge(&f)
	}
	return f
}

// failing says that the gateway did not answer what it was asked.
func failing(res job.Result) bool {
	switch res.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return res.Status >= 500 || res.Renewed
}

// denied says that the gateway does not let these credentials ask, where no rule says otherwise: that says nothing of a payment, and a person has to mend it.
func denied(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// lookAnswer is the answer to a look-up while it is judged.
type lookAnswer struct {
	t       LookTable
	in      LookInput
	line    answer
	payload any // the job's, once it was needed
}

// judge judges a whole answer.
func (a *lookAnswer) judge(f *job.Finding) {
	doc, err := document(a.in.Result.Body)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		f.Failed, f.Error = true, a.line.why()+", answer cut off: its JSON has no end"
	case err != nil:
		f.Failed, f.Error = denied(a.in.Result.Status), a.line.why()+": the answer is not a JSON document, which alone can settle anything"
	case a.t.Scan != nil && a.succeeded():
		a.scan(f, doc)
	default:
		*f = a.about(*f, doc, func() string { return a.line.line() })
	}
}

// succeeded says that the answer is a 2xx, which should have the payment in it.
func (a *lookAnswer) succeeded() bool { return a.in.Result.Status/100 == 2 }

// document reads one JSON document and nothing beside it, with its numbers as they stand.
func document(body []byte) (doc any, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err = d.Decode(&doc); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more behind it")
	}
	return doc, nil
}

// about returns the finding of what an answer says of one payment. words is what it says, for a person.
func (a *lookAnswer) about(f job.Finding, doc any, words func() string) job.Finding {
	rule, found := a.rule(doc, false)
	books := found && (rule.Then == job.LookDone || rule.Then == job.LookRefused && a.succeeded())
	if why := a.differing(doc, books); why != "" {
		f.Error = a.line.why() + ": " + why
		return f
	}
	if f.Error = words(); !found {
		f.Failed = denied(f.Status)
		return f
	}
	if rule.Then == job.LookRefused && a.earlierNo() {
		f.Error += " (" + mayBeEarlier + ")"
		return f
	}
	f.Verdict, f.After = rule.Then, rule.After
	if f.Verdict == job.LookDone {
		f.Error = ""
	}
	if f.Verdict != job.LookNotDone {
		f.Reference = a.reference(doc, rule)
	}
	return f
}

// earlierNo says that a refusal may be about an earlier call: one that ended in a no and was made again, or one with another key.
func (a *lookAnswer) earlierNo() bool {
	l := a.in.Look
	return l.Declined || l.KeyGeneration > max(l.AbsentKey, 1) && !a.t.OneKey
}

// mayBeEarlier is why such a refusal is not believed.
const mayBeEarlier = "an earlier call of the job ended in a no, and the answer may be about that one"

// rule returns the first rule that matches, and whether any does. absent: the list has no such payment.
func (a *lookAnswer) rule(doc any, absent bool) (LookRule, bool) {
	for _, r := range a.t.Rules {
		if r.Absent == absent && r.match(a.in.Result, doc) {
			return r, true
		}
	}
	return LookRule{}, false
}

func (r LookRule) match(res job.Result, doc any) bool {
	if r.Status != res.Status && r.Status != res.Status/100 && (r.Status != 0 || res.Status/100 != 2) {
		return false
	}
	for name, want := range r.Header {
		if !job.Fits(want, http.Header(res.Header).Get(name)) {
			return false
		}
	}
	for path, want := range r.Body {
		if got, ok := fieldOf(doc, path); !ok || !job.Fits(want, got) || got == "" && !listed(doc, path) {
			return false
		}
	}
	return true
}

// listed says of a path whose field is absent that each list which it goes through is there: an answer of another kind has no payment either.
func listed(doc any, path string) bool {
	steps := strings.Split(path, ".")
	for i, step := range steps {
		if !job.Digits(step) {
			continue
		}
		list, there := doc, true
		if i > 0 {
			list, there = follow(doc, strings.Join(steps[:i], "."))
		}
		if _, ok := list.([]any); !there || !ok {
			return false
		}
	}
	return true
}

// differing returns why an answer is not about this job's payment; empty where it is. books: it must have every field that the job has, and one at least.
func (a *lookAnswer) differing(doc any, books bool) string {
	compared := len(a.t.Matches) == 0 || a.t.Scan != nil
	for _, path := range slices.Sorted(maps.Keys(a.t.Matches)) {
		field := a.t.Matches[path]
		theirs, _ := follow(doc, path)
		mine, has := a.is(field, theirs)
		switch {
		case !has:
		case textOf(theirs) != "" && !mine:
			return "the answer is another payment's, as its " + path + " differs from the job's own, or lookup.matches compares the wrong fields"
		case books && textOf(theirs) == "":
			return "the answer has no " + path + ", by which lookup.matches tells whose payment it is"
		default:
			compared = true
		}
	}
	if books && !compared {
		return "the job has nothing by which lookup.matches could tell whose payment it is"
	}
	return ""
}

// is says whether a value of an answer is the job's own, and whether the job has one. Ids are compared letter by letter.
func (a *lookAnswer) is(field string, theirs any) (mine, has bool) {
	ours := a.own(field)
	if strings.HasPrefix(field, "{") {
		return textOf(theirs) == textOf(ours), textOf(ours) != ""
	}
	return same(theirs, ours), textOf(ours) != ""
}

// own returns what the job has for a field of its payload, or for {id}, {key} or {reference}.
func (a *lookAnswer) own(field string) any {
	look := a.in.Look
	switch field {
	case job.OwnID:
		return look.Job.ID
	case job.OwnKey:
		return a.t.Key.Text(look.Key())
	case job.OwnReference:
		return look.Reference
	}
	if a.payload == nil {
		a.payload, _ = parse(job.Result{Body: look.Job.Payload})
	}
	value, _ := follow(a.payload, field)
	return value
}

// reference returns the gateway's own reference in an answer, or the one that is known.
func (a *lookAnswer) reference(doc any, rule LookRule) string {
	t := Table{reference: a.t.Reference}
	known := answer{in: a.line.in, parsed: true, doc: doc, ok: true}
	if ref := t.referred(&known, Judgement{Verdict: job.VerdictDone}, rule.Reference).Reference; ref != "" {
		return ref
	}
	return a.in.Look.Reference
}
