package config

import (
	"fmt"
	"math"
	"net"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"spillway/internal/job"
)

// check reports missing and contradictory settings of a gateway.
func (r *reader) check(path string, g *Gateway) {
	if !r.written(path+".request.url") && !g.Routed {
		r.missing(path+".request.url", "write where the gateway is called, like https://api.example.com/v1/payments")
	}
	if !r.written(path + ".leak.limits") {
		r.missing(path+".leak.limits", "write what the gateway allows, like [100/s]")
	}
	r.checkRequest(path+".request", &g.Request)
	if a := g.Amount; a.Most < a.Least {
		r.clash(path+".amount.most", path+".amount.least", "most, %d%s, is below least, %d%s: no amount could be used", a.Most,
			r.defaulted(path+".amount.most"), a.Least, r.defaulted(path+".amount.least"))
	}
	if g.Map != nil {
		r.checkMap(path, g)
	}
	r.checkApproval(path, g)
	r.checkLanes(path, g)
	r.checkBrakes(path, g)
	r.checkLeak(path+".leak", g.Leak)
	r.checkAdmission(path+".admission", g)
	if !g.Routed {
		r.checkLookup(path+".lookup", g)
	}
	if t := g.Retry; t.Max < t.First {
		r.clash(path+".retry.max", path+".retry.first", "max, %s%s, is shorter than first, %s%s: make max the longer one",
			job.FormatDuration(t.Max), r.defaulted(path+".retry.max"), job.FormatDuration(t.First), r.defaulted(path+".retry.first"))
	}
}

// clash reports a contradiction of two fields at the first one that the file has. It reports nothing for a
// field that is already at fault, whose value is only the default.
func (r *reader) clash(path, other, format string, args ...any) {
	if r.faulted[path] || r.faulted[other] {
		return
	}
	if !r.written(path) && r.written(other) {
		path = other
	}
	r.fault(path, format, args...)
}

// defaulted marks, in a message, a value that is not in the file.
func (r *reader) defaulted(path string) string {
	if r.written(path) {
		return ""
	}
	return " (the default)"
}

func (r *reader) checkRequest(path string, q *Request) {
	if q.Encoding == EncodingForm && bodiless(q.Method) {
		r.clash(path+".encoding", path+".method", "a %s has no body, so there is nothing to encode as a form: take encoding out, or use POST", q.Method)
	}
	if q.TLS != (TLS{}) && strings.HasPrefix(q.URL.Reveal(), "http://") {
		r.clash(path+".tls", path+".url", "the url is http, which knows no certificates: take tls out, or call https")
	}
	r.checkStrip(path, q)
	r.checkSign(path+".sign", q)
	r.checkOAuth2(path, q)
	if q.Key.In == job.KeyInBody && bodiless(q.Method) {
		r.clash(path+".key.in", path+".method", "a %s has no body for the key to stand in: use header or query", q.Method)
	}
	if q.Key.Any() {
		r.checkKey(path, q)
		return
	}
	q.KeyLifetime = 0
	if q.Key.Prefix != "" {
		r.clash(path+".idempotency_prefix", path+".key.prefix", "without an idempotency header there are no keys that a prefix could stand before: "+
			"take one of the two out")
	}
}

// bodiless reports whether a method's calls have no body.
func bodiless(method string) bool { return method == "GET" || method == "DELETE" }

// WithLimits returns why other limits can't replace the configured ones, or nil. A burst that is too large for
// them is no error: it is reduced while they apply.
func (l Leak) WithLimits(to []job.Limit) error {
	for i, one := range to {
		if rule := sameWindow(one, to[:i]); rule != "" {
			return fmt.Errorf("%q %s", one, rule)
		}
	}
	if short := shortest(to); len(to) > 0 && l.Jitter > short.Window/2 {
		return fmt.Errorf("leak.jitter is %s, more than half the window of %s: give a window of at least %s, or a smaller jitter in the file",
			job.FormatDuration(l.Jitter), short, job.FormatDuration(2*l.Jitter))
	}
	return nil
}

