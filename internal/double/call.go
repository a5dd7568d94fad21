package double

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// call is the part of a request that the double reads.
type call struct {
	at       instant // of its arrival
	method   string
	path     string
	host     string
	ip       string
	header   http.Header
	query    url.Values
	endpoint *Endpoint         // nil: there is none at the path
	parts    map[string]string // of the path, by the endpoint's names
	fields   map[string]any    // of the body, by dotted path: text, json.Number, bool or nil
	broken   error             // the body is not what it should be

	rule      *Key // of the key it carries; nil: it carries none
	key       string
	identity  string // of the key within its scope
	print     string // of the parameters
	amount    string
	currency  string
	reference string
	job       string // the own reference, or else the key without its generation
	log       *Call
}

var generation = regexp.MustCompile(`~[0-9]+$`)

func (d *Double) read(r *http.Request, body []byte) *call {
	c := &call{at: d.arrival(r.Context()), method: r.Method, path: r.URL.Path, host: r.Host, header: r.Header, query: r.URL.Query()}
	c.ip, _, _ = net.SplitHostPort(r.RemoteAddr)
	c.endpoint, c.parts = d.table.endpoint(r.Method, r.URL.Path)
	if r.Method != http.MethodGet {
		encoding, contentType := d.table.Request.Encoding, r.Header.Get("Content-Type")
		if c.endpoint != nil && c.endpoint.Kind == "token" {
			encoding = "form" // as OAuth has it, whatever payments are
		}
		c.fields, c.broken = fieldsOf(encoding, contentType, body)
	}
	d.findKey(c)
	req := d.table.Request
	c.amount, c.currency = c.text(req.Amount), c.text(req.Currency)
	for _, at := range req.Reference {
		if c.reference == "" {
			c.reference = c.text(at)
		}
	}
	if c.job = c.reference; c.job == "" {
		c.job = generation.ReplaceAllString(c.key, "")
	}
	if c.job == "" {
		c.job = fmt.Sprintf("call %d", d.nameless.Add(1)) // a job of its own: nothing in the table or the call distinguishes it from others
	}
	c.print = d.fingerprint(c)
	c.log = &Call{At: d.date(c.at), Job: c.job, Key: c.key, Method: c.method, Path: c.path}
	return c
}

// findKey takes the first key that the call carries.
func (d *Double) findKey(c *call) {
	if c.endpoint != nil && c.endpoint.Keyless {
		return
	}
	for i := range d.table.Keys {
		k := &d.table.Keys[i]
		value := c.header.Get(k.Name)
		if k.In == "body" {
			value = c.text(k.Name)
		}
		if value == "" {
			continue
		}
		c.rule, c.key = k, value
		parts := []string{k.Name, value}
		for _, s := range k.Scope {
			switch name, isHeader := strings.CutPrefix(s, "header:"); {
			case isHeader:
				parts = append(parts, c.header.Get(name))
			case s == "host":
				parts = append(parts, c.host)
			default:
				parts = append(parts, c.path)
			}
		}
		c.identity = strings.Join(parts, "\x00")
		return
	}
}

// text returns a field's value as text; "" if there is none.
func (c *call) text(field string) string {
	if start, many := strings.CutSuffix(field, "*"); many {
		for _, name := range slices.Sorted(maps.Keys(c.fields)) {
			if strings.HasPrefix(name, start) && c.fields[name] != nil {
				return fmt.Sprint(c.fields[name])
			}
		}
		return ""
	}
	if v := c.fields[field]; v != nil && field != "" {
		return fmt.Sprint(v)
	}
	return ""
}

