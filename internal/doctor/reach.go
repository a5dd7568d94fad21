package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
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

// trust returns the TLS configuration of a gateway's calls.
func (x *examination) trust(g config.Gateway) (*tls.Config, error) {
	t := g.Request.TLS
	if t.CAFile != "" && t.CA == "" || t.CertFile != "" && t.Cert == "" {
		return nil, errors.New("the files of request.tls were not read")
	}
	conf, err := t.Config()
	if conf == nil {
		conf = &tls.Config{}
	}
	if base := x.p.TLS; base != nil {
		conf.Time = base.Time
		if conf.RootCAs == nil {
			conf.RootCAs = base.RootCAs
		}
	}
	return conf, err
}

// watchAsked makes the handshake record whether the gateway requested a certificate, and answer as a call
// would.
func watchAsked(conf *tls.Config) *atomic.Bool {
	asked := &atomic.Bool{}
	own := conf.Certificates
	conf.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		asked.Store(true)
		for i := range own {
			if info.SupportsCertificate(&own[i]) == nil {
				return &own[i], nil
			}
		}
		return &tls.Certificate{}, nil
	}
	return asked
}

// refused reports whether the peer aborted the handshake.
func refused(err error) bool {
	alert, is := errors.AsType[*net.OpError](err)
	return is && alert.Op == "remote error"
}

// verdictWithin is how long to wait for a gateway to refuse our certificate: since TLS 1.3 it does so after our
// handshake.
const verdictWithin = 500 * time.Millisecond

func turnedAway(c *tls.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(verdictWithin))
	_, err := c.Read(make([]byte, 1))
	return refused(err)
}

func unwelcome(g config.Gateway, addr string) Check {
	const name = "tls"
	if g.Request.TLS.CertFile == "" {
		return fail(name, g.Name, "give request.tls.cert and key", "%s asks for a client certificate, and calls show none", addr)
	}
	return fail(name, g.Name, "ask those who run the gateway whether it knows this certificate, and who must have signed it",
		"%s does not accept the certificate in %s", addr, g.Request.TLS.CertFile)
}

// lintTLS checks the client certificate and key for a gateway, or for Redis if gateway is empty.
func (x *examination) lintTLS(gateway string, t config.TLS) (found []Check) {
	const name = "certificate"
	who, hint := "calls", "put a new one, with its key, in the place of the two files, and send SIGHUP to the dispatchers"
	if gateway == "" {
		who, hint = "connections to Redis", "put a new one, with its key, in the place of the two files, and restart the dispatchers one after the other"
	}
	if open(t.KeyFile) {
		found = append(found, warn(name, gateway, "chmod o-r "+t.KeyFile, "everybody on this machine may read the private key %s", t.KeyFile))
	}
	block, _ := pem.Decode([]byte(t.Cert))
	if block == nil {
		return found
	}
	own, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return found
	}
	switch left := own.NotAfter.Sub(x.p.Now()); {
	case left < 0:
		found = append(found, fail(name, gateway, hint, "the certificate that %s show, %s, has expired", who, t.CertFile))
	case left < certificateSoon:
		found = append(found, warn(name, gateway, hint, "the certificate that %s show, %s, is valid for %.0f more days", who, t.CertFile, left.Hours()/24))
	}
	return found
}
