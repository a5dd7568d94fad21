// Package seal encrypts payloads before they go into Redis or into an export, and opens them again. Each sealed payload belongs to one
// job of one gateway: it can't be opened as another's. It names its key, so that keys can be changed while jobs wait.
package seal

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"
	"sync"
)

// KeyBytes is the length of a key.
const KeyBytes = 32

// Key is one of the keys of a configuration.
type Key struct {
	// ID names it in every payload that it has sealed: 1 to 32 characters.
	ID string
	// Secret has KeyBytes bytes; empty where this process was not given it.
	Secret []byte
}

// ErrChanged is the error of a payload that was changed since it was sealed, or that was sealed for another job.
var ErrChanged = errors.New("its sealed payload was changed in Redis, or belongs to another job")

// ErrPlain is the error of a payload in plain, with a digest in plain, where only sealed ones may be called. Nothing says that it was changed: it may be from
// before encryption.
var ErrPlain = errors.New("its payload is not sealed, and encryption.require is on: if it is from before encryption, take require out until it is called; " +
	"if not, look at who wrote it into Redis, and discard the job")

// KeyError is the error of a payload whose key is not at hand. Nothing is wrong with the payload itself.
type KeyError struct {
	ID    string // of the key; empty if the payload is of a form that is not known here
	Wrong bool   // there is a key of that id, and it is another one
}

// Error says what is missing and what to do.
func (e *KeyError) Error() string {
	switch {
	case e.ID == "":
		return "its payload is sealed in a form that this version of Spillway does not know: use the version that sealed it, or a later one"
	case e.Wrong:
		return fmt.Sprintf("its payload is sealed with another key than the one that encryption.keys.%s has here: give back the one it had", e.ID)
	}
	return fmt.Sprintf("its payload is sealed with the key %s, which is not known here: give it in encryption.keys.%s", e.ID, e.ID)
}

// A sealed payload: mark, length of the key's id, the id, check of the key, nonce, ciphertext with its tag. A payload in plain is a JSON
// object, and never begins like this.
const (
	family     = "\x00sp"        // of any version
	mark       = family + "\x01" // with the version of the form
	checkBytes = 4
)

// Box seals and opens the payloads of one gateway. A nil Box seals nothing, and opens what is not sealed. Safe for concurrent use.
type Box struct {
	gateway string
	active  string
	keys    []key
	digest  func(payload []byte) string // in plain; nil: payloads are not held against their digests
	require bool                        // what is not sealed is not opened
}

type key struct {
	id     string
	cipher *xaes
	check  []byte
	macs   *sync.Pool // of HMACs under the key of digests
}

// New returns the box of a gateway. active is the id of the key that seals; with none ("") payloads go in as they are, and the keys
// only open. It panics on a secret that is neither empty nor of KeyBytes bytes.
func New(gateway, active string, keys []Key) *Box {
	b := &Box{gateway: gateway, active: active}
	for _, k := range keys {
		if len(k.Secret) > 0 {
			b.keys = append(b.keys, newKey(k))
		}
	}
	return b
}

// Checking returns the box with what makes the digest of a payload, in plain, so that payloads are held against the digests of their records. With
// require, it opens nothing that is not sealed.
func (b *Box) Checking(digest func(payload []byte) string, require bool) *Box {
	with := *b
	with.digest, with.require = digest, require
	return &with
}

func newKey(k Key) key {
	digest := derive(k.Secret, "digest")
	return key{id: k.ID, cipher: newXAES([KeyBytes]byte(derive(k.Secret, "payload"))), check: derive(k.Secret, "check")[:checkBytes],
		macs: &sync.Pool{New: func() any { return hmac.New(sha256.New, digest) }}}
}

// derive makes a key for one purpose out of a secret.
func derive(secret []byte, purpose string) []byte {
	out, err := hkdf.Key(sha256.New, secret, nil, "spillway "+purpose+" 1", KeyBytes)
	if err != nil {
		panic(err) // unreachable: 32 bytes are not too many
	}
	return out
}

func (b *Box) key(id string) *key {
	for i := range b.keys {
		if b.keys[i].id == id {
			return &b.keys[i]
		}
	}
	return nil
}

// Seals says whether payloads are sealed on their way in.
func (b *Box) Seals() bool { return b != nil && b.active != "" }

// Sealed says whether a stored payload is sealed.
func Sealed(stored []byte) bool { return bytes.HasPrefix(stored, []byte(family)) }

// Seal returns what is to be stored of a job's payload. It fails if this process was not given the key that seals.
func (b *Box) Seal(id string, payload []byte) ([]byte, error) {
	if !b.Seals() {
		return payload, nil
	}
	k := b.key(b.active)
	if k == nil {
		return nil, fmt.Errorf("a payload can't be sealed: the key %s of encryption.keys is not set in the environment", b.active)
	}
	out := make([]byte, 0, len(mark)+1+len(k.id)+checkBytes+nonceBytes+len(payload)+16)
	out = append(append(append(append(out, mark...), byte(len(k.id))), k.id...), k.check...)
	return k.cipher.seal(out, payload, b.bound(out, id)), nil
}

