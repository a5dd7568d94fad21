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

// template is a URL with placeholders for the job's id and fields of its payload.
type template struct {
	parts  []part
	base   *url.URL // with "x" for the placeholders
	secure bool
	who    string // what contains the placeholders, for errors
}

// part is a part of a URL or of a header's value: literal text, or a placeholder.
type part struct {
	text  string
	id    bool     // {id}
	lane  bool     // {lane}
	path  []string // {payload.a.b}
	look  string   // only in a look-up: {key}, {reference} or {first_call}
	query bool     // in a URL's query
}

func (p part) place() bool { return p.id || p.lane || p.path != nil || p.look != "" }

// name returns the name in the braces of a placeholder.
func (p part) name() string {
	switch {
	case p.id:
		return "id"
	case p.lane:
		return "lane"
	case p.look != "":
		return p.look
	}
	return "payload." + strings.Join(p.path, ".")
}

// parseTemplate parses a URL; place parses its placeholders. Its errors don't quote the URL, because the query
// may contain a secret.
func parseTemplate(raw string, place func(name string) (part, error)) (template, error) {
	t := template{who: "url"}
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
		p, err := place(name)
		if err != nil {
			return t, err
		}
		p.query = query
		t.parts = append(t.parts, p)
		rest = tail
	}
	return t, t.check()
}

// parsePlace parses the name in a placeholder.
func parsePlace(name string) (part, error) {
	switch name {
	case "id":
		return part{id: true}, nil
	case "lane":
		return part{lane: true}, nil
	}
	field, ok := strings.CutPrefix(name, "payload.")
	if !ok || field == "" {
		return part{}, errors.New("{" + name + "} is unknown: use {id}, {lane} or {payload.FIELD}")
	}
	return part{path: strings.Split(field, ".")}, nil
}

// check parses the URL with each placeholder filled in.
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

// address returns the host and port to connect to.
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

// render fills in the placeholders. The caller must not change the URL: without placeholders it is shared.
func (t *template) render(v *values) (*url.URL, error) {
	if len(t.parts) == 1 {
		return t.base, nil
	}
	var b strings.Builder
	for _, p := range t.parts {
		text, err := p.inURL(v, t.who)
		if err != nil {
			return nil, err
		}
		b.WriteString(text)
	}
	u, err := url.Parse(b.String())
	if err != nil {
		return nil, invalid("the gateway's %s can't be made for this job: compare its {places} with the payload", t.who)
	}
	return u, nil
}

// inURL returns a part's text, escaped for its position in a URL.
func (p part) inURL(v *values, who string) (string, error) {
	if !p.place() {
		return p.text, nil
	}
	value, err := v.need(p, who)
	switch {
	case err != nil:
		return "", err
	case p.query:
		return url.QueryEscape(value), nil
	case value == "" || value == "." || value == "..":
		return "", invalid("the gateway's %s needs {%s} in its path, where it can't be empty, . or ..", who, p.name())
	}
	return url.PathEscape(value), nil
}

// values are the values of the placeholders of one call.
type values struct {
	job     job.Job
	payload json.RawMessage
	doc     any               // the parsed payload, once a placeholder has needed it
	look    map[string]string // the placeholders of a look-up
}

// need returns the value of a placeholder. who names what needs it, for the error.
func (v *values) need(p part, who string) (string, error) {
	if p.id {
		return v.job.ID, nil
	}
	if p.lane {
		if v.job.Lane != "" {
			return v.job.Lane, nil
		}
		return "", invalid("the gateway's %s needs {lane}, and the job has no lane", who)
	}
	if p.look != "" {
		if value := v.look[p.look]; value != "" {
			return value, nil
		}
		return "", invalid("the gateway's %s needs {%s}, and the job has none yet", who, p.look)
	}
	value, ok := v.field(p.path)
	if !ok {
		return "", invalid("the gateway's %s needs {%s}, and the payload has no text, number or boolean there", who, p.name())
	}
	return value, nil
}

// field returns a scalar of the payload, with numbers as written.
func (v *values) field(path []string) (string, bool) {
	if v.doc == nil {
		d := json.NewDecoder(bytes.NewReader(v.payload))
		d.UseNumber()
		if d.Decode(&v.doc) != nil {
			return "", false
		}
	}
	doc := v.doc
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

const (
	maxFormDepth = 100
	// maxForm bounds the encoded form: the names of nested fields repeat, so a form can be far longer than its
	// JSON.
	maxForm = 8 << 20
)

// formEncoder writes JSON as a form while reading it, so that fields keep the order of the payload.
type formEncoder struct {
	in    *json.Decoder
	out   bytes.Buffer
	named int // total length of the names so far, including those of nulls
}

// encodeForm encodes an object as a form: nested a[b]=c, arrays a[0]=x, booleans as words, null omitted,
// numbers as written.
func encodeForm(payload json.RawMessage) ([]byte, error) {
	e := &formEncoder{in: json.NewDecoder(bytes.NewReader(payload))}
	e.in.UseNumber()
	if t, err := e.in.Token(); err != nil || t != json.Delim('{') {
		return nil, invalid("the payload is not a JSON object, and only an object can be sent as a form")
	}
	if err := e.members("", '{', 1); err != nil {
		return nil, err
	}
	return e.out.Bytes(), nil
}

// members writes the rest of an object or array.
func (e *formEncoder) members(prefix string, open json.Delim, depth int) error {
	if depth > maxFormDepth {
		return invalid("the payload is nested deeper than %d, too deep for a form", maxFormDepth)
	}
	for i := 0; e.in.More(); i++ {
		name := strconv.Itoa(i)
		if open == '{' {
			t, err := e.in.Token()
			if err != nil {
				return errBadPayload
			}
			name = url.QueryEscape(t.(string))
		}
		if prefix != "" {
			name = prefix + "[" + name + "]"
		}
		if e.named += len(name); e.named > maxForm {
			return errLongForm
		}
		if err := e.value(name, depth); err != nil {
			return err
		}
	}
	if _, err := e.in.Token(); err != nil {
		return errBadPayload
	}
	return nil
}

var (
	errBadPayload = invalid("the payload is not JSON")
	errLongForm   = invalid("the payload is longer than %d MiB as a form: send less, or use encoding json", maxForm>>20)
)

func (e *formEncoder) value(name string, depth int) error {
	t, err := e.in.Token()
	if err != nil {
		return errBadPayload
	}
	switch t := t.(type) {
	case json.Delim:
		return e.members(name, t, depth+1)
	case string:
		return e.pair(name, url.QueryEscape(t))
	case json.Number:
		return e.pair(name, url.QueryEscape(t.String()))
	case bool:
		return e.pair(name, strconv.FormatBool(t))
	}
	return nil // null is omitted
}

func (e *formEncoder) pair(name, value string) error {
	if e.out.Len()+len(name)+len(value)+2 > maxForm {
		return errLongForm
	}
	if e.out.Len() > 0 {
		e.out.WriteByte('&')
	}
	e.out.WriteString(name)
	e.out.WriteByte('=')
	e.out.WriteString(value)
	return nil
}
