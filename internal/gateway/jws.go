package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// JWS configures a detached JWS (RFC 7515, appendix F).
type JWS struct {
	// KeyID is the protected header kid. Empty: none.
	KeyID string
	// Unencoded signs the content itself (RFC 7797, b64: false), not its base64.
	Unencoded bool
	// Protected are further protected headers: texts with {timestamp} {method} {path} {query} {id} and {key}
	// filled in, json.Numbers, bools, and lists of these. The text {timestamp} alone is sent as a number,
	// unless the timestamp is in rfc3339.
	Protected map[string]any
}

// jwsAlgorithms maps our algorithm names to those of RFC 7518 and RFC 8037.
var jwsAlgorithms = map[string]jose.SignatureAlgorithm{"rs256": jose.RS256, "ps256": jose.PS256, "es256": jose.ES256, "ed25519": jose.EdDSA}

func (j *JWS) check(algorithm string) error {
	if _, known := jwsAlgorithms[algorithm]; !known {
		return fmt.Errorf("jws: the algorithm %q can't be used: use rs256, ps256, es256 or ed25519, with a private key", algorithm)
	}
	return nil
}

// detached returns a JWS of the content without the content itself.
func (s *signer) detached(content []byte, fill *strings.Replacer) (string, error) {
	options := (&jose.SignerOptions{}).WithBase64(!s.JWS.Unencoded)
	for name, value := range s.JWS.Protected {
		if name == "crit" {
			for _, critical := range value.([]any) {
				options.WithCritical(critical.(string))
			}
			continue
		}
		options.WithHeader(jose.HeaderKey(name), s.protected(value, fill))
	}
	maker, err := jose.NewSigner(jose.SigningKey{Algorithm: jwsAlgorithms[s.Algorithm], Key: jose.JSONWebKey{Key: s.Key, KeyID: s.JWS.KeyID}}, options)
	if err != nil {
		return "", err
	}
	signed, err := maker.Sign(content)
	if err != nil {
		return "", err
	}
	return signed.DetachedCompactSerialize()
}

// protected returns a value ready for JSON encoding.
func (s *signer) protected(value any, fill *strings.Replacer) any {
	switch v := value.(type) {
	case json.Number:
		return json.RawMessage(v)
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = s.protected(v[i], fill)
		}
		return all
	case string:
		text := fill.Replace(v)
		if v == "{timestamp}" && slices.Contains([]string{"", "unix", "unix-ms"}, s.Timestamp) {
			return json.RawMessage(text)
		}
		return text
	}
	return value
}