// shortest returns the limit with the shortest window; the zero Limit if there is none.
func shortest(limits []job.Limit) (short job.Limit) {
	for i, l := range limits {
		if i == 0 || l.Window < short.Window {
			short = l
		}
	}
	return short
}

func (r *reader) checkLeak(path string, l Leak) {
	if len(l.Limits) == 0 {
		return
	}
	if small := smallest(l.Limits); l.Burst > small.N {
		r.clash(path+".burst", path+".limits", "%d calls can't start together within %s: give at most %d", l.Burst, small, small.N)
	}
	short := shortest(l.Limits)
	if half := short.Window / 2; l.Jitter > half {
		r.clash(path+".jitter", path+".limits", "a jitter of %s%s is more than half the window of %s: give leak.jitter of at most %s",
			job.FormatDuration(l.Jitter), r.defaulted(path+".jitter"), short, job.FormatDuration(half))
	}
}

// checkAdmission refuses settings that the algorithm lacks, and those that can't be kept exactly in whole
// numbers, such as a bucket that takes centuries to fill.
func (r *reader) checkAdmission(path string, g *Gateway) {
	a := g.Admission
	if !job.Bursts(a.Algorithm) && r.written(path+".burst") {
		r.clash(path+".burst", path+".algorithm", "a %s has no burst, it takes what its limits say: "+
			"take burst out, or use token-bucket or leaky-bucket", a.Algorithm)
		return
	}
	if a.Algorithm != job.SlidingWindow && r.written(path+".precision") {
		r.clash(path+".precision", path+".algorithm", "a %s%s has no precision: take precision out, or use sliding-window",
			a.Algorithm, r.defaulted(path+".algorithm"))
	}
	a.fill(g.Leak)
	for _, l := range a.Limits {
		if !job.Fills(a.Algorithm, l, a.Burst) {
			r.clash(path+".burst", path+".limits", "a burst of %d takes too long to fill at %s: make the burst smaller", a.Burst, l)
			return
		}
	}
}

// The functions below return the rule that a text breaks, which follows the text in a message, or "".

// embedded is the address of an in-process Redis.
const embedded = "embedded"

var redisSchemes = []string{"redis", "rediss", "redis-socket", "redis-sentinel", "redis-cluster"}

func checkRedis(text string) string {
	scheme, rest, found := strings.Cut(text, "://")
	if text == embedded || found && rest != "" && slices.Contains(redisSchemes, scheme) {
		return ""
	}
	return "is not a Redis address: write redis://, rediss://, redis-socket://, redis-sentinel:// or redis-cluster:// " +
		"and what follows it, like redis://127.0.0.1:6379/0, or embedded"
}

// overTLS reports whether a Redis address uses TLS.
func overTLS(address string) bool {
	_, parameters, _ := strings.Cut(address, "?")
	given, err := url.ParseQuery(parameters)
	return strings.HasPrefix(address, "rediss://") || err == nil && given.Get("tls") == "true"
}

func checkServerName(text string) string {
	if text == "" || strings.ContainsAny(text, ":/ \t") {
		return "is not a name of a server: write the name that stands in its certificate, without a port"
	}
	return ""
}

func checkListen(text string) string {
	if text == "" {
		return ""
	}
	_, port, err := net.SplitHostPort(text)
	if n, portErr := strconv.Atoi(port); err != nil || !job.Digits(port) || portErr != nil || n > math.MaxUint16 {
		return `is not an address to listen on: write host:port, like 127.0.0.1:9400, or "" to serve nothing`
	}
	return ""
}

func checkToken(text string) string {
	if text == "" {
		return "is empty: give a token, or take the line out to serve loopback without one"
	}
	if slices.Contains(placeholders, strings.ToLower(text)) {
		return "is an example's placeholder, which everybody knows: " + MakeToken
	}
	return checkHeaderValue(text)
}

// placeholders are what examples contain instead of a token.
var placeholders = []string{"replace-me", "replace_me", "replaceme", "change-me", "change_me", "changeme"}

// MakeToken is the hint that says how to make a token.
const MakeToken = "make one with openssl rand -hex 16"

// LeastToken is the shortest token, in bytes, that can't be guessed.
const LeastToken = 16

var methods = []string{"GET", "POST", "PUT", "PATCH", "DELETE"}

