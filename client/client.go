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
	"errors"
	"fmt"
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
