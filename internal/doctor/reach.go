package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"spillway/internal/config"
	"spillway/internal/dispatch"
)

const (
	// reachAtOnce is how many gateways are connected to concurrently.
	reachAtOnce = 16
	// certificateSoon is how long before its expiry a certificate is reported.
	certificateSoon = 14 * 24 * time.Hour
)

// way is what was found on the way to a gateway. took is how long the connection took; zero if there is none.
type way struct {
	checks []Check
	took   time.Duration
}

// reachAll connects to every gateway, and sends only the TLS handshake: a call would count.
func (x *examination) reachAll(ctx context.Context) map[string]chan way {
	ways := map[string]chan way{}
	turn := make(chan struct{}, reachAtOnce)
	for _, g := range x.p.Gateways {
		to := make(chan way, 1)
		ways[g.Name] = to
		go func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			var found way
			for _, to := range targets(g) {
				one := x.reach(ctx, g, to)
				found.checks, found.took = append(found.checks, one.checks...), max(found.took, one.took)
			}
			if o := g.Request.OAuth2; o.On { // no token is requested: some gateways invalidate the previous one then
				found.checks = append(found.checks, x.reach(ctx, g, target{o.TokenURL.Reveal(), "request.oauth2.token_url"}).checks...)
			}
			to <- found
		}()
	}
	return ways
}

// targets returns the addresses at which a gateway is called, each once.
func targets(g config.Gateway) (all []target) {
	for name, as := range g.Ways() {
		to := target{as.Request.URL.Reveal(), "request.url"}
		if name != "" && g.Request.URL != as.Request.URL {
			to.field = "routes." + name + ".request.url"
		}
		addr, _, _, err := to.address()
		if !slices.ContainsFunc(all, func(t target) bool { a, _, _, e := t.address(); return a == addr && (e == nil) == (err == nil) }) {
			all = append(all, to)
		}
	}
	return all
}

// target is an address that a gateway's calls need, and its configuration key.
type target struct{ url, field string }

func (x *examination) reach(ctx context.Context, g config.Gateway, to target) way {
	const name = "reach"
	addr, host, secure, err := to.address()
	if err != nil {
		return way{checks: []Check{warn(name, g.Name, "set its variables, and run doctor again", "not tried: %v", err)}}
	}
	conf, err := x.trust(g)
	via, proxyErr := dispatch.Via(g)
	if err = errors.Join(err, proxyErr); err != nil {
		return way{checks: []Check{warn(name, g.Name, "mend what is said of secrets above, and run doctor again", "not tried: %v", err)}}
	}
	ctx, cancel := context.WithTimeout(ctx, x.p.ReachWithin)
	defer cancel()
	hop := hop{addr: addr, field: to.field}
	if via != nil {
		hop.addr, hop.field = via.Addr, "request.proxy"
	}
	began := time.Now()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", hop.addr)
	if err != nil {
		return way{checks: []Check{hop.undialled(g.Name, err)}}
	}
	defer conn.Close()
	took := time.Since(began)
	if !secure {
		return way{[]Check{ok(name, g.Name, "%s answers in %s", hop.addr, short(took))}, took}
	}
	if via != nil {
		if err := via.Tunnel(ctx, conn, addr); err != nil {
			return way{checks: []Check{fail(name, g.Name, "check request.proxy, and that the proxy lets this machine out to the gateway", "%v", err)}}
		}
	}
	return x.handshake(ctx, g, conn, conf, end{addr, host, to.field}, began)
}

// address returns the network address.
func (t target) address() (addr, host string, secure bool, err error) {
	what := t.field[strings.LastIndexByte(t.field, '.')+1:]
	if t.url == "" {
		return "", "", false, fmt.Errorf("its %s needs a variable that is not set here", what)
	}
	rest, secure := strings.CutPrefix(t.url, "https://")
	rest = strings.TrimPrefix(rest, "http://")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i] // the rest may contain {id}, which is not a URL yet
	}
	u, parseErr := url.Parse("//" + bare(rest))
	if parseErr != nil || u.Hostname() == "" {
		return "", "", false, fmt.Errorf("its %s has no host that can be read", what)
	}
	port := u.Port()
	if port == "" {
		port = map[bool]string{true: "443", false: "80"}[secure]
	}
	return net.JoinHostPort(u.Hostname(), port), u.Hostname(), secure, nil
}

// hop is the first machine on the way to a gateway, and its configuration key.
type hop struct{ addr, field string }

func (h hop) undialled(gateway string, err error) Check {
	const name = "reach"
	addr, field := h.addr, h.field
	if _, dns := errors.AsType[*net.DNSError](err); dns {
		return fail(name, gateway, "check the host in "+field+", and this machine's DNS", "the name of %s can't be looked up: %v", addr, root(err))
	}
	if timeout, is := errors.AsType[net.Error](err); is && timeout.Timeout() {
		return fail(name, gateway, "check that a firewall lets this machine out to it", "%s does not answer: no connection in time", addr)
	}
	return fail(name, gateway, "check host and port in "+field+"; its jobs wait until it answers, and none is lost", "%s can't be reached: %v", addr, root(err))
}

// root returns the innermost error: what the system said.
func root(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// end is a TLS server: its address and name, and its configuration key.
type end struct{ addr, host, field string }

func (x *examination) handshake(ctx context.Context, g config.Gateway, conn net.Conn, conf *tls.Config, at end, began time.Time) way {
	const name = "tls"
	addr := at.addr
	conf.ServerName, conf.NextProtos = at.host, []string{"http/1.1"}
	asked := watchAsked(conf)
	secure := tls.Client(conn, conf)
	err := secure.HandshakeContext(ctx)
	took := time.Since(began)
	if asked.Load() && (refused(err) || err == nil && turnedAway(secure)) {
		return way{checks: []Check{unwelcome(g, addr)}}
	}
	if err != nil {
		return way{checks: []Check{unsecured(g, at, err)}}
	}
	left := secure.ConnectionState().PeerCertificates[0].NotAfter.Sub(x.p.Now())
	text := fmt.Sprintf("%s answers in %s with TLS; its certificate is valid for %.0f days", addr, short(took), left.Hours()/24)
	if left < certificateSoon {
		return way{[]Check{warn(name, g.Name, "tell those who run the gateway: when it has ended, every call fails and the jobs wait", "%s", text)}, took}
	}
	return way{[]Check{ok(name, g.Name, "%s", text)}, took}
}

func unsecured(g config.Gateway, at end, err error) Check {
	const name = "tls"
	gateway, addr := g.Name, at.addr
	if invalid, is := errors.AsType[x509.CertificateInvalidError](err); is && invalid.Reason == x509.Expired {
		return fail(name, gateway, "check this machine's clock; else tell those who run the gateway", "the certificate of %s has expired, or is not valid yet", addr)
	}
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		if own := g.Request.TLS.CAFile; own != "" {
			return fail(name, gateway, "put the authority that signed it into that file: where there is one, the system's don't count",
				"no authority in %s vouches for the certificate of %s", own, addr)
		}
		return fail(name, gateway, "name the authority that signed it in request.tls.ca, or install it on this machine, if it is to be trusted",
			"no trusted authority has signed the certificate of %s", addr)
	}
	if wrong, is := errors.AsType[x509.HostnameError](err); is {
		return fail(name, gateway, "check the host in "+at.field, "the certificate of %s is not for %s", addr, wrong.Host)
	}
	return fail(name, gateway, "check that the url's port speaks TLS", "no TLS with %s: %v", addr, root(err))
}
