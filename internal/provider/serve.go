package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// grace is how long calls under way may take when Serve is told to stop.
const grace = 2 * time.Second

// ServeHTTP answers GET /stats, GET /calls, GET, PUT and PATCH /settings, POST /reset, and GET /lookups/ID, which says what
// became of a job. A call to any other path is a charge. Arrivals are stamped here, unless the connection came through Serve.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at, done := Arrival(r)
	defer done()
	switch r.URL.Path {
	case "/stats":
		p.serveStats(w, r)
	case "/calls":
		p.serveCalls(w, r)
	case "/settings":
		p.serveSettings(w, r)
	case "/reset":
		p.serveReset(w, r)
	default:
		if id, asks := strings.CutPrefix(r.URL.Path, lookups); asks && r.Method == http.MethodGet {
			p.serveLookup(w, r, id, at)
			return
		}
		p.serveCharge(w, r, at)
	}
}

// Arrival returns when a request arrived: its stamp if it came through Serve, or else now. The caller calls done when it has
// answered.
func Arrival(r *http.Request) (at time.Time, done func()) {
	at = time.Now()
	c, ok := r.Context().Value(stampKey{}).(*stampedConn)
	if !ok {
		return at, func() {}
	}
	return c.stamp(at), c.clear
}

// Serve answers on ln until ctx is done, and then returns nil. Each arrival is stamped at the first byte of its
// request, on Linux by the kernel: a busy machine delays the counting, but not the stamps. Connections may
// bring stamps of their own (see Listen).
func (p *Provider) Serve(ctx context.Context, ln net.Listener) error { return Serve(ctx, ln, p) }

// Serve is Provider.Serve for another handler, which gets the stamps from Arrival.
func Serve(ctx context.Context, ln net.Listener, handler http.Handler) error {
	hung, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	srv := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: time.Minute,
		BaseContext:       func(net.Listener) context.Context { return hung },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, stampKey{}, c)
		},
	}
	stampFrom(ln)
	stopped := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(stopped)
		release()
		limited, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		if srv.Shutdown(limited) != nil {
			srv.Close()
		}
	})
	err := srv.Serve(stampedListener{ln})
	if !unhook() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// stampedListener accepts connections that record when the first byte of a request arrived.
type stampedListener struct{ net.Listener }

// Accept waits for the next connection.
func (l stampedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	telling, ok := c.(interface {
		ReadStamped(p []byte) (int, time.Time, error)
	})
	if !ok {
		telling = &tellingConn{Conn: c, read: stampedReader(c)}
	}
	return &stampedConn{Conn: c, read: telling.ReadStamped}, nil
}

// Listen listens on TCP for Serve. A proxy between the two, which delays calls for example, passes the stamps on: its connections
// have the method ReadStamped too.
func Listen(addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	stampFrom(ln)
	return tellingListener{ln}, nil
}

type tellingListener struct{ net.Listener }

// Accept waits for the next connection.
func (l tellingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tellingConn{Conn: c, read: stampedReader(c)}, nil
}

// tellingConn returns when the bytes that it reads arrived.
type tellingConn struct {
	net.Conn
	read func(p []byte) (int, time.Time, error)
}

// ReadStamped reads, and returns when the bytes arrived.
func (c *tellingConn) ReadStamped(p []byte) (int, time.Time, error) { return c.read(p) }

// NetConn returns the connection beneath.
func (c *tellingConn) NetConn() net.Conn { return c.Conn }

type stampKey struct{}

// stampedConn stamps the first read of each request. Bytes that are read while the handler runs belong to the body of the same request:
// a client without pipelining sends nothing else before its answer.
type stampedConn struct {
	net.Conn
	read func(p []byte) (int, time.Time, error)

	mu sync.Mutex
	at time.Time
}

// Read reads, and records when the bytes arrived.
func (c *stampedConn) Read(p []byte) (int, error) {
	n, at, err := c.read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 && c.at.IsZero() {
		c.at = at
	}
	return n, err
}

// stamp returns when the present request arrived, or otherwise if that was not recorded.
func (c *stampedConn) stamp(otherwise time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return otherwise
	}
	return c.at
}

// clear prepares for the next request.
func (c *stampedConn) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}

// plainReader stamps with the moment at which the read returned.
func plainReader(c net.Conn) func(p []byte) (int, time.Time, error) {
	return func(p []byte) (int, time.Time, error) {
		n, err := c.Read(p)
		return n, time.Now(), err
	}
}

// lookups is the path of look-ups.
const lookups = "/lookups/"

// serveLookup answers what became of a job, and charges nothing: 200 if it was charged, 404 if it was not, or if the charge is younger than
// LookupLag. A look-up uses up the limit like a call.
func (p *Provider) serveLookup(w http.ResponseWriter, r *http.Request, id string, at time.Time) {
	c := &call{at: p.reckoned(at), id: id, look: true, common: commons(r, p.Config().Limits)}
	o := p.arriveLookup(c)
	defer p.leave()
	sleep(o.service)
	number := p.settleLookup(c, &o)
	if o.status == 0 {
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // as a call that hangs
	}
	if o.status != http.StatusOK {
		answer(w, o, number)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"id": fmt.Sprintf("ch_%d", number), "status": "succeeded", "job": id})
}

// arriveLookup counts a look-up, and decides whether it is answered.
func (p *Provider) arriveLookup(c *call) outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log.arrive(c, p.cfg.Limits, p.cfg.CountRefused)
	p.counts.Lookups++
	p.flying++
	p.counts.MaxInFlight = max(p.counts.MaxInFlight, p.flying)
	if c.over {
		p.counts.Over++
	}
	if o, refused := p.before(c, nil); refused {
		return o
	}
	switch {
	case p.cfg.Incident.Status == http.StatusInternalServerError && p.chance(p.cfg.Incident.share()), p.chance(p.cfg.LookupFail):
		return outcome{status: http.StatusInternalServerError, service: p.cfg.Service}
	case p.chance(p.cfg.LookupHang):
		return outcome{service: p.cfg.Service}
	}
	return outcome{status: http.StatusOK, service: p.cfg.Service}
}

// settleLookup finds the job, and returns the number of its charge.
func (p *Provider) settleLookup(c *call, o *outcome) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	number := 0
	if o.status == http.StatusOK {
		if who := p.ids[c.id]; who != nil && who.charges > 0 && time.Since(who.chargedAt) >= p.cfg.LookupLag {
			number = who.charge
		} else {
			o.status = http.StatusNotFound
		}
	}
	c.status = o.status
	switch o.status {
	case http.StatusOK:
		p.counts.LookupsFound++
	case http.StatusTooManyRequests:
		p.counts.TooMany++
	}
	return number
}

// notFound is the body of a look-up that finds nothing.
const notFound = `{"error":{"code":"resource_missing","message":"No such charge."}}`
