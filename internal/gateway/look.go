package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"spillway/internal/job"
)

const (
	// maxLookAnswer is how much of a look-up's answer is read: a page of a list is longer than the answer to a
	// payment.
	maxLookAnswer = 1 << 20
	// maxPage is the longest URL of a further page, in bytes.
	maxPage = 4096
	// ClockMargin is how long {first_call} is before the job's first call. The gateway's clock may be behind by
	// that much, and a list that begins too late would lack the payment.
	ClockMargin = 5 * time.Minute
)

// LookConfig says how to make look-ups at a gateway.
type LookConfig struct {
	// URL may contain {id}, {key}, {reference}, {payload.FIELD} (dotted) and {first_call} (RFC 3339) after its
	// host, which are escaped as their position requires.
	URL string
	// Method is GET or POST. Empty means GET.
	Method string
	// Body is the body of a POST, as JSON, with the same placeholders in its strings. Empty means {}.
	Body string
	// Parameter is the query parameter that takes a page's reference to the next page. Empty: a page contains
	// the whole URL.
	Parameter string
}

// Looker makes look-ups at one gateway, over the same path as its calls. It is safe for concurrent use.
type Looker struct {
	client    *Client
	key       job.KeyShape
	body      []part
	parameter string
}

// NewLooker checks the configurations and returns a Looker. It uses the calls' headers, TLS, proxy, signature
// and timeout, but not their key. It opens no connection.
func NewLooker(cfg Config, look LookConfig) (*Looker, error) {
	l := &Looker{key: cfg.Key, body: bodyParts(look.Body), parameter: look.Parameter}
	cfg.URL, cfg.Method, cfg.places = look.URL, cmp.Or(look.Method, http.MethodGet), lookPlace
	if cfg.Method != http.MethodGet && cfg.Method != http.MethodPost {
		return nil, fmt.Errorf("method: %q can't ask for anything: use GET or POST", cfg.Method)
	}
	cfg.Encoding, cfg.Strip, cfg.Key = "", nil, job.KeyShape{}
	var err error
	if l.client, err = New(cfg); err != nil {
		return nil, err
	}
	l.client.most, l.client.shape.url.who = maxLookAnswer, "lookup.url"
	return l, nil
}

// lookPlaces are the placeholders of look-ups in addition to those of calls.
var lookPlaces = []string{"key", "reference", "first_call"}

// lookPlace parses the name in a look-up's placeholder.
func lookPlace(name string) (part, error) {
	if slices.Contains(lookPlaces, name) {
		return part{look: name}, nil
	}
	p, err := parsePlace(name)
	if err != nil {
		return p, errors.New("{" + name + "} is unknown: use {id}, {lane}, {key}, {reference}, {first_call} or {payload.FIELD}")
	}
	return p, nil
}

// inBody matches a placeholder in a body, whose other braces are JSON's.
var inBody = regexp.MustCompile(`\{(id|lane|key|reference|first_call|payload\.[^{}\s"]+)\}`)

func bodyParts(text string) (parts []part) {
	for text != "" {
		at := inBody.FindStringSubmatchIndex(text)
		if at == nil {
			return append(parts, part{text: text})
		}
		place, _ := lookPlace(text[at[2]:at[3]]) // the expression matches only valid ones
		parts = append(parts, part{text: text[:at[0]]}, place)
		text = text[at[1]:]
	}
	return parts
}

// Look makes one look-up and always returns a result that can be judged, with at most the first MiB of the
// answer's body. It ends as Send does. A look-up that can't be made into a request, because the job lacks a
// value or the list continues at another server, is returned as not sent, with an error of code
// job.CodeInvalid.
func (l *Looker) Look(ctx context.Context, r job.LookRequest) job.Result {
	start := time.Now()
	call := job.Request{Job: r.Look.Job, Key: l.key.Text(r.Key), Bearer: r.Bearer, Due: r.Due, TooLate: r.TooLate, Wrote: r.Wrote}
	m, err := l.message(r, call, later(start, r.Due))
	return l.client.exchange(ctx, call, start, m, err)
}

func (l *Looker) message(r job.LookRequest, call job.Request, at time.Time) (message, error) {
	v := &values{job: call.Job, payload: call.Job.Payload, look: map[string]string{"reference": r.Look.Reference}}
	if l.key.Any() {
		v.look["key"] = call.Key
	}
	if first := r.Look.First; !first.IsZero() {
		v.look["first_call"] = stamps["rfc3339"](first.Add(-ClockMargin))
	}
	s := &l.client.shape
	target, err := s.url.render(v)
	if err == nil && r.Page != "" {
		target, err = l.page(target, r.Page)
	}
	if err != nil {
		return message{}, err
	}
	call.Key = "" // a look-up asks about the key, and does not send it
	m, err := s.head(call, target, v)
	if err == nil && s.hasBody() {
		m.body, err = l.content(v)
	}
	if s.signer != nil && err == nil {
		err = s.signer.sign(&m, call, at)
	}
	return m, err
}

// page returns the URL of a further page. It must be on the same server as the first, because the headers are
// secrets of that server.
func (l *Looker) page(first *url.URL, page string) (*url.URL, error) {
	if len(page) > maxPage {
		return nil, invalid("the address of the list's next page is longer than %d bytes", maxPage)
	}
	if l.parameter != "" {
		next := *first
		query := next.Query()
		query.Set(l.parameter, page)
		next.RawQuery = query.Encode()
		return &next, nil
	}
	next, err := first.Parse(page)
	switch {
	case err != nil:
		return nil, invalid("the address of the list's next page can't be read: where it is not an address, lookup.scan.parameter names what takes it")
	case next.Scheme != first.Scheme || !strings.EqualFold(next.Host, first.Host) || next.User != nil:
		return nil, invalid("the list goes on at another server, and nothing is sent there")
	}
	next.Fragment, next.RawFragment = "", ""
	return next, nil
}

// content returns the body with the placeholders filled in, escaped for JSON strings.
func (l *Looker) content(v *values) ([]byte, error) {
	if len(l.body) == 0 {
		return []byte("{}"), nil
	}
	var b strings.Builder
	for _, p := range l.body {
		if !p.place() {
			b.WriteString(p.text)
			continue
		}
		value, err := v.need(p, "lookup.body")
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		b.Write(text[1 : len(text)-1])
	}
	return []byte(b.String()), nil
}

// Close closes the idle connections. Look-ups in flight finish.
func (l *Looker) Close() { l.client.Close() }
