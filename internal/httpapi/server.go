package httpapi

import (
	"log/slog"
	"net/http"
	"time"
)

// times bound how long a caller may take. A connection without a bound could be held forever.
type times struct {
	head  time.Duration // for the head of a request
	read  time.Duration // for a whole request; for many jobs, between two pieces of the body
	write time.Duration // for a whole answer; for many jobs, for each piece
	idle  time.Duration // between two requests
	// refuse is how long the rest of a refused request is read, so that the caller sees the reason.
	refuse time.Duration
	// unread is how long a POST of many jobs waits for the caller to read once the spool is full; shorter than
	// write.
	unread time.Duration
}

func defaultTimes() times {
	return times{head: 5 * time.Second, read: 30 * time.Second, write: time.Minute, idle: 2 * time.Minute, refuse: time.Second, unread: 30 * time.Second}
}

// headMost bounds the head of a request, in bytes.
const headMost = 64 << 10

// Server returns the HTTP server, with time limits for every phase of a connection. Serve it on a listener of
// Bound.
func (a *API) Server(log *slog.Logger) *http.Server {
	t := a.times
	return &http.Server{Handler: a, ReadHeaderTimeout: t.head, ReadTimeout: t.read, WriteTimeout: t.write, IdleTimeout: t.idle,
		MaxHeaderBytes: headMost, ConnContext: withConn, ConnState: moved, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
}

// refused reports whether an answer ends its connection: always for a refused caller, and otherwise if an
// unwanted body may still come.
func refused(r *http.Request, status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return true
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return r.ContentLength != 0
	}
	return false
}

// refuse sends the answer at once and ends the connection soon, whatever is still to come of the request.
func refuse(w http.ResponseWriter, within time.Duration) {
	w.Header().Set("Connection", "close")
	rc := http.NewResponseController(w)
	_ = rc.EnableFullDuplex() // without it the answer waits for the body; not supported by a test recorder
	_ = rc.SetReadDeadline(time.Now().Add(within))
}
