// Package client talks to a Spillway dispatcher over HTTP: it enqueues jobs, looks them up, and reads what became of them.
//
//	c, err := client.New("http://127.0.0.1:9400", client.Token(os.Getenv("DISPATCHER_TOKEN")))
//	if err != nil {
//		return err
//	}
//	_, err = c.Enqueue(ctx, client.Job{Gateway: "stripe", ID: "inv-1042", Payload: map[string]any{"amount": 4900, "currency": "EUR"}})
//
// A Client tries again automatically while the dispatcher is away, is stopping, or asks to come again. That is safe: a job is known by its id, and an act by its own
// key. Every call ends with its context. Money is in minor units, as whole numbers of any size.
package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client talks to one dispatcher, or to many behind one address. It is safe for concurrent use. The zero Client can't be used: see New.
type Client struct {
	base     string // without a slash at its end
	token    string
	http     *http.Client
	patience time.Duration
	wait     bool
	onRetry  func(Retry)
}

// Option is a setting of a Client.
type Option func(*Client)

// Token is the token of the dispatcher's configuration. The default is none, which a dispatcher accepts only on loopback.
func Token(token string) Option { return func(c *Client) { c.token = token } }

// HTTPClient makes calls with h, for certificates or a proxy of your own. Its Timeout must be 0: else it would cut streams off. If h has no CheckRedirect, no redirect is followed, because that would send the token elsewhere. The default is a client with HTTP/1.1,
// HTTP/2 and the proxy of the environment.
func HTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// Patience is how long a call keeps trying while the dispatcher gives no answer, or asks to come again. With 0 or less each call is tried once. The default is a minute. A call that
// is asked to wait for longer returns at once. Outcomes always tries until its context ends.
func Patience(d time.Duration) Option { return func(c *Client) { c.patience = d } }

// WaitForRoom makes Enqueue keep a job for which admission has no room, and send it again when there may be room, for as long as Patience says. By default such a job is accepted
// at once: Spillway parks it, and with "replay: auto" in its configuration admits it automatically, in order, when there is room.
func WaitForRoom() Option { return func(c *Client) { c.wait = true } }

// OnRetry calls f for each failure that is tried again, before the wait. f must not block. By default nothing is called.
func OnRetry(f func(Retry)) Option { return func(c *Client) { c.onRetry = f } }

// Retry is a failure that is tried again.
type Retry struct {
	Err  error         // what went wrong, mostly an *Error
	Wait time.Duration // until the next try
}

// New returns a client of the dispatcher at this address, such as "http://127.0.0.1:9400". It makes no call.
func New(address string, options ...Option) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is not an address of a dispatcher: write it like http://127.0.0.1:9400", withoutUser(address))
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the address of a dispatcher has neither a user nor a query: give the token with client.Token")
	}
	c := &Client{base: strings.TrimRight(u.String(), "/"), patience: time.Minute, http: &http.Client{Transport: transport()}}
	for _, set := range options {
		set(c)
	}
	if c.http.CheckRedirect == nil {
		own := *c.http
		own.CheckRedirect = stay
		c.http = &own
	}
	return c, nil
}

// withoutUser removes what may be a password.
func withoutUser(address string) string {
	if at := strings.LastIndex(address, "@"); at >= 0 {
		return address[at+1:]
	}
	return address
}

// idleConns is how many connections are kept for the next calls.
const idleConns = 16

func transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = idleConns
	t.ResponseHeaderTimeout = answerWithin
	return t
}

// stay follows no redirect. A redirect would send the token and the jobs elsewhere, or turn a POST into a GET.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

const (
	// answerWithin is how long the head of an answer may take. It is longer than the longest wait for outcomes, and than a search.
	answerWithin = 75 * time.Second
	// answerMost bounds an answer that is not a stream, and a line of one, in bytes.
	answerMost = 64 << 20

	asJSON   = "application/json"
	asLines  = "application/x-ndjson"
	asEvents = "text/event-stream"
)

// call is one request.
type call struct {
	method, path string
	query        url.Values
	header       map[string]string
	body         []byte
}

// path joins parts, each of them escaped. Proxies interpret . and .. as steps.
func path(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		escaped := url.PathEscape(p)
		if escaped == "." || escaped == ".." {
			escaped = strings.ReplaceAll(escaped, ".", "%2E")
		}
		b.WriteString("/" + escaped)
	}
	return b.String()
}

func (c *Client) request(ctx context.Context, k call) (*http.Request, error) {
	address := c.base + k.path
	if len(k.query) > 0 {
		address += "?" + k.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, k.method, address, bytes.NewReader(k.body))
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if k.body != nil {
		r.Header.Set("Content-Type", asJSON)
	}
	for name, value := range k.header {
		r.Header.Set(name, value)
	}
	return r, nil
}

// once makes a request, and returns its answer if that is a success.
func (c *Client) once(ctx context.Context, k call) (*http.Response, problem, *Error) {
	r, err := c.request(ctx, k)
	if err != nil {
		return nil, problem{}, &Error{Code: InvalidRequest, Detail: err.Error(), Err: err}
	}
	back, err := c.http.Do(r)
	if err != nil {
		return nil, problem{}, noAnswer(err)
	}
	if back.StatusCode < http.StatusOK || back.StatusCode >= http.StatusMultipleChoices {
		defer back.Body.Close()
		p, e := refusal(back)
		return nil, p, e
	}
	return back, problem{}, nil
}

