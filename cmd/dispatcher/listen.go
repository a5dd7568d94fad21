package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"spillway/internal/cli"
	"spillway/internal/job"
)

// address is where run serves HTTP. given says that somebody chose it: then another one won't do.
type address struct {
	text  string
	given bool
	token string
}

// nextPorts is how many ports after the default one are tried when it is taken.
const nextPorts = 20

// web serves HTTP. failed hears when it ends although nobody stopped it.
type web struct {
	srv    *http.Server
	ln     net.Listener
	failed chan error
}

// The bounds of a connection: idleTime between two requests, headerTime for the head of one. Bodies and answers are bounded by who serves them.
const (
	idleTime   = 2 * time.Minute
	headerTime = 5 * time.Second
	headerMost = 64 << 10 // bytes
)

// start listens and serves. An empty address serves nothing.
func (w *web) start(at address, h http.Handler, log *slog.Logger) error {
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
	w.ln, w.srv = ln, &http.Server{Handler: h, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: headerMost,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	go func() {
		if err := w.srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			w.failed <- fmt.Errorf("serving HTTP: %w", err)
		}
	}()
	return nil
}

// guarded refuses an address that others can reach, unless a token keeps them out.
func (a address) guarded() error {
	host, _, err := net.SplitHostPort(a.text)
	if err != nil {
		return cli.Usage("write host:port, like 127.0.0.1:9400", "--listen %q is not an address", a.text)
	}
	ip := net.ParseIP(host)
	if a.token != "" || host == "localhost" || (ip != nil && ip.IsLoopback()) {
		return nil
	}
	return cli.Usage("set token: ${DISPATCHER_TOKEN} in the configuration, or listen on 127.0.0.1",
		"others can reach %s, and there is no token to keep them out", a.text)
}

func (a address) bind() (net.Listener, error) {
	if err := a.guarded(); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", a.text)
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

func (a address) bindNext() (net.Listener, error) {
	host, portText, _ := net.SplitHostPort(a.text)
	port, _ := strconv.Atoi(portText)
	for next := port + 1; next <= port+nextPorts; next++ {
		if ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(next))); err == nil {
			return ln, nil
		}
	}
	return nil, &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("ports %d to %d are all taken", port, port+nextPorts),
		Hint: "give --listen ADDRESS, or --listen \"\" to serve nothing"}
}

func (w *web) address() string {
	if w.ln == nil {
		return ""
	}
	return w.ln.Addr().String()
}

// stop lets requests under way finish, up to its bound.
func (w *web) stop(ctx context.Context) error {
	if w.srv == nil {
		return nil
	}
	if err := w.srv.Shutdown(ctx); err != nil {
		return errors.Join(err, w.srv.Close())
	}
	return nil
}
