package job

import (
	"crypto/sha256"
	"encoding/hex"
)

// sentParts are what a digest of a request covers, each with its share of the digits. The payload is not in it, which never changes while a key
// stays, and which nobody is to guess by a digest; nor are headers that are the same for all jobs, where secrets are rotated.
var sentParts = []struct {
	name   string
	digits int
}{{"url or method", 6}, {"encoding or strip", 4}, {"idempotency_header, prefix or key", 6}, {"headers with placeholders", 4}}

// SentDigest is a short digest of what a gateway's calls are made of: the request's target, how the body is written, how the key is shown,
// and which headers are made of the job's own values. Two calls with one key must not differ in it. Empty headers have no digits: there are none.
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

// SentChanges says in the configuration's words in which parts two digests differ.
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
