package dispatch

import (
	"cmp"
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"spillway/internal/access"
	"spillway/internal/config"
	"spillway/internal/job"
)

// mask removes a gateway's secrets from its answers: some gateways quote the request in errors, and answers are
// stored with the job and shown to its viewers.
type mask struct {
	needles   []needle
	keepCards bool // card numbers are not masked
}

// maskOf is newMask, and masks card numbers too, unless the gateway allows them.
func maskOf(g config.Gateway) mask {
	m := newMask(g.Request)
	m.keepCards = g.Pan.Then == job.CardsAllow
	return m
}

func newMask(q config.Request) mask {
	all := map[string]bool{q.Sign.Secret.Reveal(): true, q.OAuth2.ClientSecret.Reveal(): true}
	for name, value := range q.Headers {
		if harmless.MatchString(name) {
			continue
		}
		text := value.Reveal()
		all[text] = true
		if scheme, credentials, ok := strings.Cut(text, " "); ok { // Bearer …, Basic …
			all[credentials] = true
			if strings.EqualFold(scheme, "Basic") {
				all[inBasic(credentials)] = true
			}
		}
	}
	for name, parts := range q.JobHeaders {
		for _, p := range parts {
			if harmless.MatchString(name) {
				break
			}
			text := p.Text.Reveal()
			if _, credentials, ok := strings.Cut(text, " "); ok {
				text = credentials
			}
			all[text], all[p.Variable.Reveal()] = true, true
		}
	}
	for _, address := range []string{q.URL.Reveal(), q.Proxy.Reveal(), q.OAuth2.TokenURL.Reveal()} {
		inURL(address, all)
	}
	var m mask
	for text := range all {
		m.add(text)
	}
	return m
}

func (m *mask) add(secret string) {
	if len(secret) >= leastSecret {
		m.needles = append(m.needles, needlesOf(secret)...)
	}
}

// with returns a function that masks the current access tokens, too.
func (m mask) with(tokens *access.Keeper) func([]byte) []byte {
	return func(text []byte) []byte {
		now := mask{needles: slices.Clone(m.needles), keepCards: m.keepCards}
		for _, token := range tokens.Known() {
			now.add(token)
		}
		return now.hide(text)
	}
}

// inBasic returns the secret of a base64 user and password: the password, or the user if there is none.
func inBasic(credentials string) string {
	both, _ := base64.StdEncoding.DecodeString(credentials)
	user, password, _ := strings.Cut(string(both), ":")
	return cmp.Or(password, user)
}

// harmless matches headers that describe the message, not the sender.
var harmless = regexp.MustCompile(`(?i)^(accept.*|content-.*|user-agent|host|prefer|cache-control|.*-version)$`)

var secretParameter = regexp.MustCompile(`(?i)pass|pwd|secret|token|key|sig|auth|cred`)

// inURL adds the password and the secret parameters of a URL.
func inURL(address string, to map[string]bool) {
	u, err := url.Parse(address)
	if err != nil {
		return
	}
	if password, ok := u.User.Password(); ok {
		to[password] = true
	}
	for name, values := range u.Query() {
		for _, v := range values {
			if secretParameter.MatchString(name) && !strings.Contains(v, "{") {
				to[v] = true
			}
		}
	}
}
