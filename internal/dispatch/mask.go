package dispatch

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
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

// judge judges answers by their table. What is kept of them is without the secrets in them, but what they mean is not judged by that: a
// merchant's number is a header too, and an answer with <secret> in its place is no JSON any more, so that a no would be taken for a yes.
type judge struct {
	table outcome.Table
	mask  mask
}

// Judge implements worker.Judge.
func (j judge) Judge(in outcome.Input) outcome.Judgement {
	in.Hide = j.mask.hide
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
		if scheme, credentials, ok := strings.Cut(text, " "); ok { // Bearer …, Basic …
			all[credentials] = true
			if strings.EqualFold(scheme, "Basic") {
				all[inBasic(credentials)] = true
			}
		}
	}
	for _, address := range []string{q.URL.Reveal(), q.Proxy.Reveal()} {
		inURL(address, all)
	}
	written := map[string]bool{}
	for text := range all {
		if len(text) >= leastSecret {
			forms(text, written)
		}
	}
	var m mask
	for text := range written {
		m.secrets = append(m.secrets, []byte(text))
	}
	slices.SortFunc(m.secrets, func(a, b []byte) int { return cmp.Compare(len(b), len(a)) }) // one may be a part of another
	return m
}

// inBasic returns the secret of a user and password in base64: the password, or the user where there is none.
func inBasic(credentials string) string {
	both, _ := base64.StdEncoding.DecodeString(credentials)
	user, password, _ := strings.Cut(string(both), ":")
	return cmp.Or(password, user)
}

// forms adds a text as answers may have it: as it is, in a form, and in JSON, which some write with \/ for a slash.
func forms(text string, to map[string]bool) {
	to[text], to[url.QueryEscape(text)] = true, true
	if quoted, err := json.Marshal(text); err == nil {
		inner := string(quoted[1 : len(quoted)-1])
		to[inner], to[strings.ReplaceAll(inner, "/", `\/`)] = true, true
	}
}

// harmless are headers that say how to talk, not who does.
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

func (m mask) hide(text []byte) []byte {
	for _, s := range m.secrets {
		if bytes.Contains(text, s) {
			text = bytes.ReplaceAll(text, s, masked)
		}
	}
	return text
}
