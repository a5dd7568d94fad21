package provider

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// paid is the money that a request asks for.
type paid struct {
	known    bool
	minor    int64
	currency string
}

// mostBody is how much of a request is looked at for money.
const mostBody = 1 << 20

// paid reads the whole request, and the money that it is about where the settings say where that stands.
func (p *Provider) paid(r *http.Request) (m paid) {
	cfg := p.Config()
	if cfg.Amount == "" {
		_, _ = io.Copy(io.Discard, r.Body)
		return m
	}
	body, _ := io.ReadAll(io.LimitReader(r.Body, mostBody)) // what could not be read has no amount
	_, _ = io.Copy(io.Discard, r.Body)
	field := formField(body)
	if begins := bytes.TrimSpace(body); len(begins) > 0 && begins[0] == '{' {
		field = jsonField(body)
	}
	minor, err := strconv.ParseInt(field(cfg.Amount), 10, 64)
	m.known, m.minor = err == nil, minor
	m.currency = strings.ToUpper(field(cfg.Currency))
	return m
}

// formField finds fields of a form: a.b is a[b].
func formField(body []byte) func(path string) string {
	form, _ := url.ParseQuery(string(body)) // what is good of it
	return func(path string) string {
		first, rest, deeper := strings.Cut(path, ".")
		if deeper {
			first += "[" + strings.ReplaceAll(rest, ".", "][") + "]"
		}
		return form.Get(first)
	}
}

// jsonField finds fields of JSON that are texts or numbers.
func jsonField(body []byte) func(path string) string {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var document any
	_ = d.Decode(&document) // what is no JSON has no fields
	return func(path string) string {
		v := document
		for _, name := range strings.Split(path, ".") {
			fields, _ := v.(map[string]any)
			v = fields[name]
		}
		switch v := v.(type) {
		case string:
			return v
		case json.Number:
			return v.String()
		}
		return ""
	}
}
