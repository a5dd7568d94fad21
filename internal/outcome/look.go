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

// LookTable gives the answers to a gateway's look-ups a meaning. Make it with NewLookTable.
type LookTable struct{ LookConfig }

// LookConfig configures a LookTable.
type LookConfig struct {
	// Rules are tried in order: the first that matches decides. None: ask again later.
	Rules []job.LookRule
	// Scan searches a list. nil: an answer is about one payment.
	Scan *job.Scan
	// Matches maps dotted paths in the answer or its item to required values, as in Scan.Match. If they differ,
	// the answer is about another payment. A payment is recorded as done, or as refused by a 2xx, only if the
	// answer has all of these values that the job has.
	Matches map[string]string
	// Reference is the dotted path of the gateway's reference; empty = none.
	Reference string
	// Key is the form of the idempotency keys.
	Key job.KeyShape
	// OneKey says that an answer can only be about the call with the job's current key. If false, it may be
	// about an earlier call, which ended in a definite no.
	OneKey bool
	// ByID says that the payment is found by the job's id alone, which calls carry in the payload, if at all. A
	// payload without it makes a payment that look-ups never find.
	ByID bool
	// Within is how far before the job's first call a list must go back, because the gateway's clock may
	// differ.
	Within time.Duration
	// Most is the longest pause that an answer can ask for. Zero means 15 min.
	Most time.Duration
	// Hide removes secrets and personal data from a text of an answer. nil: nothing.
	Hide func(text []byte) []byte
}

// NewLookTable checks the rules.
func NewLookTable(c LookConfig) (LookTable, error) {
	for i, r := range c.Rules {
		if err := checkLookRule(r); err != nil {
			return LookTable{}, fmt.Errorf("rule %d: %w", i+1, err)
		}
	}
	if c.Most <= 0 {
		c.Most = usualMax
	}
	return LookTable{c}, nil
}

func checkLookRule(r job.LookRule) error {
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
	return checkWanted(r.Header, r.Body)
}

// LookInput is one look-up's result, with what is needed to judge it.
type LookInput struct {
	Result job.Result
	Look   job.Look
	// Received is the arrival time of the answer by the local clock (see Input.Received).
	Received time.Time
}

// Judge returns what a look-up's result means. An answer that can't be parsed, or is not certainly about this
// job's payment, settles nothing.
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
	if f.Verdict == job.LookNotDone && t.ByID && !a.carriesID() {
		f.Verdict, f.After = job.LookLater, 0
		f.Error += " (" + notSearchable + ")"
	}
	return f
}

// notSearchable is why a missing payment is not believed to be missing.
const notSearchable = "the job's payload does not have its id, by which the look-up searches, so its payment is not found even if it was made"

// carriesID reports whether a value of the job's payload is the job's id.
func (a *lookAnswer) carriesID() bool {
	doc, _ := parse(job.Result{Body: a.in.Look.Job.Payload})
	return holds(doc, a.in.Look.Job.ID)
}

// holds reports whether a value anywhere in a document is this text.
func holds(doc any, text string) bool {
	switch at := doc.(type) {
	case map[string]any:
		for _, v := range at {
			if holds(v, text) {
				return true
			}
		}
		return false
	case []any:
		return slices.ContainsFunc(at, func(v any) bool { return holds(v, text) })
	}
	return textOf(doc) == text
}

// failing reports whether the gateway failed to answer the question.
func failing(res job.Result) bool {
	switch res.Status {
	case http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return res.Status >= 500 || TimedOut(res.Status) || res.Renewed
}

// denied reports whether the gateway denies these credentials, if no rule says otherwise. That says nothing
// about a payment, and an operator has to fix it.
func denied(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// lookAnswer is a look-up's answer being judged.
type lookAnswer struct {
	t       LookTable
	in      LookInput
	line    answer
	payload any // the job's, once needed
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

// succeeded reports whether the answer is a 2xx, which should contain the payment.
func (a *lookAnswer) succeeded() bool { return a.in.Result.Status/100 == 2 }

// document parses a single JSON document, with numbers as written.
func document(body []byte) (doc any, err error) {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(body, byteOrderMark)))
	d.UseNumber()
	if err = d.Decode(&doc); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more behind it")
	}
	return doc, nil
}

// about returns the finding for an answer about one payment. words describes the answer for a person.
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

// earlierNo reports whether a refusal may be about an earlier call: one that ended in a no and was retried, or
// one with another key.
func (a *lookAnswer) earlierNo() bool {
	l := a.in.Look
	return l.Declined || l.KeyGeneration > max(l.AbsentKey, 1) && !a.t.OneKey
}

// mayBeEarlier is why such a refusal is not believed.
const mayBeEarlier = "an earlier call of the job ended in a no, and the answer may be about that one"

// rule returns the first rule that matches, and whether one does. absent: the list has no such payment.
func (a *lookAnswer) rule(doc any, absent bool) (job.LookRule, bool) {
	for _, r := range a.t.Rules {
		if r.Absent == absent && fits(r, a.in.Result, doc) {
			return r, true
		}
	}
	return job.LookRule{}, false
}

// fits reports whether a rule matches an answer, whose status and headers are in res.
func fits(r job.LookRule, res job.Result, doc any) bool {
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

// listed reports whether every list on the path of an absent field exists: an answer of another kind has no
// such payment either.
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

// differing returns why an answer is not about this job's payment; empty if it is. With books, it must have
// every value that the job has, and at least one.
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

// is reports whether a value of an answer is the job's own, and whether the job has one. Ids are compared
// exactly.
func (a *lookAnswer) is(field string, theirs any) (mine, has bool) {
	ours := a.own(field)
	if strings.HasPrefix(field, "{") {
		return textOf(theirs) == textOf(ours), textOf(ours) != ""
	}
	return same(theirs, ours), textOf(ours) != ""
}

// own returns the job's value for a field of its payload, or for {id}, {key} or {reference}.
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

// reference returns the gateway's reference in an answer, or the known one.
func (a *lookAnswer) reference(doc any, rule job.LookRule) string {
	t := Table{reference: a.t.Reference}
	known := answer{in: a.line.in, parsed: true, doc: doc, ok: true}
	if ref := t.referred(&known, Judgement{Verdict: job.VerdictDone}, rule.Reference).Reference; ref != "" {
		return ref
	}
	return a.in.Look.Reference
}
