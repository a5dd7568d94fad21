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
	// maxPrefix is how long a prefix of idempotency keys may be: with an id of 200 characters and the key's generation behind it, a key has
	// at most 255, the most that Stripe takes (docs.stripe.com/api/idempotent_requests).
	maxPrefix = 40
	// keyMargin is how long before a key's end, beside the call's time-out, no other call begins with it: a call may be written that much
	// later than it was decided on.
	keyMargin = 5 * time.Second
)

// KeyCovers is how long after a key's first call another call may begin with it: then the gateway knows the key until that call's end.
// 0 where there are no keys, or where they cover nothing.
func (q Request) KeyCovers() time.Duration {
	if !q.Key.Any() || q.KeyForgets {
		return 0
	}
	return q.keyLives()
}

func (q Request) keyLives() time.Duration { return max(q.KeyLifetime-q.Timeout-keyMargin, 0) }

// key reads where the gateway's idempotency keys stand and what they look like.
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

// maxKey is the longest key that can be asked for: longer ones are in no provider's documents.
const maxKey = 1024

// keyHeader takes in the short form of a key in a header. Of two forms, the file's stands above the pack's.
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

// prefix reads what stands before each job's id in its key: in one of two places, of which one may be used.
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

// checkKey reports what contradicts itself in a request that has an idempotency header.
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

// checkShared reports gateways that one provider would take for one: the same server and the same header for keys, and no prefixes that keep
// their keys apart. Job ids are only unique within a gateway, so a job of the one would be answered with the charge of the other's.
func (r *reader) checkShared(all []Gateway) {
	type provider struct{ server, in, name string }
	known := map[provider]prefixes{}
	for i, g := range all {
		q := g.Request
		server, told := q.server()
		if !told || !q.Key.Any() || q.KeyPrefixWritten && q.Key.Prefix == "" {
			continue // nobody can say, or somebody has said that the accounts are different
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

// mixed reports that the keys of two gateways may be the same at one provider.
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

// prefixes are those of the keys at one provider. Two of them keep keys apart unless one begins like the other; none at all keeps from none at all.
type prefixes struct{ whole, begun map[string]int } // the first gateway that has it, and the first whose prefix begins so

func newPrefixes() prefixes { return prefixes{map[string]int{}, map[string]int{}} }

// add takes in the prefix of a gateway, and returns the first one whose keys may be the same: itself if there is no other.
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

// server returns the scheme, host and port that a request goes to, as far as they are known: a variable in them that is not set hides them.
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