// bound is what a ciphertext is tied to: the head before it, the gateway and the job.
func (b *Box) bound(head []byte, id string) []byte {
	all := make([]byte, 0, len(head)+len(b.gateway)+1+len(id))
	return append(append(append(append(all, head...), b.gateway...), 0), id...)
}

// Open returns a job's payload from what is stored of it; what is not sealed is returned as it is. The error is a *KeyError where the key is
// not at hand, and ErrChanged where the payload is not what was sealed for this job.
func (b *Box) Open(id string, stored []byte) ([]byte, error) {
	if !Sealed(stored) {
		return stored, nil
	}
	if !bytes.HasPrefix(stored, []byte(mark)) {
		return nil, &KeyError{}
	}
	rest := stored[len(mark):]
	if len(rest) < 1 || len(rest) < 1+int(rest[0])+checkBytes+nonceBytes {
		return nil, ErrChanged
	}
	name := string(rest[1 : 1+int(rest[0])])
	rest = rest[1+len(name):]
	if !namesKey(name) {
		return nil, ErrChanged
	}
	if b == nil || b.key(name) == nil {
		return nil, &KeyError{ID: name}
	}
	k := b.key(name)
	if !bytes.Equal(rest[:checkBytes], k.check) {
		return nil, &KeyError{ID: name, Wrong: true}
	}
	nonce, sealed := rest[checkBytes:][:nonceBytes], rest[checkBytes+nonceBytes:]
	plain, err := k.cipher.open(nonce, sealed, b.bound(stored[:len(stored)-len(rest)+checkBytes], id))
	if err != nil {
		return nil, ErrChanged
	}
	return plain, nil
}

// OpenJob is Open for a payload whose record has that digest. A digest that was made with a key can't be made by who only writes to Redis: plain text
// under one, or another payload than the digest's, is ErrChanged.
func (b *Box) OpenJob(id string, stored []byte, digest string) ([]byte, error) {
	keyed := strings.HasPrefix(digest, keyedMark)
	switch {
	case keyed && !Sealed(stored):
		return nil, ErrChanged
	case b != nil && b.require && !keyed && Sealed(stored): // a digest in plain holds no payload fast
		return nil, ErrChanged
	case b != nil && b.require && !keyed:
		return nil, ErrPlain
	}
	plain, err := b.Open(id, stored)
	if err != nil || !keyed || b.digest == nil {
		return plain, err
	}
	if !b.SameDigest(id, b.digest(plain), digest) {
		return nil, ErrChanged
	}
	return plain, nil
}

// Reveal opens a stored payload for who looks at it, and returns with it what is stored, where that is sealed. foreign: it is parked as
// unreadable; what was never a job has no digest of its own.
func (b *Box) Reveal(id string, stored []byte, digest string, foreign bool) (payload, sealed []byte, err error) {
	switch {
	case foreign && Sealed(stored):
		payload, err = b.Open(id, stored)
	case len(stored) > 0: // a job that is done has none
		payload, err = b.OpenJob(id, stored, digest)
	}
	if Sealed(stored) {
		sealed = stored
	}
	return payload, sealed, err
}

// namesKey keeps an id that somebody wrote into Redis from being shown as one of ours.
func namesKey(id string) bool {
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return id != ""
}

// Digest returns what is stored of a payload's digest: nobody without the key can tell from it what the payload might be, nor that
// two jobs have the same one.
func (b *Box) Digest(id, plain string) string {
	if !b.Seals() {
		return plain
	}
	if k := b.key(b.active); k != nil {
		return b.keyed(k, id, plain)
	}
	return "" // unreachable: Seal has failed before
}

// SameDigest says whether a stored digest is of that payload, whichever key it was made with, or without any.
func (b *Box) SameDigest(id, plain, stored string) bool {
	if stored == plain {
		return true
	}
	if b == nil {
		return false
	}
	for i := range b.keys {
		if hmac.Equal([]byte(stored), []byte(b.keyed(&b.keys[i], id, plain))) {
			return true
		}
	}
	return false
}

// keyedMark begins a digest that was made with a key: no hex digit, so that it is never taken for a digest in plain.
const keyedMark = "k"

// keyed returns a payload's digest under a key.
func (b *Box) keyed(k *key, id, plain string) string {
	m, _ := k.macs.Get().(hash.Hash)
	defer k.macs.Put(m)
	m.Reset()
	var room [256]byte
	m.Write(append(append(append(append(append(room[:0], b.gateway...), 0), id...), 0), plain...))
	var text [17]byte
	text[0] = keyedMark[0]
	hex.Encode(text[1:], m.Sum(room[:0])[:8])
	return string(text[:])
}
