package dispatch

import (
	"bytes"
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"spillway/internal/config"
	"spillway/internal/outcome"
)

// leastSecret is how long a secret must be to be looked for in answers, in bytes: what is shorter stands in many of them by chance.
const leastSecret = 6

// masked stands where a secret stood.
var masked = []byte("<secret>")

// mask takes a gateway's secrets out of its answers: some gateways repeat a request in their errors, and what they say is kept with the
// job and shown to whoever looks at it.
type mask struct{ secrets [][]byte }

// judge judges answers by their table, without the secrets in them.
type judge struct {
	table outcome.Table
	mask  mask
}

// Judge implements worker.Judge.
func (j judge) Judge(in outcome.Input) outcome.Judgement {
	in.Result.Body = j.mask.hide(in.Result.Body)
	return j.table.Judge(in)
}

func newMask(q config.Request) mask {
	all := map[string]bool{q.Sign.Secret.Reveal(): true}
	for name, value := range q.Headers {
		if harmless.MatchString(name) {
			continue
		}
		text := value.Reveal()
		all[text] = true
		if _, credentials, ok := strings.Cut(text, " "); ok { // Bearer …, Basic …
			all[credentials] = true
		}
	}
	for _, address := range []string{q.URL.Reveal(), q.Proxy.Reveal()} {
		inURL(address, all)
	}
	var m mask
	for text := range all {
		if len(text) >= leastSecret {
			m.secrets = append(m.secrets, []byte(text))
		}
		if escaped := url.QueryEscape(text); escaped != text && len(text) >= leastSecret {
			m.secrets = append(m.secrets, []byte(escaped))
		}
	}
	slices.SortFunc(m.secrets, func(a, b []byte) int { return cmp.Compare(len(b), len(a)) }) // one may be a part of another
	return m
}

// harmless are headers that say how to talk, not who does.
var harmless = regexp.MustCompile(`(?i)^(accept.*|content-.*|user-agent|host|prefer|cache-control|.*-version)$`)

var secretParameter = regexp.MustCompile(`(?i)pass|secret|token|key|sig`)

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

func (m mask) hide(text []byte) []byte {
	for _, s := range m.secrets {
		if bytes.Contains(text, s) {
			text = bytes.ReplaceAll(text, s, masked)
		}
	}
	return text
}
