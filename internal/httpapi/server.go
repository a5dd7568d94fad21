package httpapi

import (
	"log/slog"
	"net/http"
	"time"
)

// times bound how long a caller may take. A connection without a bound is one that anybody can hold for ever.
type times struct {
	head  time.Duration // for the head of a request
	read  time.Duration // for a request in all; of many jobs, between two pieces of the body
	write time.Duration // for an answer in all; of many jobs, for each piece of it
	idle  time.Duration // between two requests
	// refuse is how long what is left of a refused request is read, so that the caller sees why.
	refuse time.Duration
	// unread is how long many jobs wait for the caller to read what the spool has no more room for; shorter than write.
	unread time.Duration
}

func defaultTimes() times {
	return times{head: 5 * time.Second, read: 30 * time.Second, write: time.Minute, idle: 2 * time.Minute, refuse: time.Second, unread: 30 * time.Second}
}

// headMost bounds the head of a request, in bytes.
const headMost = 64 << 10

// Server returns the server of the HTTP side, with a bound of time for every way that a connection may take. Serve it on a listener of Bound.
func (a *API) Server(log *slog.Logger) *http.Server {
	t := a.times
	return &http.Server{Handler: a, ReadHeaderTimeout: t.head, ReadTimeout: t.read, WriteTimeout: t.write, IdleTimeout: t.idle,
		MaxHeaderBytes: headMost, ConnContext: withConn, ConnState: moved, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
}

// refused says whether an answer ends its connection: of a caller who was not let in always, else where a body may still come that nobody wants.
func refused(r *http.Request, status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return true
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return r.ContentLength != 0
	}
	return false
}

// refuse has the answer go out at once and the connection end soon, whatever is still to come of the request.
func refuse(w http.ResponseWriter, within time.Duration) {
	w.Header().Set("Connection", "close")
	rc := http.NewResponseController(w)
	_ = rc.EnableFullDuplex() // without it the answer waits for the body; a recorder of a test has none
	_ = rc.SetReadDeadline(time.Now().Add(within))
}
