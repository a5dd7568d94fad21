package outcome

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"spillway/internal/job"
	"spillway/internal/pan"
)

// maxErrorBytes is how much of an answer is stored in a job's record.
const maxErrorBytes = 500

// answer is an answer that several rules examine. Its body is parsed at most once.
type answer struct {
	in      Input
	most    time.Duration // the longest pause that it can ask for
	parsed  bool
	doc     any
	ok      bool
	endless bool     // the body is JSON without an end
	by      job.Rule // the rule that decided, if one did
}

type match int

const (
	differs    match = iota
	matches          // everything in the rule matches
	unreadable       // the rule needs a body of which only a part arrived
)

// match compares a rule with the answer. A rule about the body can't be decided if the body was cut off. Going
// on to the next rule, and then treating a 200 as a success, might take "try later" for a payment.
func (a *answer) match(r job.Rule) match {
	switch again := a.in.Again || a.in.Lapse; {
	case r.Status != 0 && r.Status != a.in.Result.Status && r.Status != a.in.Result.Status/100:
		return differs
	case r.When == job.WhenFirst && again, r.When == job.WhenRepeat && !again:
		return differs
	}
	h := http.Header(a.in.Result.Header)
	for name, want := range r.Header {
		if !job.Fits(want, h.Get(name)) {
			return differs
		}
	}
	if len(r.Body) == 0 {
		return matches
	}
	doc, _ := a.body()
	if a.partial() {
		return unreadable
	}
	for path, want := range r.Body {
		if got, ok := fieldOf(doc, path); !ok || !job.Fits(want, got) {
			return differs
		}
	}
	return matches
}

// body returns the answer's document, and whether there is one.
func (a *answer) body() (any, bool) {
	if !a.parsed {
		a.parsed = true
		a.doc, a.ok = parse(a.in.Result)
		a.endless = !a.ok && endless(a.in.Result.Body)
	}
	return a.doc, a.ok
}

// partial reports whether only a part of the body arrived, and the part is not a document. A body that ends with
// its connection shows only by its JSON that the end is missing.
func (a *answer) partial() bool {
	if _, ok := a.body(); ok {
		return false
	}
	return a.in.Result.Err != nil || a.endless
}

// byteOrderMark may precede a text in UTF-8.
var byteOrderMark = []byte("\ufeff")

// endless reports whether a body is JSON without an end.
func endless(body []byte) bool {
	body = bytes.TrimSpace(bytes.TrimPrefix(body, byteOrderMark))
	if len(body) == 0 || body[0] != '{' && body[0] != '[' {
		return false
	}
	var doc json.RawMessage
	return errors.Is(json.NewDecoder(bytes.NewReader(body)).Decode(&doc), io.ErrUnexpectedEOF)
}

// parse parses JSON, with numbers as written, or a form.
func parse(r job.Result) (any, bool) {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(r.Body, byteOrderMark)))
	d.UseNumber()
	var doc any
	if d.Decode(&doc) == nil {
		return doc, true
	}
	if r.Err != nil || !bytes.ContainsRune(r.Body, '=') || bytes.HasPrefix(bytes.TrimSpace(r.Body), []byte("<")) {
		return nil, false
	}
	form, err := url.ParseQuery(string(r.Body))
	if err != nil || endless(r.Body) {
		return nil, false
	}
	flat := make(map[string]any, len(form))
	for name, values := range form {
		if strings.ContainsFunc(name, unicode.IsSpace) {
			return nil, false // a sentence with a = in it
		}
		flat[name] = values[0]
	}
	return flat, true
}

// fieldOf returns the text at a dotted path. A missing field counts as empty, like a missing header. ok is
// false for a list or an object, and if there is no document with fields: an error page does not say that there
// was no error.
func fieldOf(doc any, path string) (text string, ok bool) {
	v, there := follow(doc, path)
	if !there {
		return "", hasFields(doc)
	}
	return scalar(v)
}

func hasFields(doc any) bool {
	fields, _ := doc.(map[string]any)
	return len(fields) > 0
}

// lookUp returns the scalar at a dotted path as text.
func lookUp(doc any, path string) (string, bool) {
	v, there := follow(doc, path)
	if !there {
		return "", false
	}
	return scalar(v)
}

// follow returns the value at a dotted path, and whether there is one.
func follow(doc any, path string) (any, bool) {
	for _, step := range strings.Split(path, ".") {
		switch at := doc.(type) {
		case map[string]any:
			next, ok := at[step]
			if !ok {
				return nil, false
			}
			doc = next
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			doc = at[i]
		default:
			return nil, false
		}
	}
	return doc, true
}

func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "null", true
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		return v.String(), true
	}
	return "", false
}

// maxReference is the longest reference of a gateway, in characters.
const maxReference = 100

// referred adds the gateway's reference to a success. Text that is too long, or not visible ASCII, is not a
// reference.
func (t Table) referred(a *answer, j Judgement, path string) Judgement {
	if path = cmp.Or(path, t.reference); j.Verdict != job.VerdictDone && j.Verdict != job.VerdictAccepted || path == "" {
		return j
	}
	doc, _ := a.body()
	said, ok := lookUp(doc, path)
	ref := string(a.in.shown([]byte(said)))
	if pan.ContainsString(said) && !pan.ContainsString(ref) {
		return j // it was a card number; masked, it would not find the payment
	}
	if ok && ref != "null" && len(ref) <= maxReference && strings.IndexFunc(ref, func(r rune) bool { return r <= ' ' || r > '~' }) < 0 {
		j.Reference = ref
	}
	return j
}

// why returns the status and the part of the body that decided, in the rule's words: nothing that the gateway
// wrote. For a 5xx it returns only the status: such answers are compared with each other (see savedFailure),
// and a repeated one may match another rule.
func (a *answer) why() string {
	status := "HTTP " + strconv.Itoa(a.in.Result.Status)
	if len(a.by.Body) == 0 || a.in.Result.Status >= 500 {
		return status
	}
	var fields []string
	for _, path := range slices.Sorted(maps.Keys(a.by.Body)) {
		switch want := a.by.Body[path]; {
		case want == "":
			fields = append(fields, path+" is empty")
		case isPattern(want):
			fields = append(fields, path+" matches "+want)
		default:
			fields = append(fields, path+" is "+want)
		}
	}
	return status + ", " + strings.Join(fields, " and ")
}

func (a *answer) retryAfter() bool {
	_, ok := retryAfter(http.Header(a.in.Result.Header), a.in.Received)
	return ok
}

// line returns the status and the beginning of the answer.
func (a *answer) line() string {
	if text := oneLine(a.in.shown(a.in.Result.Body)); text != "" {
		return a.why() + ": " + text
	}
	return a.why()
}

// oneLine returns the beginning of a text on one line: at most maxErrorBytes, whole characters, white space
// collapsed, and no terminal control sequences.
func oneLine(text []byte) string {
	var b strings.Builder
	gap := false
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		text = text[size:]
		if unicode.IsSpace(r) || !unicode.IsPrint(r) {
			gap = b.Len() > 0
			continue
		}
		if b.Len()+utf8.RuneLen(r)+1 > maxErrorBytes {
			break
		}
		if gap {
			b.WriteByte(' ')
			gap = false
		}
		b.WriteRune(r)
	}
	return b.String()
}

func isPattern(want string) bool {
	_, is := job.Pattern(want)
	return is
}
