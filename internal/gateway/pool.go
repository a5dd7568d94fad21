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

type pooled struct {
	transport *http.Transport
	users     int
}

// take returns the transport of those that are called in the same way, which is made if there is none, and what lets go of it: the last one closes its idle
// connections. ok is false where nothing may be shared.
func (p *Pool) take(cfg Config, d *dialer) (t *http.Transport, leave func(), ok bool) {
	if p == nil || cfg.TLS != nil || cfg.Dial != nil {
		return nil, nil, false
	}
	w := way{addr: d.addr, secure: d.tls != nil, proxy: cfg.Proxy, timeout: d.timeout}
	p.mu.Lock()
	defer p.mu.Unlock()
	with := p.all[w]
	if with == nil {
		with = &pooled{transport: newTransport(d, d.dial)}
		with.transport.MaxIdleConnsPerHost = pooledIdle
		p.all[w] = with
	}
	with.users++
	return with.transport, sync.OnceFunc(func() { p.leave(w, with) }), true
}

func (p *Pool) leave(w way, with *pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if with.users--; with.users > 0 {
		return
	}
	if p.all[w] == with {
		delete(p.all, w)
	}
	with.transport.CloseIdleConnections()
}
