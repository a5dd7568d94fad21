package job

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

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

// sentParts are the parts of a request that a digest covers, each with its number of digits. The payload is not
// included: it never changes for a key, and a digest must not help to guess it. Headers that are the same for
// all jobs are not included either, because their secrets are rotated.
var sentParts = []struct {
	name   string
	digits int
}{{"url or method", 6}, {"encoding or strip", 4}, {"idempotency_header, prefix or key", 6}, {"headers with placeholders", 4}}

// SentDigest returns a short digest of how a gateway's calls are formed: the request's target, the body's
// encoding, the form of the key, and the headers made of the job's own values. Two calls with the same key must
// not differ in it. Empty headers have no digits.
func SentDigest(target, encoding, key, headers string) string {
	digest := ""
	for i, text := range []string{target, encoding, key, headers} {
		if i == len(sentParts)-1 && text == "" {
			break
		}
		sum := sha256.Sum256([]byte(text))
		digest += hex.EncodeToString(sum[:])[:sentParts[i].digits]
	}
	return digest
}

// SentChanges returns, in the configuration's words, the parts in which two digests differ.
func SentChanges(then, now string) (changed []string) {
	for _, part := range sentParts {
		was, is := then[:min(part.digits, len(then))], now[:min(part.digits, len(now))]
		if was != is {
			changed = append(changed, part.name)
		}
		then, now = then[len(was):], now[len(is):]
	}
	return changed
}
