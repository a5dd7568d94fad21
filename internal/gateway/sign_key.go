package gateway

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"fmt"
)

// withKey returns a function that signs with a private key.
func withKey(algorithm string, key crypto.Signer) (func(content []byte) ([]byte, error), error) {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		switch algorithm {
		case "rs256":
			return digested(k, crypto.SHA256), nil
		case "ps256":
			return digested(k, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}), nil
		}
	case *ecdsa.PrivateKey:
		switch algorithm {
		case "es256":
			return digested(k, crypto.SHA256), nil
		case "es256-raw":
			return func(content []byte) ([]byte, error) { return rawECDSA(k, content) }, nil
		}
	case ed25519.PrivateKey:
		if algorithm == "ed25519" {
			return func(content []byte) ([]byte, error) { return k.Sign(nil, content, crypto.Hash(0)) }, nil
		}
	}
	return nil, fmt.Errorf("algorithm: %q is unknown for a private key of this kind: use rs256, ps256, es256, es256-raw or ed25519", algorithm)
}

// digested signs the SHA-256 of the content.
func digested(key crypto.Signer, how crypto.SignerOpts) func(content []byte) ([]byte, error) {
	return func(content []byte) ([]byte, error) {
		sum := sha256.Sum256(content)
		return key.Sign(rand.Reader, sum[:], how)
	}
}

// rawECDSA returns r and s concatenated, 32 bytes each, as in JWS.
func rawECDSA(key *ecdsa.PrivateKey, content []byte) ([]byte, error) {
	sum := sha256.Sum256(content)
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		return nil, err
	}
	const half = 32
	signature := make([]byte, 2*half)
	r.FillBytes(signature[:half])
	s.FillBytes(signature[half:])
	return signature, nil
}
