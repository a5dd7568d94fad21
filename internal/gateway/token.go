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

// OAuth2 says where access tokens come from: by client credentials (RFC 6749, section 4.4).
type OAuth2 struct {
	// TokenURL is where they are asked for. Empty = calls carry none.
	TokenURL string
	// ClientID and ClientSecret are the credentials.
	ClientID, ClientSecret string
	// Scope and Audience are asked for where they are not empty.
	Scope, Audience string
	// InBody says that the credentials stand in the request's body, and not in a header (HTTP Basic).
	InBody bool
}

// maxToken is the longest access token that is taken, in bytes: more is no header.
const maxToken = 16 << 10

// Tokens asks for the access tokens of one gateway. It is safe for any number of goroutines.
type Tokens struct {
	conf    clientcredentials.Config
	at      string // where they are asked for, without what may be a secret
	timeout time.Duration
	dialer  *dialer
	client  *http.Client
}

// NewTokens returns what asks for the tokens of a configuration with an OAuth2, on the way that its calls take: by its TLS and proxy. It opens no connection.
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
	transport.DisableKeepAlives = true // the next one is hours away
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

// introduced says who asks, and for what.
type introduced struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (n introduced) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", "spillway")
	r.Header.Set("Accept", "application/json")
	return n.RoundTripper.RoundTrip(r)
}

// Within bounds how long Fetch takes.
func (t *Tokens) Within() time.Duration { return t.timeout }

// Denial is the error of an answer that holds no token.
type Denial struct {
	// Status and Header are the answer's.
	Status int
	Header map[string][]string
	text   string
}

// Error names the address and what it answered, without its text.
func (d *Denial) Error() string { return d.text }

// Fetch asks once for a token. life is how long it lives from now on, as the answer says; 0 = it does not say. The error is a *Denial where there was an
// answer; errors.Is finds job.ErrLocal in a fault of this machine.
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

// mostLife bounds how long a token is taken to live.
const mostLife = 365 * 24 * time.Hour

// lifeOf reads expires_in, in seconds, a number or a text. 0 where it is missing or no time at all.
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

// errorCode is what RFC 6749 (section 5.2) lets an error be named: never a sentence, which might repeat a secret.
var errorCode = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// badNumber is what encoding/json and strconv say of expires_in, the one number that is read.
var badNumber = regexp.MustCompile(`ParseInt|number literal`)

// failed says why there is no token. The library's own errors cite the answer and the URL.
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
