package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"spillway/internal/config"
	"spillway/internal/dispatch"
)

const (
	// reachAtOnce is how many gateways are connected to at once.
	reachAtOnce = 16
	// certificateSoon is how long before its end a certificate is worth a word.
	certificateSoon = 14 * 24 * time.Hour
)

// way is what was found on the way to a gateway. took is how long the connection took; zero if there is none.
type way struct {
	checks []Check
	took   time.Duration
}

// reachAll connects to every gateway, and sends nothing but the TLS handshake: a call would count.
func (x *examination) reachAll(ctx context.Context) map[string]chan way {
	ways := map[string]chan way{}
	turn := make(chan struct{}, reachAtOnce)
	for _, g := range x.p.Gateways {
		to := make(chan way, 1)
		ways[g.Name] = to
		go func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			to <- x.reach(ctx, g)
		}()
	}
	return ways
}

func (x *examination) reach(ctx context.Context, g config.Gateway) way {
	const name = "reach"
	addr, host, secure, err := address(g)
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
	hop := hop{addr: addr, field: "request.url"}
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
	return x.handshake(ctx, g, conn, conf, addr, host, began)
}

// address returns where a gateway's calls go.
func address(g config.Gateway) (addr, host string, secure bool, err error) {
	raw := g.Request.URL.Reveal()
	if raw == "" {
		return "", "", false, errors.New("its url needs a variable that is not set here")
	}
	rest, secure := strings.CutPrefix(raw, "https://")
	rest = strings.TrimPrefix(rest, "http://")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i] // what stands behind may hold {id}, which is no URL yet
	}
	u, parseErr := url.Parse("//" + bare(rest))
	if parseErr != nil || u.Hostname() == "" {
		return "", "", false, errors.New("its url has no host that can be read")
	}
	port := u.Port()
	if port == "" {
		port = map[bool]string{true: "443", false: "80"}[secure]
	}
	return net.JoinHostPort(u.Hostname(), port), u.Hostname(), secure, nil
}

// hop is the first machine on the way to a gateway, and the key that names it.
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

// root is the innermost error: what the system said.
func root(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

func (x *examination) handshake(ctx context.Context, g config.Gateway, conn net.Conn, conf *tls.Config, addr, host string, began time.Time) way {
	const name = "tls"
	conf.ServerName, conf.NextProtos = host, []string{"http/1.1"}
	asked := watchAsked(conf)
	secure := tls.Client(conn, conf)
	err := secure.HandshakeContext(ctx)
	took := time.Since(began)
	if asked.Load() && (refused(err) || err == nil && turnedAway(secure)) {
		return way{checks: []Check{unwelcome(g, addr)}}
	}
	if err != nil {
		return way{checks: []Check{unsecured(g, addr, err)}}
	}
	left := secure.ConnectionState().PeerCertificates[0].NotAfter.Sub(x.p.Now())
	text := fmt.Sprintf("%s answers in %s with TLS; its certificate is valid for %.0f days", addr, short(took), left.Hours()/24)
	if left < certificateSoon {
		return way{[]Check{warn(name, g.Name, "tell whoever runs the gateway: when it has ended, every call fails and the jobs wait", "%s", text)}, took}
	}
	return way{[]Check{ok(name, g.Name, "%s", text)}, took}
}

func unsecured(g config.Gateway, addr string, err error) Check {
	const name = "tls"
	gateway := g.Name
	if invalid, is := errors.AsType[x509.CertificateInvalidError](err); is && invalid.Reason == x509.Expired {
		return fail(name, gateway, "check this machine's clock; else tell whoever runs the gateway", "the certificate of %s has expired, or is not valid yet", addr)
	}
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		if own := g.Request.TLS.CAFile; own != "" {
			return fail(name, gateway, "put the authority that signed it into that file: where there is one, the system's don't count",
				"no authority in %s vouches for the certificate of %s", own, addr)
		}
		return fail(name, gateway, "name the authority that signed it in request.tls.ca, or install it on this machine, if it is to be trusted",
			"nobody here vouches for the certificate of %s", addr)
	}
	if wrong, is := errors.AsType[x509.HostnameError](err); is {
		return fail(name, gateway, "check the host in request.url", "the certificate of %s is not for %s", addr, wrong.Host)
	}
	return fail(name, gateway, "check that the url's port speaks TLS", "no TLS with %s: %v", addr, root(err))
}
