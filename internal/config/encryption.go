package config

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"

	"spillway/internal/job"
)

// Encryption says with which keys payloads are sealed before they are stored in Redis.
type Encryption struct {
	// Active is the id of the key that seals new payloads. Empty = they are stored in plain text, and the keys
	// are only used to open old ones.
	Active string
	// Keys are in file order; at least one.
	Keys []EncryptionKey
	// Require means that an unsealed payload is never sent. Default: false, so that older jobs continue.
	Require bool
}

// EncryptionKey is one key.
type EncryptionKey struct {
	// ID is 1 to 32 of a-z, 0-9, _ and -. It is part of every payload sealed with the key.
	ID string
	// Secret is the 32 bytes. It is empty only if Options.Payloads is off and its variable is not set.
	Secret Secret
}

// keyBytes is the length of a key.
const keyBytes = 32

var keyID = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

const makeKey = "make a key with: openssl rand -base64 32"

func (r *reader) encryption(n node) *Encryption {
	e := &Encryption{}
	r.object(n,
		field{"keys", func(n node) { e.Keys = r.encryptionKeys(n) }},
		field{"active", r.word(&e.Active, func(string) string { return "" })},
		field{"require", r.truth(&e.Require)},
	)
	r.needed(n, "keys", "name at least one key, like {k2026: \"${SPILLWAY_KEY_2026}\"}; "+makeKey,
		"active", `name the key that seals new payloads, or write active: "" to store them as they are`)
	if known := e.ids(); e.Active != "" && !r.faulted[n.path+".keys"] && !slices.Contains(known, e.Active) {
		r.fault(n.path+".active", "%q is not one of the keys: %s", e.Active, keyHint(e.Active, known))
	}
	if e.Require && e.Active == "" && r.written(n.path+".active") {
		r.fault(n.path+".require", `with active: "" nothing is sealed, and nothing would be called: name the key that seals`)
	}
	return e
}

// truth reads true or false.
func (r *reader) truth(dst *bool) func(node) {
	return func(n node) {
		var text string
		r.word(&text, func(text string) string {
			if text != "true" && text != "false" {
				return "is neither true nor false"
			}
			return ""
		})(n)
		*dst = text == "true"
	}
}

// needed reports missing keys: each is followed by what to do.
func (r *reader) needed(n node, hints ...string) {
	for pair := range slices.Chunk(hints, 2) {
		if path := join(n.path, pair[0]); !r.written(path) {
			r.missing(path, pair[1])
		}
	}
}

func keyHint(text string, known []string) string {
	if near, ok := job.Nearest(text, known); ok {
		return "did you mean " + near + "?"
	}
	return fmt.Sprintf("use one of %q", known)
}

func (e *Encryption) ids() []string {
	ids := make([]string, len(e.Keys))
	for i, k := range e.Keys {
		ids[i] = k.ID
	}
	return ids
}

func (r *reader) encryptionKeys(n node) []EncryptionKey {
	var all []EncryptionKey
	entries := r.entries(n)
	if len(entries) == 0 && !r.faulted[n.path] {
		r.fault(n.path, "there are no keys: %s", makeKey)
	}
	for _, e := range entries {
		if !keyID.MatchString(e.key) {
			r.places[e.value.path] = e.at
			r.fault(e.value.path, "%q is not a key's id: use up to 32 lower-case letters, digits, _ and -, starting with a letter or digit", e.key)
			continue
		}
		k := EncryptionKey{ID: e.key}
		e.value.optional = !r.opt.Payloads
		r.encryptionKey(e.value, &k)
		if k.Secret != "" {
			r.twice(e.value, k, all)
		}
		all = append(all, k)
	}
	return all
}

// encryptionKey reads a key. It must be in the environment or in a file of its own: configurations are copied
// to backups and repositories, next to the data that the keys protect.
func (r *reader) encryptionKey(n node, k *EncryptionKey) {
	n.hidden = true
	if text, ok := raw(n); ok && !oneVariable.MatchString(text) {
		r.fault(n.path, "a key may not stand in here: put it into the environment or a file of its own, and write ${SPILLWAY_KEY} or ${file:PATH}")
		return
	}
	r.secret(&k.Secret, checkEncryptionKey)(n)
	decoded, _ := base64.StdEncoding.DecodeString(k.Secret.Reveal())
	k.Secret = Secret(decoded)
}

var oneVariable = regexp.MustCompile(`^\$` + named + `$`)

func checkEncryptionKey(text string) string {
	decoded, err := base64.StdEncoding.DecodeString(text)
	switch {
	case err != nil:
		return "does not hold a key in base64: " + makeKey
	case len(decoded) != keyBytes:
		return fmt.Sprintf("holds a key of %d bytes, and it must have %d: %s", len(decoded), keyBytes, makeKey)
	}
	return ""
}

// twice reports a key that another id has already: changing from one to the other would change nothing.
func (r *reader) twice(n node, k EncryptionKey, others []EncryptionKey) {
	for _, o := range others {
		if o.Secret == k.Secret {
			r.fault(n.path, "this is the same key as %s: give each id a key of its own; %s", o.ID, makeKey)
		}
	}
}
