package job

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"
)

// Where a call carries the key.
const (
	KeyInHeader = "header"
	KeyInBody   = "body"
	KeyInQuery  = "query"
)

// How a key is written.
const (
	KeyID   = "id"   // the prefix, the job's id, then the key's generation
	KeyUUID = "uuid" // a UUID (version 5 of RFC 9562) of the same; always the same for one key
	KeyHash = "hash" // the first 32 hex digits of the SHA-256 of the same
)

// KeyShape says where a gateway's calls carry the idempotency key and how it is written. The zero KeyShape
// means that the gateway has no keys.
type KeyShape struct {
	// In is KeyInHeader, KeyInBody or KeyInQuery. Empty means KeyInHeader.
	In string
	// Name is the name of the header, body field or query parameter. Empty means that the gateway has no keys.
	Name string
	// Prefix is put before the job's id. Empty means no prefix.
	Prefix string
	// Form is KeyID, KeyUUID or KeyHash. Empty means KeyID.
	Form string
	// Min and Max bound the length of a key, in characters. Zero means no bound.
	Min, Max int
	// Alphabet is the set of characters that a key may contain, written like the inside of a regular
	// expression's class (a-zA-Z0-9-). Empty means visible ASCII.
	Alphabet string
}

// Any reports whether the gateway has keys.
func (k KeyShape) Any() bool { return k.Name != "" }

// Header returns the name of the header that carries the key, or "" if none does.
func (k KeyShape) Header() string {
	if k.In == "" || k.In == KeyInHeader {
		return k.Name
	}
	return ""
}

// keySpace is the namespace of key UUIDs.
var keySpace = uuid.NewSHA1(uuid.NameSpaceURL, []byte("spillway:idempotency-key"))

// Text returns a key as it is sent.
func (k KeyShape) Text(key string) string {
	key = k.Prefix + key
	switch k.Form {
	case KeyUUID:
		return uuid.NewSHA1(keySpace, []byte(key)).String()
	case KeyHash:
		sum := sha256.Sum256([]byte(key))
		return hex.EncodeToString(sum[:16])
	}
	return key
}

// secondGeneration is the key generation after a first definite no: the id followed by ~2.
const secondGeneration = 2

// Picky reports whether the gateway rejects some jobs' keys.
func (k KeyShape) Picky() bool {
	return k.Any() && k.Form != KeyUUID && k.Form != KeyHash && (k.Min > 0 || k.Max > 0 || k.Alphabet != "")
}

// Check returns why the gateway would not accept the key of a job with that id, or nil. It checks a key of the
// second generation as well.
func (k KeyShape) Check(id string) error {
	if !k.Picky() {
		return nil
	}
	first, later := k.Text(id), k.Text(IdempotencyKey(id, secondGeneration))
	const hint = ": give the job another id, or the gateway request.key.form: uuid"
	switch {
	case len(first) < k.Min:
		return fmt.Errorf("its idempotency key would have %d characters, and the gateway takes no fewer than %d%s", len(first), k.Min, hint)
	case k.Max > 0 && len(later) > k.Max:
		return fmt.Errorf("its idempotency key would have up to %d characters, and the gateway takes no more than %d%s", len(later), k.Max, hint)
	case k.Alphabet != "" && !matches(class(k.Alphabet), later):
		return fmt.Errorf("its idempotency key, or one for a second try (%s), would have characters that the gateway does not take; it takes %s%s", shownKey(later), k.Alphabet, hint)
	}
	return nil
}

// shownKey returns a key shortened for messages.
func shownKey(key string) string {
	const most = 60
	if len(key) > most {
		return key[:most] + "…"
	}
	return key
}

// class returns an expression that matches strings over the alphabet.
func class(alphabet string) string { return "^[" + alphabet + "]*$" }

// CheckAlphabet returns why a text can't be a key alphabet, or nil.
func CheckAlphabet(text string) error {
	if strings.ContainsAny(text, "[]\\^") || text == "" {
		return fmt.Errorf("write the characters as in a regular expression's class, without brackets, like a-zA-Z0-9_-")
	}
	if _, err := regexp.Compile(class(text)); err != nil {
		return fmt.Errorf("the characters can't be read: write them like a-zA-Z0-9_-")
	}
	return nil
}
