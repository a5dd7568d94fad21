package config

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
)

// mask replaces a secret in any output.
const mask = "<secret>"

// Secret is a text that is hidden in printed text, logs, JSON and YAML. The empty Secret is shown as such.
type Secret string

// Reveal returns the text itself: to be sent, never to be shown.
func (s Secret) Reveal() string { return string(s) }

// String returns <secret>, or "" for the empty Secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// GoString hides the text from %#v.
func (s Secret) GoString() string { return fmt.Sprintf("config.Secret(%q)", s.String()) }

// Format hides the text from every verb, %x and %d included.
func (s Secret) Format(f fmt.State, verb rune) {
	switch {
	case verb == 'v' && f.Flag('#'):
		fmt.Fprint(f, s.GoString())
	case verb == 'q':
		fmt.Fprintf(f, "%q", s.String())
	default:
		fmt.Fprint(f, s.String())
	}
}

// MarshalText hides the text from JSON and XML. (A map key of this type would show, because JSON uses string
// keys as they are.)
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML hides the text from YAML.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }

// LogValue hides the text from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

var passwordParameter = regexp.MustCompile(`(?i)([?&][^=&#]*(?:pass|secret|token|key)[^=&#]*=)[^&#]*`)

// RedactURL returns the URL with anything that may be a password masked, whatever its form: even if it can't be
// parsed, has several hosts, or has an unescaped / or @ in its password.
func RedactURL(raw string) string {
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		scheme, rest = "", raw
	} else {
		scheme += "://"
	}
	user, host := "", rest
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		user, host = redactUser(rest[:at]), rest[at:]
	}
	return scheme + user + passwordParameter.ReplaceAllString(host, "${1}"+mask)
}

// redactUser masks what precedes the @. A single word there may be a password whose colon was forgotten.
func redactUser(user string) string {
	name, _, hasPassword := strings.Cut(user, ":")
	if !hasPassword {
		return mask
	}
	return name + ":" + mask
}