func checkMethod(text string) string {
	if upper := strings.ToUpper(text); upper != text && slices.Contains(methods, upper) {
		return "is not a method: write " + upper
	}
	return choice("a method", methods...)(text)
}

var checkAlgorithm = choice("an algorithm", job.Algorithms()...)

// unsent are headers that the call writes itself: net/http would not accept them, or they would break the
// message.
var unsent = []string{"Accept-Encoding", "Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade"}

func checkHeaderName(name string, others map[string]string) string {
	if slices.Contains(unsent, textproto.CanonicalMIMEHeaderKey(name)) {
		return "is a header that HTTP fills in by itself: take it out"
	}
	return checkWantedHeader(name, others)
}

func checkWantedHeader(name string, others map[string]string) string {
	if !isToken(name) {
		return "is not a header's name: use letters, digits and -, with no space"
	}
	if first, twice := others[textproto.CanonicalMIMEHeaderKey(name)]; twice {
		return fmt.Sprintf("is the same header as %s: keep one of them", first)
	}
	return ""
}

func checkKeyHeader(name string) string {
	if name == "" {
		return ""
	}
	return checkHeaderName(name, nil)
}

// isToken reports whether text is a valid header name.
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

func checkHeaderValue(text string) string {
	if strings.ContainsAny(text, "\r\n") {
		return "has a line end in it, which HTTP refuses: does the variable's value end in one?"
	}
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
		return "has a control character in it, which HTTP refuses: take it out"
	}
	return ""
}

// checkField checks the dotted path of a field.
func checkField(path string) string {
	if slices.Contains(strings.Split(path, "."), "") || strings.ContainsAny(path, "{} \t\r\n") {
		return "is not a field: write its name, with dots between the levels, like amount or order.total"
	}
	return ""
}

// checkReference also allows an empty path.
func checkReference(path string) string {
	if path == "" {
		return ""
	}
	return checkField(path)
}

func checkURL(text string) string { return checkURLWith(text, nil) }

// checkURLWith checks a URL that may contain more placeholders.
func checkURLWith(text string, more []string) string {
	plain, rule := fillPlaceholders(text, more)
	if rule != "" {
		return rule
	}
	const hint = ": write one like https://api.example.com/v1/payments"
	u, err := url.Parse(plain)
	switch {
	case err != nil || strings.ContainsAny(text, " \t\r\n"):
		return "is not a URL" + hint
	case !strings.HasPrefix(text, "http://") && !strings.HasPrefix(text, "https://"): // in lower case
		return "does not begin with http:// or https://" + hint
	case u.Hostname() == "":
		return "has no host" + hint
	case u.User != nil:
		return "has a user or password in it: put them into headers, as Authorization"
	case strings.Contains(text, "#"):
		return "has a # part, which is never sent: take it out, or write %23"
	}
	if port, err := strconv.Atoi(u.Port()); u.Port() != "" && (err != nil || port < 1 || port > math.MaxUint16) {
		return "has a port that does not exist: use 1 to 65535"
	}
	return ""
}

// fillPlaceholders replaces {id}, {lane}, {payload.FIELD} and more by 0.
func fillPlaceholders(text string, more []string) (plain, rule string) {
	known := placesHint(more)
	_, rest, _ := strings.Cut(text, "://")
	if end := strings.IndexAny(rest, "/?#"); end < 0 && strings.Contains(rest, "{") || end >= 0 && strings.Contains(rest[:end], "{") {
		return "", "has a placeholder in its host: limits are for one host, so give each its own gateway"
	}
	for plain = text; ; {
		before, after, found := strings.Cut(plain, "{")
		name, tail, closed := strings.Cut(after, "}")
		switch {
		case !found && strings.Contains(plain, "}"), found && (!closed || strings.Contains(before, "}")):
			return "", "has a brace without its other half: " + known
		case !found:
			return plain, ""
		}
		if path, ok := strings.CutPrefix(name, "payload."); name != "id" && name != laneItself && !slices.Contains(more, name) && (!ok || checkField(path) != "") {
			return "", "has an unknown placeholder: " + known
		}
		plain = before + "0" + tail
	}
}
