package gateway

import (
	"net/http"
	"sync"
	"time"
)

// pooledIdle is how many idle connections to one address are kept for all gateways that share them.
const pooledIdle = 4096

// Pool has the connections of gateways that are called in the same way: at the same address, through the same proxy, by the system's roots, and with as long
// to connect. Thousands of merchants of one payment service keep as many connections as they have calls under way at once, and not one each: a connection is
// some 20 kB and two goroutines. Whose a call is stands in the call. A gateway with a TLS configuration of its own has connections of its own. Safe for
// concurrent use; nil pools nothing.
type Pool struct {
	mu  sync.Mutex
	all map[way]*pooled
}

// NewPool returns a pool without a connection.
func NewPool() *Pool { return &Pool{all: make(map[way]*pooled)} }

// way is what connections have to have in common for one to do for another.
type way struct {
	addr    string
	secure  bool
	proxy   string
	timeout time.Duration
}

// pooled is the connections of one client, or of those of a Pool that are called in the same way.
type pooled struct {
	transport *http.Transport

	mu    sync.Mutex
	users int // clients that are not closed
	calls int // under way
}

// count adds clients and calls, and returns how many clients there are. Idle connections are closed when neither is left: net/http may count a connection
// among the idle ones just before its call has the answer, which would be lost.
func (p *pooled) count(users, calls int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users += users
	p.calls += calls
	if p.users == 0 && p.calls == 0 {
		p.transport.CloseIdleConnections()
	}
	return p.users
}

// take returns the connections of those that are called in the same way, which are made if there are none, and what lets go of them: the last one closes
// the idle ones. ok is false where nothing may be shared.
func (p *Pool) take(cfg Config, d *dialer) (with *pooled, leave func(), ok bool) {
	if p == nil || cfg.TLS != nil || cfg.Dial != nil {
		return nil, nil, false
	}
	w := way{addr: d.addr, secure: d.tls != nil, proxy: cfg.Proxy, timeout: d.timeout}
	p.mu.Lock()
	defer p.mu.Unlock()
	with = p.all[w]
	if with == nil {
		with = &pooled{transport: newTransport(d, d.dial)}
		with.transport.MaxIdleConnsPerHost = pooledIdle
		p.all[w] = with
	}
	with.count(1, 0)
	return with, sync.OnceFunc(func() { p.leave(w, with) }), true
}

func (p *Pool) leave(w way, with *pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if with.count(-1, 0) == 0 && p.all[w] == with {
		delete(p.all, w)
	}
}
