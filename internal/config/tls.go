package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"strings"
)

// TLS is the TLS configuration of connections to a gateway or to Redis: file names, and the files' contents
// when the configuration was read. For a gateway, the contents are empty if Options.Secrets is off.
type TLS struct {
	// CAFile is the file of trusted certificate authorities, and CA its PEM. They replace the system's roots.
	// Empty = the system's roots.
	CAFile, CA string
	// CertFile is the file of the client certificate with its chain, and Cert its PEM. Empty = no client
	// certificate.
	CertFile, Cert string
	// KeyFile is the file of the certificate's private key, and Key its PEM.
	KeyFile string
	Key     Secret
	// ServerName is the name that Redis's certificate must have. Empty = the host of its address. It is not
	// used for a gateway.
	ServerName string
}

// Config returns the TLS configuration, or nil for the zero TLS. A configuration read without faults has no
// error here.
func (t TLS) Config() (*tls.Config, error) {
	if t.CA == "" && t.Cert == "" && t.ServerName == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AppendCertsFromPEM([]byte(t.CA))
	}
	if t.Cert != "" {
		own, err := tls.X509KeyPair([]byte(t.Cert), []byte(t.Key.Reveal()))
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{own}
	}
	return c, nil
}

// tls reads the names of the files and, unless the node is optional, the files. more are further permitted keys
// of the mapping.
func (r *reader) tls(n node, t *TLS, more ...field) {
	var key string
	r.object(n, append(more,
		field{"ca", r.pemFile(&t.CAFile, &t.CA, checkCertificates)},
		field{"cert", r.pemFile(&t.CertFile, &t.Cert, checkCertificates)},
		field{"key", r.pemFile(&t.KeyFile, &key, checkPrivateKey)},
	)...)
	t.Key = Secret(key)
	if r.written(n.path+".cert") != r.written(n.path+".key") {
		one, other := "cert", "key"
		if r.written(n.path + ".key") {
			one, other = other, one
		}
		r.missing(n.path+"."+other, "a certificate goes with its private key: "+one+" alone is no use")
	}
	if r.faulted[n.path+".cert"] || r.faulted[n.path+".key"] {
		return
	}
	err, known := r.pairs[*t]
	if !known {
		_, err = t.Config()
		r.pairs[*t] = err
	}
	if err != nil { // the error's text may quote the files
		r.fault(n.path+".key", "this is not a private key of the certificate in cert: name the two that were issued together")
	}
}

// pemFile reads the name of a file, and its contents.
func (r *reader) pemFile(path, text *string, check func(string) string) func(node) {
	return func(n node) {
		var name string
		inline, _ := raw(n)
		n.hidden = n.hidden || strings.Contains(inline, pemStart)
		r.word(&name, checkFileName)(n)
		if name == "" {
			return
		}
		*path = r.absolute(name)
		if n.optional {
			return
		}
		kind := n.path[strings.LastIndexByte(n.path, '.'):] + ":" + *path
		if found, known := r.pems[kind]; known {
			*text = found
			return
		}
		found, err := r.contents(name, maxSecretFile)
		if err != nil {
			r.wrong(n, "can't be read: "+reason(err)+": name a file that the user of this command may read")
			return
		}
		if rule := check(found); rule != "" {
			r.wrong(n, rule)
			return
		}
		*text, r.pems[kind] = found, found
	}
}

const pemStart = "-----BEGIN"

func checkFileName(text string) string {
	switch {
	case text == "":
		return "is empty: name a file, or take the line out"
	case strings.Contains(text, pemStart):
		return "is the PEM itself: put it into a file that nobody else reads, and name that here"
	}
	return ""
}

const pemHint = ": name a file in PEM, with -----BEGIN CERTIFICATE----- in it"

func checkCertificates(text string) string {
	switch certs, bad := certificates(text); {
	case bad:
		return "has a certificate in it that is damaged" + pemHint
	case certs == 0:
		return "has no certificate in it" + pemHint
	}
	return ""
}

// certificates counts the certificates in a text, and reports whether one of them is invalid.
func certificates(text string) (n int, bad bool) {
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return n, bad
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		n++
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			bad = true
		}
	}
}

func checkPrivateKey(text string) string {
	for rest := []byte(text); ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		switch {
		case block == nil:
			return "has no private key in it: name a file in PEM, with -----BEGIN PRIVATE KEY----- in it"
		case block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "":
			return "has a private key that is encrypted: decrypt it (openssl pkey -in FILE -out FILE), and let nobody else read it"
		case block.Type == "PRIVATE KEY" || strings.HasSuffix(block.Type, " PRIVATE KEY"):
			return ""
		}
	}
}
