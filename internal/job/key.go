package job

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"
)

// Where a key stands in a call.
const (
	KeyInHeader = "header"
	KeyInBody   = "body"
	KeyInQuery  = "query"
)

// How a key is written.
const (
	KeyID   = "id"   // the prefix, the job's id, and the key's generation behind it
	KeyUUID = "uuid" // a UUID made from these: version 5 of RFC 9562, the same for the same key always
	KeyHash = "hash" // the first 32 hex digits of their SHA-256
)

// KeyShape says where a gateway's idempotency keys stand in its calls and how they are written. The zero KeyShape: the gateway has no keys.
type KeyShape struct {
	// In is KeyInHeader, KeyInBody or KeyInQuery. Empty means KeyInHeader.
	In string
	// Name is that of the header, of the body's field or of the query's parameter. Empty: the gateway has no keys.
	Name string
	// Prefix stands before the job's id. Empty: nothing does.
	Prefix string
	// Form is KeyID, KeyUUID or KeyHash. Empty means KeyID.
	Form string
	// Min and Max are how many characters a key must have at least, and may have at most. Zero: no bound.
	Min, Max int
	// Alphabet is what a key may be made of, as the inside of a regular expression's class (a-zA-Z0-9-). Empty: visible ASCII.
	Alphabet string
}

// Any says that the gateway has keys.
func (k KeyShape) Any() bool { return k.Name != "" }

// Header returns the name of the header that carries the key; empty where none does.
func (k KeyShape) Header() string {
	if k.In == "" || k.In == KeyInHeader {
		return k.Name
	}
	return ""
}

// keySpace is the name space of the UUIDs of keys.
var keySpace = uuid.NewSHA1(uuid.NameSpaceURL, []byte("spillway:idempotency-key"))

// Text returns a key as it goes out.
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

// secondGeneration is that of the key after a definite no: ~2 stands behind the id then.
const secondGeneration = 2

// Picky says that a gateway does not take every job's key.
func (k KeyShape) Picky() bool {
	return k.Any() && k.Form != KeyUUID && k.Form != KeyHash && (k.Min > 0 || k.Max > 0 || k.Alphabet != "")
}

// Check returns why the gateway would not take the key of a job with that id, or nil. A key of a later generation is looked at as well.
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

// shownKey is what of a key is shown in a message.
func shownKey(key string) string {
	const most = 60
	if len(key) > most {
		return key[:most] + "…"
	}
	return key
}

// class is an expression for texts of this alphabet alone.
func class(alphabet string) string { return "^[" + alphabet + "]*$" }

// CheckAlphabet returns why a text can't be the alphabet of keys, or nil.
func CheckAlphabet(text string) error {
	if strings.ContainsAny(text, "[]\\^") || text == "" {
		return fmt.Errorf("write the characters as in a regular expression's class, without brackets, like a-zA-Z0-9_-")
	}
	if _, err := regexp.Compile(class(text)); err != nil {
		return fmt.Errorf("the characters can't be read: write them like a-zA-Z0-9_-")
	}
	return nil
}
