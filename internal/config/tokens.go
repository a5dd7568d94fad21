package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"spillway/internal/job"
	"spillway/internal/roles"
)

// Token is a named token, and where the file names it.
type Token struct {
	roles.Token
	At Position
}

// Guarded reports whether callers of the HTTP server need a token or a login.
func (c *Config) Guarded() bool { return c.Token != "" || len(c.Tokens) > 0 || c.OIDC != nil }

// mostTokens bounds the number of tokens: each request is compared with all of them.
const mostTokens = 1000

const howToken = "write each like {name: billing, role: producer, secret: \"${BILLING_TOKEN}\"}"

// tokens reads the named tokens.
func (r *reader) tokens(n node) (all []Token) {
	items := r.items(n, howToken)
	if len(items) > mostTokens {
		r.fault(n.path, "%d tokens are too many: keep at most %d", len(items), mostTokens)
		return nil
	}
	for _, item := range items {
		if t, fine := r.token(item); fine {
			r.checkTwice(item.path, t, all)
			all = append(all, t)
		}
	}
	return all
}

func (r *reader) token(n node) (t Token, fine bool) {
	faults, role, digest, secret, expires := len(r.faults), "", "", Secret(""), ""
	names := job.Texts(roles.All())
	t.At = r.place(n.path)
	r.object(n,
		field{"name", r.word(&t.Name, checkTokenName)},
		field{"person", r.word(&t.Person, checkPerson)},
		field{"role", r.word(&role, choice("a role", names...))},
		field{"secret", func(n node) { n.optional = !r.opt.Secrets; r.secret(&secret, checkToken)(n) }},
		field{"sha256", func(n node) { n.hidden = true; r.word(&digest, checkDigest)(n) }}, // someone may write the secret itself there
		field{"gateways", func(n node) {
			t.Gateways = r.words(n, "name those that the token is for, like [stripe]; leave gateways out for all", tokenGateway)
		}},
		field{"expires", r.word(&expires, checkExpiry)},
	)
	if len(r.faults) > faults {
		return t, false
	}
	t.Role = roles.Role(role)
	t.Expires, _ = expiry(expires)
	if t.Name == "" {
		r.missing(n.path+".name", "say who shows it, like billing")
	}
	if role == "" {
		r.missing(n.path+".role", "write one of "+strings.Join(names, ", "))
	}
	switch has, given := r.written(n.path+".secret"), r.written(n.path+".sha256"); {
	case has && given:
		r.clash(n.path+".sha256", n.path+".secret", "a token has one of the two: keep the digest, and take the secret out")
	case given:
		_, _ = hex.Decode(t.SHA256[:], []byte(digest)) // checked above
	case !has:
		r.missing(n.path+".secret", "write secret: \"${BILLING_TOKEN}\", or sha256: with its digest in hex (printf %s \"$TOKEN\" | sha256sum)")
	case secret != "":
		t.SHA256, t.Length = sha256.Sum256([]byte(secret.Reveal())), len(secret)
	}
	return t, len(r.faults) == faults
}

// checkTwice reports a conflict with an earlier token: a name stands for one person or program, and a secret
// for one token.
func (r *reader) checkTwice(path string, t Token, before []Token) {
	for _, b := range before {
		if t.SHA256 == b.SHA256 && t.SHA256 != ([sha256.Size]byte{}) {
			r.fault(path, "it has the secret of the token in line %d: each needs one of its own", b.At.Line)
			return
		}
		if t.Name == b.Name && !strings.EqualFold(t.Person, b.Person) {
			r.fault(path, "another token of the name %s, in line %d, is of another person: give one of them another name", t.Name, b.At.Line)
			return
		}
		if t.Name == b.Name && (t.Role != b.Role || !slices.Equal(t.Gateways, b.Gateways)) {
			r.fault(path, "another token of the name %s, in line %d, has another role or other gateways: a name in the trail must mean one thing; give one of them another name", t.Name, b.At.Line)
			return
		}
	}
}

// checkTokens reports conflicts with the rest of the file.
func (r *reader) checkTokens(path string, c *Config) {
	if c.Token != "" {
		sum := sha256.Sum256([]byte(c.Token.Reveal()))
		if i := slices.IndexFunc(c.Tokens, func(t Token) bool { return t.SHA256 == sum }); i >= 0 {
			r.faultAt(c.Tokens[i].At, path, "the token %s has the secret of token, which opens everything: give it one of its own", c.Tokens[i].Name)
		}
	}
	for _, t := range c.Tokens {
		r.checkVisible(t.At, path, "token "+t.Name, t.Gateways, c)
	}
}

// checkVisible reports gateways of a token or a role that the file does not have.
func (r *reader) checkVisible(at Position, path, of string, gateways []string, c *Config) {
	names := c.Names()
	for _, g := range gateways {
		if !slices.Contains(names, g) && len(r.faults) == 0 {
			r.faultAt(at, path, "the %s is for gateway %q, which the file does not have%s", of, g, job.DidYouMean(g, "", names))
		}
	}
}

var tokenName = regexp.MustCompile(`^[a-z0-9][a-z0-9._@-]{0,39}$`)

func checkTokenName(name string) string {
	if tokenName.MatchString(name) {
		return ""
	}
	return "is not the name of a token: use up to 40 lower-case letters, digits, ., _, @ and -, starting with a letter or digit"
}

// mostPerson bounds the name of a person, in bytes, like that of a login.
const mostPerson = 100

func checkPerson(name string) string {
	if name != "" && len(name) <= mostPerson && !strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return ""
	}
	return fmt.Sprintf("is not the name of a person: write it as the OpenID provider does, like ann@example.com, in up to %d ASCII characters without spaces", mostPerson)
}

func checkDigest(text string) string {
	if raw, err := hex.DecodeString(text); err != nil || len(raw) != sha256.Size {
		return fmt.Sprintf("is not a SHA-256 digest: write %d hexadecimal digits", 2*sha256.Size)
	} else if slices.Contains([][sha256.Size]byte{sha256.Sum256(nil), sha256.Sum256([]byte("\n"))}, [sha256.Size]byte(raw)) {
		return "is the digest of nothing, so that anybody has the token: the variable was not set when it was made"
	}
	return ""
}

// checkExpiry refuses an empty date, as an empty variable would give: such a token would never expire.
func checkExpiry(text string) string {
	if text == "" {
		return "is empty: write the day, like 2027-01-01, or take the line out for a token that never ends"
	}
	_, rule := expiry(text)
	return rule
}

func tokenGateway(name string) string {
	if gatewayName.MatchString(name) {
		return ""
	}
	return "is not a gateway's name: write it as it stands in gateways"
}

// expiry reads when a token expires: a date, meaning its first moment, or a time.
func expiry(text string) (at time.Time, rule string) {
	if text == "" {
		return at, ""
	}
	if at, err := time.Parse(time.DateOnly, text); err == nil {
		return at, ""
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UTC(), ""
	}
	return at, "is not a day or a moment: write it like 2027-01-01, or 2027-01-01T12:00:00Z; a day ends the token with its first moment, in UTC"
}
