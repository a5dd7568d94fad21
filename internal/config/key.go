package config

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
)

const (
	// maxPrefix is the longest prefix of idempotency keys. With an id of 200 characters and the key generation
	// after it, a key has at most 255 characters, the most that Stripe accepts
	// (docs.stripe.com/api/idempotent_requests).
	maxPrefix = 40
	// keyMargin is how long before a key's end, in addition to the call's timeout, no other call may use it,
	// because a call may be written that much later than it was decided on.
	keyMargin = 5 * time.Second
)

// KeyCovers returns how long after a key's first call another call may use it, so that the gateway knows the
// key until that call's end. It is 0 if there are no keys, or if they make no repeated call safe.
func (q Request) KeyCovers() time.Duration {
	if !q.Key.Any() || q.KeyForgets {
		return 0
	}
	return q.keyLives()
}

func (q Request) keyLives() time.Duration { return max(q.KeyLifetime-q.Timeout-keyMargin, 0) }

// key reads where the gateway's idempotency keys are sent and how they are written.
func (r *reader) key(n node, q *Request) {
	least, most := int64(0), int64(0)
	k := &q.Key
	r.object(n,
		field{"in", r.word(&k.In, choice("a place for a key", job.KeyInHeader, job.KeyInBody, job.KeyInQuery))},
		field{"name", r.word(&k.Name, checkKeyName)},
		field{"prefix", r.prefix(q)},
		field{"form", r.word(&k.Form, choice("a form of keys", job.KeyID, job.KeyUUID, job.KeyHash))},
		field{"min", r.count(&least, 1, maxKey)},
		field{"max", r.count(&most, 1, maxKey)},
		field{"alphabet", r.word(&k.Alphabet, checkAlphabet)},
	)
	k.Min, k.Max = int(least), int(most)
	name := join(n.path, "name")
	switch {
	case k.Header() == "" && !r.written(name):
		r.missing(name, "write what the "+k.In+" calls the key")
	case k.Header() != "" && r.written(name):
		if rule := checkKeyHeader(k.Name); rule != "" {
			r.fault(name, "%q %s", k.Name, rule)
		}
	}
	if k.Max > 0 && k.Min > k.Max {
		r.clash(join(n.path, "min"), join(n.path, "max"), "no key has at least %d and at most %d characters: make max the larger one", k.Min, k.Max)
	}
	if made := len(k.Text("")); k.Max > 0 && (k.Form == job.KeyUUID || k.Form == job.KeyHash) && made > k.Max {
		r.clash(join(n.path, "form"), join(n.path, "max"), "a key of the form %s has %d characters, and the gateway takes no more than %d: use another form", k.Form, made, k.Max)
	}
}

// maxKey is the longest configurable key; no provider documents a longer one.
const maxKey = 1024

// keyHeader reads the short form of a key in a header. If both forms are used, the file's precedes the pack's.
func (r *reader) keyHeader(path string, q *Request, header string) {
	short, long := path+".idempotency_header", path+".key.name"
	pack := r.subject.pack
	switch fromPack := func(field string) bool { return pack.name != "" && r.places[field] == pack.at }; {
	case r.written(long) && fromPack(short):
		return
	case r.written(long) && !fromPack(long):
		r.clash(short, long, "idempotency_header is the short form of key.name: keep one of them")
		return
	}
	q.Key.In, q.Key.Name = "", header
}

func checkKeyName(text string) string {
	if text == "" {
		return `is not a name: write one, or idempotency_header: "" where the gateway has no keys`
	}
	if strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "is not a name of a header, a field or a parameter: use visible ASCII characters without spaces"
	}
	return ""
}

func checkAlphabet(text string) string {
	if err := job.CheckAlphabet(text); err != nil {
		return "is not an alphabet: " + err.Error()
	}
	return ""
}

// prefix reads the prefix of the job's id in its key. It may be set in only one of two places.
func (r *reader) prefix(q *Request) func(node) {
	return func(n node) {
		if q.KeyPrefixWritten {
			r.fault(n.path, "idempotency_prefix is the short form of key.prefix: keep one of them")
			return
		}
		q.KeyPrefixWritten = true
		r.word(&q.Key.Prefix, checkPrefix)(n)
	}
}

func checkPrefix(text string) string {
	switch {
	case strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }):
		return "can't stand before a key: use visible ASCII characters without spaces, like eu-"
	case len(text) > maxPrefix:
		return fmt.Sprintf("is longer than %d characters: with an id behind it, no gateway would take such a key", maxPrefix)
	}
	return ""
}

