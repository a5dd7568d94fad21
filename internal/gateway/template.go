package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"

	"spillway/internal/job"
)

// template is a URL with places for the job's id and fields of its payload.
type template struct {
	parts  []part
	base   *url.URL // with "x" at the places
	secure bool
}

// part is a piece of a URL: literal text, or a place.
type part struct {
	text  string
	id    bool     // {id}
	path  []string // {payload.a.b}
	query bool     // the place is behind the question mark
}

func (p part) place() bool { return p.id || p.path != nil }

// parseTemplate reads a URL. Its errors don't quote it: the query may hold a secret.
func parseTemplate(raw string) (template, error) {
	var t template
	query := false
	rest := raw
	for rest != "" {
		text, after, found := strings.Cut(rest, "{")
		if strings.Contains(text, "}") {
			return t, errors.New("a } has no { before it")
		}
		t.parts = append(t.parts, part{text: text})
		query = query || strings.Contains(text, "?")
		if !found {
			break
		}
		name, tail, closed := strings.Cut(after, "}")
		if !closed {
			return t, errors.New("a { has no } behind it")
		}
		p, err := parsePlace(name, query)
		if err != nil {
			return t, err
		}
		t.parts = append(t.parts, p)
		rest = tail
	}
	return t, t.check()
}

func parsePlace(name string, query bool) (part, error) {
	if name == "id" {
		return part{id: true, query: query}, nil
	}
	field, ok := strings.CutPrefix(name, "payload.")
	if !ok || field == "" {
		return part{}, errors.New("{" + name + "} is unknown: use {id} or {payload.FIELD}")
	}
	return part{path: strings.Split(field, "."), query: query}, nil
}

// check parses the URL with each place filled in.
func (t *template) check() error {
	var b strings.Builder
	for _, p := range t.parts {
		if p.place() {
			p.text = "x"
		}
		b.WriteString(p.text)
	}
	u, err := url.Parse(b.String())
	switch {
	case err != nil:
		return errors.New("it can't be read as a URL: write it like https://api.example.com/v1/payments")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.Opaque != "":
		return errors.New("it must be a whole one with http or https: write it like https://api.example.com/v1/payments")
	case u.User != nil:
		return errors.New("it holds a user or password: put them into headers (Authorization)")
	case u.Fragment != "" || strings.Contains(b.String(), "#"):
		return errors.New("it holds a #, which is never sent: remove it")
	}
	if first := t.parts[0].text; !strings.HasPrefix(first, u.Scheme+"://"+u.Host) || len(t.parts) > 1 && !strings.ContainsAny(first[len(u.Scheme)+3:], "/?") {
		return errors.New("its host must be fixed: {id} and {payload.FIELD} may stand after the host and a / or ? only")
	}
	t.base, t.secure = u, u.Scheme == "https"
	return nil
}

// address is host and port to connect to.
func (t *template) address() string {
	port := t.base.Port()
	if port == "" {
		port = "80"
		if t.secure {
			port = "443"
		}
	}
	return net.JoinHostPort(t.base.Hostname(), port)
}

// render fills the places in. Nobody may change the URL: where there are no places it is everybody's.
func (t *template) render(j job.Job, payload json.RawMessage) (*url.URL, error) {
	if len(t.parts) == 1 {
		return t.base, nil
	}
	var b strings.Builder
	for _, p := range t.parts {
		value, err := p.value(j, payload)
		if err != nil {
			return nil, err
		}
		b.WriteString(value)
	}
	u, err := url.Parse(b.String())
	if err != nil {
		return nil, invalid("the gateway's url can't be made for this job: compare its {places} with the payload")
	}
	return u, nil
}

// value returns a part's text, escaped for its place.
func (p part) value(j job.Job, payload json.RawMessage) (string, error) {
	if !p.place() {
		return p.text, nil
	}
	name, value := "id", j.ID
	if !p.id {
		name = "payload." + strings.Join(p.path, ".")
		var ok bool
		if value, ok = field(payload, p.path); !ok {
			return "", invalid("the gateway's url needs {%s}, and the payload has no text, number or boolean there", name)
		}
	}
	if p.query {
		return url.QueryEscape(value), nil
	}
	if value == "" || value == "." || value == ".." {
		return "", invalid("the gateway's url needs {%s} in its path, where it can't be empty, . or ..", name)
	}
	return url.PathEscape(value), nil
}

// field looks a scalar up in the payload, with numbers as they stand.
func field(payload json.RawMessage, path []string) (string, bool) {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	var doc any
	if d.Decode(&doc) != nil {
		return "", false
	}
	for _, step := range path {
		object, ok := doc.(map[string]any)
		if !ok {
			return "", false
		}
		doc = object[step]
	}
	switch v := doc.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}