// ask makes a request until there is an answer, and reads that as JSON into v.
func (c *Client) ask(ctx context.Context, k call, v any) error {
	b := c.backoff()
	for {
		failed := c.askOnce(ctx, k, v)
		if failed == nil {
			return nil
		}
		if err := b.pause(ctx, failed); err != nil {
			return err
		}
	}
}

func (c *Client) askOnce(ctx context.Context, k call, v any) *Error {
	back, _, failed := c.once(ctx, k)
	if failed != nil {
		return failed
	}
	defer back.Body.Close()
	text, err := io.ReadAll(io.LimitReader(back.Body, answerMost))
	if err != nil {
		return noAnswer(err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return &Error{Code: NoAnswer, Status: back.StatusCode, Detail: "what answers at " + back.Request.URL.Host + " is not a dispatcher, or a newer one: " + err.Error(), Err: err}
	}
	return nil
}

// eachLine makes a request, and passes on each whole line of its answer.
func (c *Client) eachLine(ctx context.Context, k call, take func([]byte) error) *Error {
	back, _, failed := c.once(ctx, k)
	if failed != nil {
		return failed
	}
	defer back.Body.Close()
	for lines := bufio.NewReader(back.Body); ; {
		text, err := readLine(lines)
		if err == io.EOF && len(text) == 0 {
			return nil
		}
		if err != nil {
			return noAnswer(err)
		}
		if err := take(text); err != nil {
			return &Error{Code: NoAnswer, Status: back.StatusCode, Detail: "a line of the answer can't be read: " + err.Error(), Err: err}
		}
	}
}

// errLong is the error for a line that no dispatcher sends.
var errLong = errors.New("a line of it has no end")

// readLine reads a line with its end, of up to answerMost bytes.
func readLine(from *bufio.Reader) (text []byte, err error) {
	for {
		part, err := from.ReadSlice('\n')
		if len(text)+len(part) > answerMost {
			return nil, errLong
		}
		text = append(text, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, err
		}
	}
}

// get asks for a view.
func get[T any](ctx context.Context, c *Client, query url.Values, parts ...string) (v T, err error) {
	err = c.ask(ctx, call{method: http.MethodGet, path: path(parts...), query: query}, &v)
	return v, err
}

// post sends a document, and returns the answer. It must change nothing if it is sent twice.
func post[T any](ctx context.Context, c *Client, document any, parts ...string) (v T, err error) {
	body, err := plainJSON(document)
	if err != nil {
		return v, &Error{Code: InvalidRequest, Detail: err.Error(), Err: err}
	}
	err = c.ask(ctx, call{method: http.MethodPost, path: path(parts...), body: body}, &v)
	return v, err
}

// plainJSON writes JSON on one line, and leaves <, > and & as they are.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// The back-off doubles with each try, from backoffLeast to backoffMost. The wait is a random time between half of it and all of it.
const (
	backoffLeast = 200 * time.Millisecond
	backoffMost  = 15 * time.Second
)

// backoff is the back-off of one call.
type backoff struct {
	c     *Client
	next  time.Duration
	until time.Time // no wait ends after it; zero: no end
}

func (c *Client) backoff() *backoff {
	return &backoff{c: c, next: backoffLeast, until: time.Now().Add(c.patience)}
}

// reset starts again with the shortest wait, after a success.
func (b *backoff) reset() {
	b.next = backoffLeast
	if !b.until.IsZero() {
		b.until = time.Now().Add(b.c.patience)
	}
}

// pause waits until the call may be tried again. It returns the error that ends the call: the failure, if it does not pass or patience is at its end; or the cause of the end of the context,
// with the last failure.
func (b *backoff) pause(ctx context.Context, failed *Error) error {
	if err := ended(ctx, failed); err != nil {
		return err
	}
	if !failed.passing() {
		return failed
	}
	wait := b.next/2 + rand.N(b.next/2+1)
	b.next = min(2*b.next, backoffMost)
	if asked := failed.RetryAfter; asked > 0 { // with jitter, so that not all clients come at the same moment
		wait = max(wait, asked+rand.N(asked/10+1))
	}
	if !b.until.IsZero() && time.Now().Add(wait).After(b.until) {
		return failed
	}
	if b.c.onRetry != nil {
		b.c.onRetry(Retry{Err: failed, Wait: wait})
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ended(ctx, failed)
	}
}

// ended returns the cause of the end of the context, with the last failure; nil if the context has not ended.
func ended(ctx context.Context, failed *Error) error {
	if ctx.Err() == nil {
		return nil
	}
	why := context.Cause(ctx)
	if failed == nil || errors.Is(failed, why) || errors.Is(failed, ctx.Err()) {
		return why
	}
	return &Error{Code: failed.Code, Status: failed.Status, Detail: failed.Detail, Hint: failed.Hint, Gateway: failed.Gateway, JobID: failed.JobID, RetryAfter: failed.RetryAfter, NeedsRole: failed.NeedsRole, Role: failed.Role, Err: why}
}