// fingerprint returns the fingerprint of the parameters that must be equal in a repeat. The key is no parameter, though it may be among them.
func (d *Double) fingerprint(c *call) string {
	h := sha256.New()
	for _, part := range d.table.Saved.Compare {
		if part == "path" {
			fmt.Fprintf(h, "%q\n", c.path)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(c.fields)) {
			if c.rule == nil || c.rule.In != "body" || name != c.rule.Name {
				fmt.Fprintf(h, "%q=%q\n", name, fmt.Sprint(c.fields[name]))
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// fieldsOf flattens a body: {"a":{"b":[1]}} has the field a.b.0, and so has a[b][0]=1 of a form.
func fieldsOf(encoding, contentType string, body []byte) (map[string]any, error) {
	fields := map[string]any{}
	if len(bytes.TrimSpace(body)) == 0 {
		return fields, nil
	}
	kind, _, _ := strings.Cut(contentType, ";")
	kind = strings.TrimSpace(strings.ToLower(kind))
	if encoding == "form" {
		if kind != "application/x-www-form-urlencoded" {
			return fields, fmt.Errorf("the body is %q, and a form is wanted: application/x-www-form-urlencoded", kind)
		}
		form, err := url.ParseQuery(string(body))
		for name := range form {
			fields[strings.NewReplacer("][", ".", "[", ".", "]", "").Replace(name)] = form.Get(name)
		}
		return fields, err
	}
	if kind == "application/x-www-form-urlencoded" {
		return fields, errors.New("the body is a form, and JSON is wanted")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return fields, fmt.Errorf("the body is not JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return fields, errors.New("the body has more than one JSON value")
	}
	flatten(fields, "", v)
	return fields, nil
}

func flatten(into map[string]any, path string, v any) {
	prefix := path
	if path != "" {
		prefix += "."
	}
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			flatten(into, prefix+name, inner)
		}
	case []any:
		for i, inner := range v {
			flatten(into, prefix+strconv.Itoa(i), inner)
		}
	default:
		into[path] = v
	}
}

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`)

// badKey returns the answer to a missing or invalid key; "" if the key is good.
func (d *Double) badKey(c *call) string {
	if c.endpoint.Keyless {
		return ""
	}
	if c.rule == nil {
		for _, k := range d.table.Keys {
			if k.Required {
				return k.Missing
			}
		}
		return ""
	}
	k := c.rule
	switch {
	case len(c.key) < k.Min, k.Max > 0 && len(c.key) > k.Max,
		k.Alphabet != "" && !regexp.MustCompile("^["+k.Alphabet+"]+$").MatchString(c.key),
		k.Form == "uuid" && !uuid.MatchString(c.key):
		return k.Bad
	}
	return ""
}

var amounts = map[string]*regexp.Regexp{
	"minor":  regexp.MustCompile(`^[0-9]+$`),
	"string": regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`),
	"number": regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`),
}

// badRequest returns what is wrong with a payment's parameters; nil if nothing is.
func (d *Double) badRequest(c *call) error {
	req := d.table.Request
	if c.broken != nil {
		return c.broken
	}
	if c.amount == "" || req.Amount == "" {
		if req.Amount != "" && !req.Optional {
			return fmt.Errorf("there is no %s", req.Amount)
		}
		return nil
	}
	_, isNumber := c.fields[req.Amount].(json.Number)
	switch {
	case !amounts[req.Unit].MatchString(c.amount):
		return fmt.Errorf("%s: %q is not an amount", req.Amount, c.amount)
	case req.Encoding == "json" && isNumber == (req.Unit == "string"):
		return fmt.Errorf("%s: %q has the wrong JSON type", req.Amount, c.amount)
	case req.Currency != "" && c.currency == "":
		return fmt.Errorf("there is no %s", req.Currency)
	}
	return nil
}

// endpoint returns the first endpoint of the table that fits the path; nil if there is none.
func (t *Table) endpoint(method, path string) (*Endpoint, map[string]string) {
	for i := range t.Endpoints {
		e := &t.Endpoints[i]
		if (method == http.MethodGet) != e.asks() {
			continue
		}
		if parts, ok := match(e.Path, path); ok {
			return e, parts
		}
	}
	if method == http.MethodPost {
		return &anyPayment, nil
	}
	return nil, nil
}

var anyPayment = Endpoint{Kind: "pay"}

// asks reports whether the endpoint is one of look-ups.
func (e *Endpoint) asks() bool {
	return e.Kind == "get" || e.Kind == "search" || e.Kind == "list" || e.Kind == "stored"
}

// match compares a pattern with the end of a path.
func match(pattern, path string) (map[string]string, bool) {
	want, got := strings.Split(strings.Trim(pattern, "/"), "/"), strings.Split(strings.Trim(path, "/"), "/")
	if len(got) < len(want) {
		return nil, false
	}
	got = got[len(got)-len(want):]
	parts := map[string]string{}
	for i, w := range want {
		if strings.HasPrefix(w, "{") && strings.HasSuffix(w, "}") {
			parts[strings.Trim(w, "{}")] = got[i]
		} else if w != got[i] {
			return nil, false
		}
	}
	return parts, true
}

// Call is one call, as the double's log has it.
type Call struct {
	At     time.Time `json:"at"` // by the double's calendar
	Job    string    `json:"job"`
	Key    string    `json:"key,omitempty"`
	Method string    `json:"method"`
	Path   string    `json:"path"`
	// Answer is its name in the table, and Status the one sent; 0: the connection was cut, or there is no answer yet.
	Answer string `json:"answer"`
	Status int    `json:"status"`
	// Look is the kind of a look-up: get, search, list or stored; "" for a payment. For a look-up, Job is the job that it was about; "" for a list.
	Look string `json:"look,omitempty"`
	// Said is what a look-up showed: "nothing", a payment's state and id, or how many payments. "" if it failed.
	Said string `json:"said,omitempty"`
	// Truth has the states of the job's entries in the ledger at that moment; "" is none.
	Truth string `json:"truth,omitempty"`
	// Repeat says that the key was known.
	Repeat bool `json:"repeat,omitempty"`
	// Fate is the fate that the call met, or its key's first call.
	Fate string `json:"fate,omitempty"`
}
