package gateway

import (
	"sync"
	"time"
)

// pooledIdle is how many idle connections to one address are kept for all gateways that share them.
const pooledIdle = 4096

// Pool holds the connections of gateways that are called in the same way: the same address, proxy and dial
// timeout, and the system's roots. With it, thousands of merchants of one payment service need as many
// connections as they have calls in flight, not one each; a connection takes some 20 kB and two goroutines. The
// call itself says which merchant it is for. A gateway with its own TLS configuration does not share
// connections. A Pool is safe for concurrent use; a nil Pool shares nothing.
type Pool struct {
	mu  sync.Mutex
	all map[way]*pooled
}

// NewPool returns an empty pool.
func NewPool() *Pool { return &Pool{all: make(map[way]*pooled)} }

// way is what connections must have in common to be shared.
type way struct {
	addr    string
	secure  bool
	proxy   string
	timeout time.Duration
}

// take returns the connections to share for cfg, creating them if needed, and a function that releases them.
// The last release closes the idle ones. ok is false if nothing may be shared.
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
