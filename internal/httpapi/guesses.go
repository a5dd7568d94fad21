package httpapi

import (
	"crypto/sha256"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	guessesMost  = 10              // wrong tokens that an address may present at once
	guessesAgain = 6 * time.Second // after which it may present another one
	originsMost  = 10_000          // addresses that are remembered
)

// guesses counts wrong tokens by address. A token that can't be guessed is accepted whatever its address did
// before, so that nobody can lock others out by presenting wrong ones. A token that can be guessed, which is
// allowed only on loopback, is not accepted from an address with too many wrong ones, unless it was used from
// there before.
type guesses struct {
	mu    sync.Mutex
	from  map[string]time.Time // when an address is forgiven
	right map[rightFrom]bool
}

type rightFrom struct {
	from   string
	digest [sha256.Size]byte
}

// origin returns the address of a request; for IPv6, the network of one customer.
func origin(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() && !ip.Is4In6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.Masked().Addr().String()
		}
	}
	return host
}

// lets reports whether a valid token is accepted.
func (g *guesses) lets(from string, c credential) bool {
	if !c.short {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	key := rightFrom{from, c.digest}
	if g.right[key] {
		return true
	}
	if g.wait(from) > 0 {
		return false
	}
	if g.right == nil || len(g.right) >= originsMost {
		g.right = map[rightFrom]bool{}
	}
	g.right[key] = true
	return true
}

// failed counts a wrong token. after is when the address may present another one, if it has presented too many;
// 0: at once. first reports whether this one exceeded the limit.
func (g *guesses) failed(from string) (after time.Duration, first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if after := g.wait(from); after > 0 {
		return after, false
	}
	now := time.Now()
	if len(g.from) >= originsMost {
		g.forget(now)
	}
	if g.from == nil {
		g.from = map[string]time.Time{}
	}
	at := g.from[from]
	if at.Before(now) {
		at = now
	}
	g.from[from] = at.Add(guessesAgain)
	return 0, g.wait(from) > 0
}

// wait returns how long an address has to wait; 0: not at all.
func (g *guesses) wait(from string) time.Duration {
	at, known := g.from[from]
	if !known {
		return 0
	}
	return max(0, time.Until(at)-(guessesMost-1)*guessesAgain)
}

// forget makes room by dropping forgiven addresses or, if there are none, all.
func (g *guesses) forget(now time.Time) {
	for from, at := range g.from {
		if at.Before(now) {
			delete(g.from, from)
		}
	}
	if len(g.from) >= originsMost {
		g.from = nil
	}
}
