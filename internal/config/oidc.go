package config

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"spillway/internal/job"
	"spillway/internal/roles"
)

// OIDC says which logins with an OpenID provider the HTTP server accepts.
type OIDC struct {
	// Issuer is the provider's address, as in its tokens: https, or http on loopback.
	Issuer string
	// ClientID is the dispatcher's client id at the provider.
	ClientID string
	// ClientSecret is its secret. If it is empty (default), or its variable is not set and not required,
	// browsers can't log in.
	ClientSecret Secret
	// Redirect is the console's address with the path RedirectPath, as registered at the provider. Empty
	// (default): browsers can't log in.
	Redirect string
	// DeviceClientID is the command line's client id at the provider. Empty (default): ClientID.
	DeviceClientID string
	// Audiences are further accepted audiences of tokens at the API. Empty (default): only the two clients.
	Audiences []string
	// Scopes are requested in addition to openid. Default profile and email.
	Scopes []string
	// Name is the claim with the user's name for the audit trail. Default email.
	Name string
	// Session is how long a browser stays logged in, up to 8 h. Zero (default): as long as the provider's token
	// is valid, up to 8 h.
	Session time.Duration
	// Roles map logins to roles; at least one. The first match decides.
	Roles []OIDCRole
}

// OIDCRole gives a role to logins with a claim, and says where the file names it.
type OIDCRole struct {
	roles.Rule
	At Position
}

// RedirectPath is the console's path to which a provider redirects browsers.
const RedirectPath = "/login/callback"

// longestSession is the longest time for which a browser stays logged in.
const longestSession = 8 * time.Hour

const howOIDCRole = "write each like {claim: groups, is: payments-ops, role: operator}"

func (r *reader) oidc(n node) *OIDC {
	o := &OIDC{Scopes: []string{"profile", "email"}, Name: "email"}
	r.object(n,
		field{"issuer", r.word(&o.Issuer, checkIssuer)},
		field{"client_id", r.word(&o.ClientID, checkClientID)},
		field{"client_secret", func(n node) { n.optional = !r.opt.Secrets; r.secret(&o.ClientSecret, checkProviderSecret)(n) }},
		field{"redirect", r.word(&o.Redirect, checkRedirect)},
		field{"device_client_id", r.word(&o.DeviceClientID, checkClientID)},
		field{"audiences", func(n node) {
			o.Audiences = r.words(n, "name those that tokens at the API may be made for", checkHeaderValue)
		}},
		field{"scopes", func(n node) {
			o.Scopes = r.words(n, "name what the provider is asked for, like [profile, email, groups]", checkScope)
		}},
		field{"name", r.word(&o.Name, checkClaim)},
		field{"session", r.duration(&o.Session, time.Minute)},
		field{"roles", func(n node) { o.Roles = r.oidcRoles(n) }},
	)
	r.needed(n, "issuer", "write the provider's address, as its tokens have it, like https://login.example.com",
		"client_id", "write the id that the provider knows the dispatcher by", "roles", howOIDCRole)
	secret, redirect := r.written(n.path+".client_secret"), r.written(n.path+".redirect")
	switch {
	case redirect && !secret:
		r.missing(n.path+".client_secret", "browsers that come back to redirect need it: name the variable or file, or take redirect out")
	case secret && !redirect:
		r.missing(n.path+".redirect", "write the console's address and "+RedirectPath+", like https://spillway.example.com"+RedirectPath)
	}
	if o.Session > longestSession {
		r.fault(n.path+".session", "is too long: give at most %s", job.FormatDuration(longestSession))
	}
	return o
}

// mostOIDCRoles bounds the number of rules: each request with a login is checked against them.
const mostOIDCRoles = 1000

func (r *reader) oidcRoles(n node) (all []OIDCRole) {
	items := r.items(n, howOIDCRole)
	if len(items) > mostOIDCRoles {
		r.fault(n.path, "%d roles are too many: keep at most %d", len(items), mostOIDCRoles)
		return nil
	}
	names := job.Texts(roles.All())
	for _, item := range items {
		o, role := OIDCRole{At: r.place(item.path)}, ""
		r.object(item,
			field{"claim", r.word(&o.Claim, checkClaim)},
			field{"is", r.word(&o.Is, checkClaimValue)},
			field{"role", r.word(&role, choice("a role", names...))},
			field{"gateways", func(n node) {
				o.Gateways = r.words(n, "name those that the role is for, like [stripe]; leave gateways out for all", tokenGateway)
			}},
		)
		r.needed(item, "claim", "say which claim of the login counts, like groups", "is", "say what it has to be, or to have among its values", "role", "write one of "+strings.Join(names, ", "))
		o.Role = roles.Role(role)
		all = append(all, o)
	}
	return all
}

// checkOIDC reports conflicts with the rest of the file.
func (r *reader) checkOIDC(c *Config) {
	if c.OIDC == nil {
		return
	}
	for i, o := range c.OIDC.Roles {
		r.checkVisible(o.At, fmt.Sprintf("oidc.roles[%d]", i), "role", o.Gateways, c)
	}
}

// checkSite checks the address of a site: https, because credentials are sent there, or http on this machine.
func checkSite(text, like string) string {
	if strings.ContainsAny(text, "{}?#") {
		return "has a character that such an address does not: write one like " + like
	}
	if rule := checkURL(text); rule != "" {
		return rule
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback() {
		return "is http, so anyone on the way can log in as anybody: write https://"
	}
	return ""
}

func checkIssuer(text string) string { return checkSite(text, "https://login.example.com") }

func checkRedirect(text string) string {
	const like = "https://spillway.example.com" + RedirectPath
	if rule := checkSite(text, like); rule != "" {
		return rule
	}
	if u, err := url.Parse(text); err != nil || u.Path != RedirectPath {
		return "does not end with " + RedirectPath + " behind the host, where the console waits for browsers: write it like " + like
	}
	return ""
}

// checkProviderSecret refuses a secret that can be guessed, because it also seals browsers' sessions.
func checkProviderSecret(text string) string {
	if len(text) < LeastToken {
		return fmt.Sprintf("has fewer than %d bytes, and can be guessed: have the provider make another one", LeastToken)
	}
	return checkClientSecret(text)
}

func checkScope(text string) string {
	if text == "" || strings.ContainsAny(text, " \t\"\\") {
		return "is not a scope: write one word for each, like groups"
	}
	return checkHeaderValue(text)
}

func checkClaim(text string) string {
	if text == "" || strings.ContainsAny(text, " \t\r\n") {
		return "is not the name of a claim: write it as the provider's tokens have it, like groups or realm_access.roles"
	}
	return ""
}

func checkClaimValue(text string) string {
	if text == "" {
		return "is empty: say what the claim has to be"
	}
	return ""
}
