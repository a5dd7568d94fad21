// Package seal encrypts payloads before they are stored in Redis or exported, and opens them again. A sealed
// payload is bound to one job of one gateway: it can't be opened as another's. It names its key, so that keys
// can be changed while jobs wait.
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
	// ID identifies it in every payload sealed with it: 1 to 32 characters.
	ID string
	// Secret has KeyBytes bytes; empty if this process does not have it.
	Secret []byte
}

// ErrChanged means that a payload was changed since it was sealed, or was sealed for another job.
var ErrChanged = errors.New("its sealed payload was changed in Redis, or belongs to another job")

// ErrPlain means that a payload and its digest are in plain text although only sealed ones may be sent. It need
// not have been changed: it may be from before encryption.
var ErrPlain = errors.New(Unopened + "not sealed, and encryption.require is on: if it is from before encryption, take require out until it is called; " +
	"if not, look at who wrote it into Redis, and discard the job")

// Unopened is how the errors of a payload begin that can't be opened here, though it may be fine: ErrPlain and each
// KeyError.
const Unopened = "its payload is "

// KeyError means that a payload's key is not available. The payload itself may be fine.
type KeyError struct {
	ID    string // of the key; empty if the payload has an unknown form
	Wrong bool   // there is a key with that id, but it is another one
}

// Error says what is missing and what to do.
func (e *KeyError) Error() string {
	switch {
	case e.ID == "":
		return Unopened + "sealed in a form that this version of Spillway does not know: use the version that sealed it, or a later one"
	case e.Wrong:
		return fmt.Sprintf(Unopened+"sealed with another key than the one that encryption.keys.%s has here: give back the one it had", e.ID)
	}
	return fmt.Sprintf(Unopened+"sealed with the key %s, which is not known here: give it in encryption.keys.%s", e.ID, e.ID)
}

// A sealed payload: mark, length of the key's id, the id, check of the key, nonce, ciphertext with its tag. A
// plain payload is a JSON object, and never begins like this.
const (
	family     = "\x00sp"        // of any version
	mark       = family + "\x01" // with the version of the form
	checkBytes = 4
)

// Box seals and opens the payloads of one gateway. A nil Box seals nothing, and opens what is not sealed. It is
// safe for concurrent use.
type Box struct {
	gateway string
	active  string
	keys    []key
	digest  func(payload []byte) string // in plain text; nil: payloads are not compared with their digests
	require bool                        // unsealed payloads are not opened
}

type key struct {
	id     string
	cipher *xaes
	check  []byte
	macs   *sync.Pool // of HMACs under the key of digests
}

// New returns the box of a gateway. active is the id of the key that seals; if it is empty, payloads are stored
// in plain text, and the keys only open. It panics if a secret is neither empty nor KeyBytes long.
func New(gateway, active string, keys []Key) *Box {
	b := &Box{gateway: gateway, active: active}
	for _, k := range keys {
		if len(k.Secret) > 0 {
			b.keys = append(b.keys, newKey(k))
		}
	}
	return b
}

// Checking returns the box with a function that makes the digest of a plain payload, so that payloads are
// compared with the digests in their records. With require, it opens only sealed payloads.
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

// head is how the payloads begin that the key has sealed.
func (k *key) head() string { return mark + string([]byte{byte(len(k.id))}) + k.id + string(k.check) }

// Opens returns which stored payloads this process may open, in the form that due.lua reads: how those begin that
// its keys have sealed, behind "plain" unless it opens sealed ones only.
func (b *Box) Opens() string {
	if b == nil {
		return "plain"
	}
	all := ""
	if !b.require {
		all = "plain"
	}
	for i := range b.keys {
		all += b.keys[i].head()
	}
	return all
}

// derive derives a key for one purpose from a secret.
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

// Seals reports whether payloads are sealed at admission.
func (b *Box) Seals() bool { return b != nil && b.active != "" }

// Sealed reports whether a stored payload is sealed.
func Sealed(stored []byte) bool { return bytes.HasPrefix(stored, []byte(family)) }

// Seal returns the stored form of a job's payload. It fails if this process does not have the sealing key.
func (b *Box) Seal(id string, payload []byte) ([]byte, error) {
	if !b.Seals() {
		return payload, nil
	}
	k := b.key(b.active)
	if k == nil {
		return nil, fmt.Errorf("a payload can't be sealed: the key %s of encryption.keys is not set in the environment", b.active)
	}
	out := make([]byte, 0, len(mark)+1+len(k.id)+checkBytes+nonceBytes+len(payload)+16)
	out = append(out, k.head()...)
	return k.cipher.seal(out, payload, b.bound(out, id)), nil
}

// bound returns what a ciphertext is bound to: the head before it, the gateway and the job.
func (b *Box) bound(head []byte, id string) []byte {
	all := make([]byte, 0, len(head)+len(b.gateway)+1+len(id))
	return append(append(append(append(all, head...), b.gateway...), 0), id...)
}

// Open returns a job's payload from its stored form; an unsealed one is returned unchanged. The error is a
// *KeyError if the key is not available, and ErrChanged if the payload is not what was sealed for this job.
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

// OpenJob is Open for a payload whose record has that digest. A keyed digest can't be forged by a program that
// can only write to Redis: a plain payload with one, or a payload that does not match it, is ErrChanged.
func (b *Box) OpenJob(id string, stored []byte, digest string) ([]byte, error) {
	keyed := strings.HasPrefix(digest, keyedMark)
	switch {
	case keyed && !Sealed(stored):
		return nil, ErrChanged
	case b != nil && b.require && !keyed && Sealed(stored): // a plain digest does not authenticate a payload
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

// Reveal opens a stored payload for display, and also returns the stored form if that is sealed. foreign: it is
// parked as unreadable, and has no digest because it was never a job.
func (b *Box) Reveal(id string, stored []byte, digest string, foreign bool) (payload, sealed []byte, err error) {
	switch {
	case foreign && Sealed(stored):
		payload, err = b.Open(id, stored)
	case len(stored) > 0: // a finished job has none
		payload, err = b.OpenJob(id, stored, digest)
	}
	if Sealed(stored) {
		sealed = stored
	}
	return payload, sealed, err
}

// namesKey keeps an id that another program wrote to Redis from being shown as one of ours.
func namesKey(id string) bool {
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return id != ""
}

// Digest returns the stored form of a payload's digest: without the key, the payload can't be guessed from it,
// and equal payloads of two jobs are not recognizable.
func (b *Box) Digest(id, plain string) string {
	if !b.Seals() {
		return plain
	}
	if k := b.key(b.active); k != nil {
		return b.keyed(k, id, plain)
	}
	return "" // unreachable: Seal has failed before
}

// SameDigest reports whether a stored digest is of that payload, with whichever key it was made, or without
// any.
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

// keyedMark is the prefix of a keyed digest: not a hex digit, so that it is never taken for a plain one.
const keyedMark = "k"

// keyed returns a payload's digest with a key.
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
