package remote

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"spillway/internal/job"
)

// There is the desk of a dispatcher over HTTP. It is safe for concurrent use.
type There struct {
	server string
	token  string
	client *http.Client
	most   int64 // bytes of an answer that is not a stream
}

// call is an operation with its request. line and remark take what precedes the answer.
type call struct {
	about   *About
	request any
	answer  any // pointer to it
	line    func(json.RawMessage) error
	remark  func(string)
}

// connectTime bounds connecting. An answer has no bound: an act may wait for room for hours, until its context
// ends.
const connectTime = 5 * time.Second

// NewThere returns the desk at the address of a dispatcher, such as https://dispatcher.example:8080. token
// authenticates; empty: none. An error with code usage says that the address is invalid.
func NewThere(server, token string) (*There, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil {
		return nil, usage("write it like https://dispatcher.example:8080; the token stands in $DISPATCHER_TOKEN", "the server is not the address of a dispatcher")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: connectTime}).DialContext
	return &There{server: strings.TrimSuffix(server, "/"), token: token, most: longestLine, client: &http.Client{Transport: transport, CheckRedirect: stay}}, nil
}

// stay follows no redirects: they would send the token elsewhere, to another port or without TLS, and repeat an act
// there.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Close implements Desk.
func (t *There) Close() { t.client.CloseIdleConnections() }

// do has the dispatcher carry it out.
func (t *There) do(ctx context.Context, c call) error {
	r, err := t.request(ctx, c)
	if err != nil {
		return err
	}
	got, err := t.client.Do(r)
	if err != nil {
		return t.away(ctx, err)
	}
	defer got.Body.Close()
	kind, _, _ := mime.ParseMediaType(got.Header.Get("Content-Type"))
	switch {
	case got.StatusCode >= http.StatusMultipleChoices && got.StatusCode < http.StatusBadRequest:
		return t.elsewhere(got)
	case got.StatusCode != http.StatusOK:
		return t.refused(got)
	case kind == typeNDJSON:
		return t.lines(ctx, c, got.Body)
	case kind != typeJSON:
		return t.foreign()
	}
	text, err := io.ReadAll(io.LimitReader(got.Body, t.most+1))
	if err != nil {
		return t.away(ctx, err)
	}
	if int64(len(text)) > t.most {
		return t.foreign()
	}
	if !knows(text, reflect.TypeOf(c.answer).Elem()) {
		return t.foreign()
	}
	return decode(text, c.answer)
}

// knows reports whether a JSON object has any of the fields that an answer always has. Other servers answer
// everything with 200 and JSON of their own.
func knows(text []byte, answer reflect.Type) bool {
	var got map[string]json.RawMessage
	if answer.Kind() != reflect.Struct || json.Unmarshal(text, &got) != nil {
		return answer.Kind() != reflect.Struct
	}
	always := always(answer)
	return len(always) == 0 || slices.ContainsFunc(always, func(name string) bool { return got[name] != nil })
}

// always returns the JSON names of a struct's fields that are never omitted.
func always(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			names = append(names, always(f.Type)...)
		case f.IsExported() && name != "" && name != "-" && option != "omitempty" && option != "omitzero":
			names = append(names, name)
		}
	}
	return names
}

const (
	typeJSON   = "application/json"
	typeNDJSON = "application/x-ndjson"
)

func (t *There) request(ctx context.Context, c call) (*http.Request, error) {
	path := c.about.Path
	for _, f := range fields(reflect.ValueOf(c.request), true) {
		path = strings.Replace(path, "{"+f.name+"}", segment(f.value.String()), 1)
	}
	var body io.Reader
	if c.about.Method == http.MethodGet {
		if q := values(c.request).Encode(); q != "" {
			path += "?" + q
		}
	} else {
		text, err := Encode(c.request)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, c.about.Method, t.server+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", typeJSON)
	}
	if c.about.Kind == Long {
		r.Header.Set("Accept", typeNDJSON)
	}
	if c.about.Act {
		r.Header.Set("Idempotency-Key", rand.Text())
	}
	if t.token != "" {
		r.Header.Set("Authorization", "Bearer "+t.token)
	}
	return r, nil
}

