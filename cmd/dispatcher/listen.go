package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"syscall"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/httpapi"
	"spillway/internal/job"
	"spillway/internal/oidc"
	"spillway/internal/roles"
)

// address is where run serves HTTP. given says that it was configured: then no other one may be used.
type address struct {
	text   string
	given  bool
	access httpapi.Access
}

// accessOf returns who has access.
func accessOf(cfg *config.Config) httpapi.Access {
	a := httpapi.Access{Token: cfg.Token.Reveal(), Previous: cfg.TokenPrevious.Reveal(), SecureCookie: cfg.CookieSecure}
	for _, t := range cfg.Tokens {
		a.Tokens = append(a.Tokens, t.Token)
	}
	if cfg.OIDC != nil {
		a.Provider = providerOf(cfg.OIDC)
	}
	return a
}

// providerOf returns the OpenID provider of a configuration.
func providerOf(o *config.OIDC) *oidc.Provider {
	c := oidc.Config{Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: o.ClientSecret.Reveal(), Redirect: o.Redirect, DeviceClientID: o.DeviceClientID,
		Audiences: o.Audiences, Scopes: o.Scopes, Name: o.Name, Session: o.Session}
	for _, r := range o.Roles {
		c.Rules = append(c.Rules, r.Rule)
	}
	return oidc.New(c)
}

// nextPorts is how many ports after the default one are tried if it is taken.
const nextPorts = 20

// web is the HTTP server. failed receives its error if it ends unexpectedly.
type web struct {
	srv    *http.Server
	ln     net.Listener
	failed chan error
}

// start starts the server. An empty address serves nothing.
func (w *web) start(at address, api *httpapi.API, meters *httpapi.Metrics, log *slog.Logger) error {
	if at.text == "" {
		return nil
	}
	ln, err := at.bind()
	if err != nil {
		return err
	}
	if got := ln.Addr().String(); got != at.text && !at.given {
		log.Warn("the default address is taken: serving HTTP on the next free port", "wanted", at.text, "listen", got)
	}
	at.warn(log)
	w.ln, w.srv = httpapi.Bound(ln, httpapi.MostConns(), meters, log), api.Server(log)
	go func() {
		if err := w.srv.Serve(w.ln); !errors.Is(err, http.ErrServerClosed) {
			w.failed <- fmt.Errorf("serving HTTP: %w", err)
		}
	}()
	return nil
}

// guarded refuses an address that others can reach, unless a token that can't be guessed protects it.
func (a address) guarded() error {
	host, _, err := net.SplitHostPort(a.text)
	switch {
	case err != nil:
		return cli.Usage("write host:port, like 127.0.0.1:9400", "--listen %q is not an address", a.text)
	case loopback(host):
		return nil
	case a.access.Open():
		return cli.Usage("set token: ${DISPATCHER_TOKEN} in the configuration, or listen on 127.0.0.1",
			"others can reach %s, and there is no token to keep them out", a.text)
	case a.guessable():
		return cli.Usage(config.MakeToken, "others can reach %s, and a token of fewer than %d bytes can be guessed", a.text, config.LeastToken)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// guessable reports whether a token is too short.
func (a address) guessable() bool {
	return a.access.Token != "" && len(a.access.Token) < config.LeastToken || a.access.Previous != "" && len(a.access.Previous) < config.LeastToken ||
		slices.ContainsFunc(a.access.Tokens, func(t roles.Token) bool { return t.Length > 0 && t.Length < config.LeastToken })
}

// warn logs unwise settings.
func (a address) warn(log *slog.Logger) {
	if a.guessable() {
		log.Warn(fmt.Sprintf("a token of fewer than %d bytes can be guessed", config.LeastToken), "hint", config.MakeToken)
	}
	if host, _, _ := net.SplitHostPort(a.text); !loopback(host) {
		log.Warn("the token and all that callers send go in clear over the network: this address has no TLS", "listen", a.text,
			"hint", "put a proxy with TLS before it, and let nothing else reach it")
	}
}

func (a address) bind() (*net.TCPListener, error) {
	if err := a.guarded(); err != nil {
		return nil, err
	}
	ln, err := listenTCP(a.text)
	if err == nil {
		return ln, nil
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return nil, cli.Usage("choose another --listen ADDRESS", "can't listen on %s: %v", a.text, errors.Unwrap(err))
	}
	if a.given {
		return nil, cli.Usage("give each run its own --listen ADDRESS, or --listen \"\" to serve nothing", "the port of %s is taken", a.text)
	}
	return a.bindNext()
}

func (a address) bindNext() (*net.TCPListener, error) {
	host, portText, _ := net.SplitHostPort(a.text)
	port, _ := strconv.Atoi(portText)
	for next := port + 1; next <= port+nextPorts; next++ {
		if ln, err := listenTCP(net.JoinHostPort(host, strconv.Itoa(next))); err == nil {
			return ln, nil
		}
	}
	return nil, &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("ports %d to %d are all taken", port, port+nextPorts),
		Hint: "give --listen ADDRESS, or --listen \"\" to serve nothing"}
}

func listenTCP(text string) (*net.TCPListener, error) {
	ln, err := net.Listen("tcp", text)
	if err != nil {
		return nil, err
	}
	return ln.(*net.TCPListener), nil
}

func (w *web) address() string {
	if w.ln == nil {
		return ""
	}
	return w.ln.Addr().String()
}

// stop waits, up to its bound, for requests in progress.
func (w *web) stop(ctx context.Context) error {
	if w.srv == nil {
		return nil
	}
	if err := w.srv.Shutdown(ctx); err != nil {
		return errors.Join(err, w.srv.Close())
	}
	return nil
}
