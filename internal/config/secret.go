package config

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
)

// mask stands for a secret wherever one would be printed.
const mask = "<secret>"

// Secret is a text that no print, log, JSON or YAML shows. The empty Secret shows as such: it hides nothing.
type Secret string

// Reveal returns the text itself: for the wire, never for people.
func (s Secret) Reveal() string { return string(s) }

// String returns <secret>, or nothing for the empty Secret.
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

// MarshalText hides the text from JSON and XML. (As the key of a map it would show: JSON takes such keys as they are.)
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML hides the text from YAML.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }

// LogValue hides the text from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

var passwordParameter = regexp.MustCompile(`(?i)([?&][^=&#]*(?:pass|secret|token|key)[^=&#]*=)[^&#]*`)

// RedactURL returns the URL with what may be a password masked, whatever its form: also that of a URL which can't be
// parsed, of several hosts, or with an unescaped / or @ in its password.
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

// redactUser masks what stands before the @. A lone word there may be a password whose colon was forgotten.
func redactUser(user string) string {
	name, _, hasPassword := strings.Cut(user, ":")
	if !hasPassword {
		return mask
	}
	return name + ":" + mask
}