// checkKey reports contradictory settings of idempotency keys.
func (r *reader) checkKey(path string, q *Request) {
	life, timeout := path+".key_lifetime", path+".timeout"
	switch {
	case q.KeyLifetime == 0:
		r.clash(life, path+".idempotency_header", "a key that is forgotten at once protects nothing: "+
			`give the gateway's own lifetime, or, where it has no keys, write idempotency_header: ""`)
	case q.keyLives() == 0 && !r.unset[timeout]:
		r.clash(life, timeout, "a key that lives for %s%s is forgotten before a second call with it has ended, as a call may take %s%s and the margin is %s: "+
			"write the gateway's own key_lifetime, or a timeout below the difference",
			job.FormatDuration(q.KeyLifetime), r.defaulted(life), job.FormatDuration(q.Timeout), r.defaulted(timeout), job.FormatDuration(keyMargin))
	}
	for _, name := range q.headerNames() {
		if strings.EqualFold(name, q.Key.Header()) {
			r.fault(join(path+".headers", name), "this is the idempotency header, which each job fills with its own key: take it out here")
		}
	}
}

// checkShared reports gateways that a provider would take for one: the same server, the same key header, and no
// distinct key prefixes. Job ids are unique only within a gateway, so a job of one could be answered with the
// charge of another.
func (r *reader) checkShared(all []Gateway) {
	type provider struct{ server, in, name string }
	known := map[provider]prefixes{}
	for i, g := range all {
		q := g.Request
		server, told := q.server()
		if !told || !q.Key.Any() || q.KeyPrefixWritten && q.Key.Prefix == "" {
			continue // unknown, or configured to be different accounts
		}
		at := provider{server, cmp.Or(q.Key.In, job.KeyInHeader), strings.ToLower(q.Key.Name)}
		if known[at].whole == nil {
			known[at] = newPrefixes()
		}
		if k := known[at].add(q.Key.Prefix, i); k < i {
			r.mixed(g, all[k], server)
		}
	}
}

// mixed reports that the keys of two gateways may be equal at one provider.
func (r *reader) mixed(g, other Gateway, server string) {
	path := join("gateways", g.Name) + ".request.idempotency_prefix"
	if long := join("gateways", g.Name) + ".request.key.prefix"; r.written(long) {
		path = long
	}
	hint := strconv.Quote(g.Name + "-")
	if g.At.File != r.file {
		hint = `"{name}:" for all of a template`
	}
	r.fault(path, `gateway %q (%s) calls %s too, with keys in the same place, and no prefix keeps the keys of the two apart: a job of the one would be `+
		`answered with the charge of the other's job of that id. Give the newer gateway a prefix that does not begin like the other's, such as %s, or write `+
		`idempotency_prefix: "" for one of them if their accounts are different`, other.Name, other.At.seenFrom(g.At), server, hint)
}

// prefixes are the key prefixes at one provider. Two prefixes separate keys unless one begins with the other;
// no prefix does not separate from no prefix.
type prefixes struct{ whole, begun map[string]int } // the first gateway with it, and the first whose prefix begins with it

func newPrefixes() prefixes { return prefixes{map[string]int{}, map[string]int{}} }

// add adds the prefix of a gateway. It returns the first gateway whose keys may be the same: itself if there is
// no other.
func (p prefixes) add(prefix string, gateway int) int {
	first := gateway
	for n := min(1, len(prefix)); n <= len(prefix); n++ {
		if other, has := p.whole[prefix[:n]]; has {
			first = min(first, other)
		}
	}
	if other, has := p.begun[prefix]; has {
		first = min(first, other)
	}
	if _, has := p.whole[prefix]; !has {
		p.whole[prefix] = gateway
	}
	for n := min(1, len(prefix)); n <= len(prefix); n++ {
		if _, has := p.begun[prefix[:n]]; !has {
			p.begun[prefix[:n]] = gateway
		}
	}
	return first
}

// server returns the scheme, host and port of a request. ok is false if they contain an unset variable.
func (q Request) server() (string, bool) {
	text := q.URL.Reveal()
	if text == "" {
		text = q.URLText
	}
	scheme, rest, found := strings.Cut(text, "://")
	host, _, _ := strings.Cut(rest, "/")
	u, err := url.Parse(scheme + "://" + host)
	if !found || err != nil || u.Hostname() == "" || strings.ContainsAny(scheme+host, "${") {
		return "", false
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	name := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	return u.Scheme + "://" + name + ":" + port, true
}
