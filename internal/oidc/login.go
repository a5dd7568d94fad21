package oidc

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"spillway/internal/roles"
)

// Login is a logged-in user, according to the provider.
type Login struct {
	Name string `json:"name"`
	// Has is the claims of the login that rules refer to.
	Has []Has `json:"has,omitempty"`
	// Ends is when it expires.
	Ends time.Time `json:"ends"`
}

// Has is a value of a claim.
type Has struct {
	Claim string `json:"claim"`
	Is    string `json:"is"`
}

// mostName bounds a name, in bytes.
const mostName = 100

// login extracts the login from a checked token.
func (p *Provider) login(t *oidc.IDToken) (l Login, err error) {
	var claims map[string]any
	if err := t.Claims(&claims); err != nil {
		return l, &Error{Kind: Wrong, Message: "the token can't be read", Err: err}
	}
	names := values(claims, p.cfg.Name)
	if len(names) != 1 {
		return l, &Error{Kind: Nobody, Message: fmt.Sprintf("the login does not say who it is: it has no claim %q, which oidc.name asks for", p.cfg.Name),
			Hint: "have the provider put the claim into its tokens, or name another one in oidc.name"}
	}
	unverified := slices.Equal(values(claims, "email_verified"), []string{"false"})
	if p.cfg.Name == "email" && unverified {
		return l, &Error{Kind: Nobody, Message: "the provider has not verified the e-mail address of the login, so it says nothing of who it is", Hint: "have the address verified there, or name another claim in oidc.name"}
	}
	l.Name, l.Ends = strings.ToLower(names[0]), t.Expiry
	if !isName(l.Name) {
		return Login{}, &Error{Kind: Nobody, Message: fmt.Sprintf("the claim %q of the login is not a name for the trail: up to %d ASCII characters without spaces", p.cfg.Name, mostName),
			Hint: "name another claim in oidc.name"}
	}
	for _, r := range p.cfg.Rules {
		if r.Claim == "email" && unverified {
			continue // unverified: anyone may have entered it
		}
		if has := (Has{r.Claim, r.Is}); slices.Contains(values(claims, r.Claim), r.Is) && !slices.Contains(l.Has, has) {
			l.Has = append(l.Has, has)
		}
	}
	return l, nil
}

// isName refuses names that are hard to tell from others in a list: with blanks, or with similar letters of
// other scripts.
func isName(name string) bool {
	return name != "" && len(name) <= mostName && !strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' })
}

// values returns the texts of a claim, by its literal name, or else by a dotted path.
func values(claims map[string]any, claim string) (all []string) {
	at, is := claims[claim]
	for inner, rest, more := claims, claim, true; !is && more; {
		var head string
		if head, rest, more = strings.Cut(rest, "."); !more {
			at = inner[head]
			break
		}
		if inner, more = inner[head].(map[string]any); !more {
			return nil
		}
	}
	switch v := at.(type) {
	case string:
		return []string{v}
	case bool:
		return []string{strconv.FormatBool(v)}
	case []any:
		for _, one := range v {
			if text, is := one.(string); is {
				all = append(all, text)
			}
		}
	}
	return all
}

// Who returns the identity of a login. The error is an *Error of kind Nobody, or Wrong if it has expired.
func (p *Provider) Who(l Login) (who roles.Identity, err error) {
	if !p.now().Add(-skew).Before(l.Ends) {
		return who, &Error{Kind: Wrong, Message: "the login has ended", Hint: "log in again"}
	}
	for _, r := range p.cfg.Rules {
		if !slices.Contains(l.Has, Has{r.Claim, r.Is}) || who.Role != "" && who.Role != r.Role {
			continue
		}
		first := who.Role == ""
		switch {
		case first:
			who = roles.Identity{Name: l.Name, Role: r.Role, Gateways: slices.Clone(r.Gateways), Proof: roles.ByLogin}
		case len(who.Gateways) == 0 || len(r.Gateways) == 0:
			who.Gateways = nil // for all gateways
		default:
			who.Gateways = append(who.Gateways, r.Gateways...)
		}
	}
	if who.Role == "" {
		return who, &Error{Kind: Nobody, Name: l.Name, Message: "you are logged in as " + l.Name + ", and nothing in the login gives you a role here",
			Hint: "ask who keeps the configuration: oidc.roles says which " + p.claims() + " has which role"}
	}
	slices.Sort(who.Gateways)
	who.Gateways = slices.Compact(who.Gateways)
	return who, nil
}

// claims lists the claims that rules refer to.
func (p *Provider) claims() string {
	var all []string
	for _, r := range p.cfg.Rules {
		if !slices.Contains(all, r.Claim) {
			all = append(all, r.Claim)
		}
	}
	return cmp.Or(strings.Join(all, " or "), "claim")
}

// marshal encodes values that JSON can always represent.
func marshal(v any) []byte {
	text, _ := json.Marshal(v)
	return text
}
