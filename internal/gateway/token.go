package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// OAuth2 says how to get access tokens: by client credentials (RFC 6749, section 4.4).
type OAuth2 struct {
	// TokenURL is the token endpoint. Empty = calls carry no tokens.
	TokenURL string
	// ClientID and ClientSecret are the credentials.
	ClientID, ClientSecret string
	// Scope and Audience are requested unless empty.
	Scope, Audience string
	// InBody sends the credentials in the request's body instead of a header (HTTP Basic).
	InBody bool
}

// maxToken is the longest access token accepted, in bytes: a longer one does not fit into a header.
const maxToken = 16 << 10

// Tokens requests the access tokens of one gateway. It is safe for concurrent use.
type Tokens struct {
	conf    clientcredentials.Config
	at      string // the endpoint, without parts that may be secret
	timeout time.Duration
	dialer  *dialer
	client  *http.Client
}

// NewTokens returns a Tokens for a configuration with an OAuth2. It uses the calls' TLS and proxy. It opens no
// connection.
func NewTokens(cfg Config) (*Tokens, error) {
	u, err := url.Parse(cfg.OAuth2.TokenURL)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("oauth2: token_url is not a URL")
	}
	o, timeout := cfg.OAuth2, dialTimeout
	if cfg.Timeout > 0 {
		timeout = min(timeout, cfg.Timeout)
	}
	t := &Tokens{at: u.Scheme + "://" + u.Host, timeout: timeout}
	t.conf = clientcredentials.Config{ClientID: o.ClientID, ClientSecret: o.ClientSecret, TokenURL: o.TokenURL,
		Scopes: strings.Fields(o.Scope), AuthStyle: oauth2.AuthStyleInHeader}
	if o.InBody {
		t.conf.AuthStyle = oauth2.AuthStyleInParams
	}
	if o.Audience != "" {
		t.conf.EndpointParams = url.Values{"audience": {o.Audience}}
	}
	if t.dialer, err = cfg.dialer(hostPort(u), u.Scheme == "https", timeout); err != nil {
		return nil, err
	}
	transport := newTransport(t.dialer, func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, _, err := t.dialer.connect(ctx)
		return conn, err
	})
	transport.DisableKeepAlives = true // the next request is hours away
	t.client = &http.Client{Transport: introduced{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return t, nil
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[bool]string{true: "443", false: "80"}[u.Scheme == "https"]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// introduced sets the User-Agent and Accept headers.
type introduced struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (n introduced) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", "spillway")
	r.Header.Set("Accept", "application/json")
	return n.RoundTripper.RoundTrip(r)
}

// Within returns the longest time that Fetch takes.
func (t *Tokens) Within() time.Duration { return t.timeout }

// Denial is the error for an answer without a token.
type Denial struct {
	// Status and Header are the answer's.
	Status int
	Header map[string][]string
	text   string
}

// Error returns the address and the kind of answer, without the answer's text.
func (d *Denial) Error() string { return d.text }

// Fetch requests a token once. life is its lifetime from now on, as the answer says; 0 = it does not say. The
// error is a *Denial if there was an answer; errors.Is finds job.ErrLocal in a fault of this machine.
func (t *Tokens) Fetch(ctx context.Context) (token string, life time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	got, err := t.conf.Token(context.WithValue(ctx, oauth2.HTTPClient, t.client))
	if err != nil {
		return "", 0, t.failed(ctx, err)
	}
	switch {
	case !strings.EqualFold(got.Type(), "Bearer"):
		return "", 0, t.denial(http.StatusOK, "token of another type than Bearer")
	case !headerSafe(got.AccessToken) || len(got.AccessToken) > maxToken:
		return "", 0, t.denial(http.StatusOK, "token that no header can carry")
	}
	return got.AccessToken, lifeOf(got), nil
}

// mostLife bounds the lifetime assumed for a token.
const mostLife = 365 * 24 * time.Hour

// lifeOf returns expires_in, in seconds, given as a number or text. It is 0 if missing or invalid.
func lifeOf(t *oauth2.Token) time.Duration {
	var seconds float64
	if _, err := fmt.Sscan(fmt.Sprint(t.Extra("expires_in")), &seconds); err != nil || !(seconds > 0) {
		return 0
	}
	return time.Duration(min(seconds, mostLife.Seconds()) * float64(time.Second))
}

func (t *Tokens) denial(status int, what string) *Denial {
	return &Denial{Status: status, text: fmt.Sprintf("HTTP %d from %s: %s", status, t.at, what)}
}

// errorCode matches the error codes of RFC 6749 (section 5.2). A sentence is never shown, because it might
// repeat a secret.
var errorCode = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// badNumber matches errors of encoding/json and strconv about expires_in, the only number that is read.
var badNumber = regexp.MustCompile(`ParseInt|number literal`)

// failed returns why there is no token. The library's own errors quote the answer and the URL.
func (t *Tokens) failed(ctx context.Context, err error) error {
	if said, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		status := said.Response.StatusCode
		if status == http.StatusProxyAuthRequired && t.dialer.proxy != nil {
			return t.dialer.proxy.refusal()
		}
		d := &Denial{Status: status, Header: said.Response.Header, text: fmt.Sprintf("HTTP %d from %s", status, t.at)}
		if code := said.ErrorCode; errorCode.MatchString(code) && !strings.Contains(code, t.conf.ClientSecret) {
			d.text += ": " + code
		}
		return d
	}
	clean, ok := errors.AsType[*callError](err)
	switch {
	case ok:
		return clean
	case ctx.Err() != nil:
		return &callError{text: fmt.Sprintf("no answer from %s within %s", t.at, t.timeout), cause: context.Cause(ctx)}
	case strings.HasPrefix(err.Error(), "oauth2: cannot parse json") && badNumber.MatchString(err.Error()):
		return t.denial(http.StatusOK, "expires_in is not a whole number")
	case strings.HasPrefix(err.Error(), "oauth2: "):
		return t.denial(http.StatusOK, "no access token in it")
	}
	return because("the connection to "+t.at+" broke"+detail(err), err)
}
