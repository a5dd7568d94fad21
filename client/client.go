// Package client talks to a Spillway dispatcher over HTTP: it hands jobs over, looks them up, and reads what became of them.
//
//	c, err := client.New("http://127.0.0.1:9400", client.Token(os.Getenv("DISPATCHER_TOKEN")))
//	if err != nil {
//		return err
//	}
//	_, err = c.Enqueue(ctx, client.Job{Gateway: "stripe", ID: "inv-1042", Payload: map[string]any{"amount": 4900, "currency": "EUR"}})
//
// A Client tries again by itself while the dispatcher is away, is stopping, or asks to come again. That is safe: a job is known by its id, and an act by a key of its
// own. Every call ends with its context. Money is in minor units, as whole numbers of any size.
package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client talks to one dispatcher, or to many behind one address. Safe for concurrent use. The zero Client is of no use: see New.
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

// Token is what the dispatcher asks for: the token of its configuration. The default is none, which a dispatcher answers on loopback alone.
func Token(token string) Option { return func(c *Client) { c.token = token } }

// HTTPClient has calls made by h, for certificates or a proxy of your own. Its Timeout must be 0: it would cut streams off. Without a CheckRedirect no redirect is followed, which would take the token elsewhere. The default is a client of its own, with HTTP/1.1
// and HTTP/2 and the proxy of the environment.
func HTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// Patience is how long a call keeps trying while the dispatcher gives no answer, or asks to come again. 0 or less is not at all: each call is tried once. The default is a minute. A call that
// is asked to wait for longer returns at once. Outcomes tries until its context ends, whatever this says.
func Patience(d time.Duration) Option { return func(c *Client) { c.patience = d } }

// WaitForRoom has Enqueue keep a job that admission has no room for, and send it again when there may be some, for as long as Patience says. By default such a job is handed over
// at once: Spillway parks it, and with "replay: auto" in its configuration lets it in by itself, in order, as room appears.
func WaitForRoom() Option { return func(c *Client) { c.wait = true } }

// OnRetry has f hear of each failure that is tried again, before the wait. f must not block. The default is nobody.
func OnRetry(f func(Retry)) Option { return func(c *Client) { c.onRetry = f } }

// Retry is a failure that is tried again.
type Retry struct {
	Err  error         // what went wrong, mostly an *Error
	Wait time.Duration // until the next try
}

// New returns a client of the dispatcher at this address, such as "http://127.0.0.1:9400". It calls nobody.
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

// withoutUser cuts off what may be a password.
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

// stay follows no redirect: it would send the token and the jobs elsewhere, or turn a POST into a GET.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
