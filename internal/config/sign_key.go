package config

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The signature algorithms: those for a secret, and those for a private key, each with the kind of key.
var (
	macAlgorithms = []string{"sha256", "sha512"}
	keyAlgorithms = []string{"rs256", "ps256", "es256", "es256-raw", "ed25519"}
)

func signAlgorithms() []string { return slices.Concat(macAlgorithms, keyAlgorithms) }

const (
	rsaKey     = "an RSA key"
	p256Key    = "a key on the curve P-256"
	ed25519Key = "an Ed25519 key"
)

var keyFor = map[string]string{"rs256": rsaKey, "ps256": rsaKey, "es256": p256Key, "es256-raw": p256Key, "ed25519": ed25519Key}

// leastRSA is the fewest bits of an RSA key: NIST SP 800-131A allows no shorter one.
const leastRSA = 2048

// signKey reports what is wrong with a signature's key, or that it is missing.
func (r *reader) signKey(path string, s *Sign) {
	secret, private, algorithm := path+".secret", path+".private_key", path+".algorithm"
	switch isMAC := slices.Contains(macAlgorithms, s.Algorithm); {
	case r.written(secret) && r.written(private):
		r.clash(private, secret, "there is a secret too: keep the private key for a signature (rs256 and others), or the secret for HMAC")
		return
	case r.written(secret):
		if !isMAC {
			r.clash(algorithm, secret, "%s signs with a private key, and there is a secret: write private_key, or sha256 or sha512", s.Algorithm)
		}
		return
	case !r.written(private) && isMAC:
		r.missing(secret, `name the variable or file with the secret, like "${SIGNING_SECRET}"`)
		return
	case !r.written(private):
		r.missing(private, `name the file with the key, like "${file:/run/secrets/signing.pem}"`)
		return
	case isMAC:
		r.clash(algorithm, private, "%s%s needs a secret, and there is a private key: write one of %s", s.Algorithm, r.defaulted(algorithm), strings.Join(keyAlgorithms, ", "))
		return
	}
	if other := path + ".secret_encoding"; r.written(other) {
		r.fault(other, "there is no secret: take it out, a private key is always PEM")
	}
	if s.PrivateKey == "" || r.faulted[private] || r.faulted[algorithm] {
		return
	}
	if _, err := s.Key(); err != nil {
		r.fault(private, "%v", err)
	}
}

// Key returns the private key, or nil if there is none. An error says which rule the key breaks for the
// algorithm, and nothing about the key itself. A configuration read without faults has no error here.
func (s Sign) Key() (crypto.Signer, error) {
	if s.PrivateKey == "" {
		return nil, nil
	}
	key, err := parseKey([]byte(s.PrivateKey.Reveal()))
	if err != nil {
		return nil, err
	}
	is := kindOf(key)
	if wanted := keyFor[s.Algorithm]; is != wanted {
		return nil, fmt.Errorf("the key is %s, and %s needs %s: name another file, or write another algorithm", is, s.Algorithm, wanted)
	}
	if k, ok := key.(*rsa.PrivateKey); ok && k.N.BitLen() < leastRSA {
		return nil, fmt.Errorf("the key is an RSA key of %d bits, which is too short: make one of at least %d, and give the gateway its public key", k.N.BitLen(), leastRSA)
	}
	return key, nil
}

func kindOf(key crypto.Signer) string {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		return rsaKey
	case ed25519.PrivateKey:
		return ed25519Key
	case *ecdsa.PrivateKey:
		if k.Curve == elliptic.P256() {
			return p256Key
		}
		return "a key on the curve " + k.Params().Name
	}
	return "a key of another kind"
}

// parseKey parses the first private key in a PEM.
func parseKey(text []byte) (crypto.Signer, error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil, errors.New("there is no private key in it: write it in PEM, with -----BEGIN PRIVATE KEY----- in it")
		}
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		default:
			continue // curve parameters, or certificates
		}
		signer, ok := key.(crypto.Signer)
		if err != nil || !ok { // the error may quote the key
			return nil, errors.New("the key can't be read: it is damaged, or of a kind that is not RSA, P-256 or Ed25519")
		}
		return signer, nil
	}
}
