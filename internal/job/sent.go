package job

import (
	"crypto/sha256"
	"encoding/hex"
)

// sentParts are what a digest of a request covers, each with its share of the digits. The payload is not in it, which never changes while a key
// stays, and which nobody is to guess by a digest; nor are headers, where secrets are rotated.
var sentParts = []struct {
	name   string
	digits int
}{{"url or method", 6}, {"encoding", 4}, {"idempotency_header, prefix or key", 6}}

// SentDigest is a short digest of what a gateway's calls are made of: the request's target, how the body is written, and how the key is shown.
// Two calls with one key must not differ in it.
func SentDigest(target, encoding, key string) string {
	digest := ""
	for i, text := range []string{target, encoding, key} {
		sum := sha256.Sum256([]byte(text))
		digest += hex.EncodeToString(sum[:])[:sentParts[i].digits]
	}
	return digest
}

// SentChanges says in the configuration's words in which parts two digests differ.
func SentChanges(then, now string) (changed []string) {
	for _, part := range sentParts {
		if len(then) < part.digits || len(now) < part.digits || then[:part.digits] != now[:part.digits] {
			changed = append(changed, part.name)
		}
		then, now = then[min(part.digits, len(then)):], now[min(part.digits, len(now)):]
	}
	return changed
}
