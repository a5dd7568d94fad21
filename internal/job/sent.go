package job

import (
	"crypto/sha256"
	"encoding/hex"
)

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
