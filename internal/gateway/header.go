package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// HeaderPart is a part of a header's value that differs from job to job. Exactly one of its fields is set.
type HeaderPart struct {
	// Text is sent as it is.
	Text string
	// Secret is sent as it is, too. It may change while the outcome of calls is unknown: it is not part of a
	// Digest.
	Secret string
	// Place is id, lane or payload.FIELD (dotted): the job's value is sent.
	Place string
}

// jobHeader is a header with placeholders.
type jobHeader struct {
	name  string
	parts []part
}

// maxInHeader bounds a payload value in a header, in bytes: servers accept few KiB of headers.
const maxInHeader = 1024

// ownHeaders are written by HTTP itself. A second value would break the message or the connection.
var ownHeaders = []string{"Accept-Encoding", "Connection", "Content-Length", "Expect", "Keep-Alive", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// setHeaders checks and stores the headers. Errors name a header, never its value.
func (s *shape) setHeaders(headers map[string]string) error {
	s.header = http.Header{"User-Agent": {"spillway"}, "Accept-Encoding": {"identity"}}
	if s.hasBody() {
		s.header.Set("Content-Type", "application/json")
		if s.form {
			s.header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
	}
	for name, value := range headers {
		canonical, err := s.checkHeader(name, value)
		switch {
		case err != nil:
			return err
		case canonical == "Host":
			s.host = value
		default:
			s.header.Set(canonical, value)
		}
	}
	return nil
}

// checkHeader returns a header's name in canonical form, or why it can't have this value.
func (s *shape) checkHeader(name, value string) (canonical string, err error) {
	canonical = textproto.CanonicalMIMEHeaderKey(name)
	switch {
	case !token(name):
		return "", fmt.Errorf("headers: %q is not a header's name", name)
	case slices.Contains(ownHeaders, canonical):
		return "", fmt.Errorf("headers: %s is set by the call itself: remove it", canonical)
	case !printable(value):
		return "", fmt.Errorf("headers: the value of %s holds a line break or another control character: remove it", canonical)
	case strings.EqualFold(canonical, s.key.Header()):
		return "", fmt.Errorf("headers: %s carries the idempotency key: remove it", canonical)
	}
	return canonical, nil
}

// setJobHeaders checks and stores the headers with placeholders.
func (s *shape) setJobHeaders(headers map[string][]HeaderPart) error {
	for name, parts := range headers {
		h := jobHeader{}
		for _, p := range parts {
			canonical, err := s.checkHeader(name, p.Text+p.Secret)
			if err != nil {
				return err
			}
			h.name = canonical
			piece := part{text: p.Text + p.Secret}
			if p.Place != "" {
				if piece, err = parsePlace(p.Place); err != nil {
					return fmt.Errorf("headers: %s: %w", canonical, err)
				}
			}
			h.parts = append(h.parts, piece)
		}
		if h.name == "Host" {
			return errors.New("headers: Host is the same for all jobs: take the place out of it")
		}
		s.jobs = append(s.jobs, h)
	}
	return nil
}

// fill adds the headers with placeholders to those of one call.
func (s *shape) fill(to http.Header, v *values) error {
	for _, h := range s.jobs {
		value, err := h.value(v)
		if err != nil {
			return err
		}
		to.Set(h.name, value)
	}
	return nil
}

// value returns the value with the placeholders filled in.
func (h jobHeader) value(v *values) (string, error) {
	var b strings.Builder
	for _, p := range h.parts {
		text := p.text
		if p.place() {
			var err error
			if text, err = v.need(p, "header "+h.name); err != nil {
				return "", err
			}
			if !travels(text) {
				return "", invalid("the gateway's header %s needs {%s}, and what the job has there can't travel in a header: it must have 1 to %d printable ASCII characters, "+
					"and no space at either end", h.name, p.name(), maxInHeader)
			}
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// asConfigured returns the configuration of the headers with placeholders, without secrets, because they are
// rotated.
func asConfigured(headers map[string][]HeaderPart) string {
	var lines []string
	for name, parts := range headers {
		line := textproto.CanonicalMIMEHeaderKey(name) + ": "
		for _, p := range parts {
			switch {
			case p.Place != "":
				line += "{" + p.Place + "}"
			case p.Secret != "":
				line += "${}"
			}
			line += p.Text
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// travels reports whether a header's receiver sees text unchanged: printable ASCII, without a space at either
// end.
func travels(text string) bool {
	return text != "" && len(text) <= maxInHeader && strings.TrimSpace(text) == text &&
		strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) < 0
}

// token reports whether s can be a header's name.
func token(s string) bool {
	return s != "" && headerSafe(s) && !strings.ContainsAny(s, `()<>@,;:\"/[]?={}`)
}