// segment returns a name as a path segment. Proxies, and net/http, interpret . and .. as path steps.
func segment(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(name)
}

// problem is an error answer.
type problem struct {
	Detail string   `json:"detail"`
	Hint   string   `json:"hint"`
	Code   string   `json:"code"`
	Kind   job.Code `json:"kind"`
}

func (p problem) err() error {
	kind := p.Kind
	if kind == "" {
		kind = job.CodeFailed
	}
	return &job.Error{Code: kind, Message: p.Detail, Hint: p.Hint}
}

// refused returns the error of an error answer, in the other side's words.
func (t *There) refused(got *http.Response) error {
	var p problem
	text, err := io.ReadAll(io.LimitReader(got.Body, job.MaxLine))
	if err != nil || json.Unmarshal(text, &p) != nil || p.Code == "" || p.Code == "unknown_path" {
		return t.foreign()
	}
	if p.Code == "no_token" {
		return usage("put it into $DISPATCHER_TOKEN, or its file into $DISPATCHER_TOKEN_FILE, or run dispatcher login", "the dispatcher at "+t.server+" asks for its token, and was shown none or another one")
	}
	return p.err()
}

// elsewhere returns the error for an answer that points to another address.
func (t *There) elsewhere(got *http.Response) error {
	hint := "give --server the address of the dispatcher itself"
	if to, err := got.Location(); err == nil && to.Host != "" {
		hint += ", if that is " + to.Scheme + "://" + to.Host
	}
	return &job.Error{Code: job.CodeUnavailable, Message: fmt.Sprintf("what answers at %s redirects (HTTP %d), and the token goes nowhere else", t.server, got.StatusCode), Hint: hint}
}

func (t *There) foreign() error {
	return &job.Error{Code: job.CodeUnavailable, Message: "what answers at " + t.server + " is not a dispatcher that this program can work with",
		Hint: "look for another address, a proxy in between, or a dispatcher of another version"}
}

// away returns the error for a dispatcher that can't be reached, or broke off.
func (t *There) away(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e, is := errors.AsType[*url.Error](err); is {
		err = e.Err // it does not repeat the address with its query
	}
	return &job.Error{Code: job.CodeUnavailable, Message: "the dispatcher at " + t.server + " can't be reached", Err: err, Hint: "is it running, and is the address right?"}
}

// told is a line of NDJSON that is not the operation's own.
type told struct {
	Problem  *problem        `json:"problem"`
	Remark   *string         `json:"remark"`
	Progress json.RawMessage `json:"progress"`
	Answer   json.RawMessage `json:"answer"`
}

// longestLine bounds a line, in bytes: an answer may name many jobs.
const longestLine = 64 << 20

// lines reads NDJSON. If the operation has progress, the last line is the answer.
func (t *There) lines(ctx context.Context, c call, body io.Reader) error {
	in := bufio.NewScanner(body)
	in.Buffer(nil, longestLine)
	for in.Scan() {
		var l told
		text := in.Bytes()
		if c.about.Kind == Long || bytes.HasPrefix(text, []byte(`{"problem":`)) || bytes.HasPrefix(text, []byte(`{"remark":`)) {
			if err := decode(text, &l); err != nil {
				return err
			}
		}
		switch {
		case l.Problem != nil:
			return l.Problem.err()
		case l.Remark != nil:
			c.remark(*l.Remark)
			continue
		case l.Answer != nil:
			return decode(l.Answer, c.answer)
		case l.Progress != nil:
			text = l.Progress
		}
		if c.about.Kind == Long && l.Progress == nil {
			continue // a sign of life
		}
		if err := c.line(text); err != nil {
			return err
		}
	}
	if err := in.Err(); err != nil {
		return t.away(ctx, err)
	}
	if c.about.Kind == Long {
		return t.away(ctx, fmt.Errorf("it broke off: %w", io.ErrUnexpectedEOF))
	}
	return nil
}
