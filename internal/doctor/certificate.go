package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"spillway/internal/config"
)

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
