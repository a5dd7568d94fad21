package config

import (
	"net/url"
	"strings"
)

// OAuth2 says how to get the access token of a gateway's calls: by client credentials (RFC 6749, section 4.4).
type OAuth2 struct {
	// On says that calls carry an access token. A token_url only in a pack does not turn it on.
	On bool
	// TokenURL is the token endpoint. It may contain a secret.
	TokenURL Secret
	// ClientID and ClientSecret are the credentials. They are empty only if Options.Secrets is off and a
	// variable in them is not set.
	ClientID     string
	ClientSecret Secret
	// Scope is the requested scope, several separated by spaces. Empty = none.
	Scope string
	// Audience is the requested audience. Empty = none.
	Audience string
	// Auth says how the credentials are sent: AuthHeader (default) or AuthBody.
	Auth string
}

// How client credentials are sent: by HTTP Basic, or as parameters of the body.
const (
	AuthHeader = "header"
	AuthBody   = "body"
)

// bearerHeader is the header that carries the access token.
const bearerHeader = "Authorization"

func (r *reader) oauth2(n node, o *OAuth2) {
	o.Auth = AuthHeader
	var address string
	fields := []field{
		{"token_url", r.word(&address, checkTokenURL)},
		{"client_id", r.word(&o.ClientID, checkClientID)},
		{"client_secret", r.secret(&o.ClientSecret, checkClientSecret)},
		{"scope", r.word(&o.Scope, checkHeaderValue)},
		{"audience", r.word(&o.Audience, checkHeaderValue)},
		{"auth", r.word(&o.Auth, choice("a way to send credentials", AuthHeader, AuthBody))},
	}
	r.object(n, fields...)
	o.TokenURL = Secret(address)
	for _, f := range fields {
		at, written := r.places[join(n.path, f.key)]
		o.On = o.On || written && (r.subject == nil || at != r.subject.pack.at)
	}
	if !o.On {
		return
	}
	r.needed(n, "token_url", "write where access tokens are asked for, like https://api.example.com/oauth2/token",
		"client_id", "write the id that the gateway gave you", "client_secret", `name the variable or file with the secret, like "${file:/run/secrets/client}"`)
}

// checkOAuth2 reports other settings that would replace the access token.
func (r *reader) checkOAuth2(path string, q *Request) {
	if !q.OAuth2.On {
		return
	}
	for _, own := range q.headerNames() {
		if strings.EqualFold(own, bearerHeader) {
			r.fault(join(path+".headers", own), "%s carries the access token of oauth2: take one of the two out", bearerHeader)
		}
	}
	for field, name := range map[string]string{".sign.header": q.Sign.Header, ".sign.timestamp_header": q.Sign.TimestampHeader, ".key.name": q.Key.Header()} {
		if strings.EqualFold(name, bearerHeader) {
			r.fault(path+field, "%s carries the access token of oauth2: use another header", bearerHeader)
		}
	}
	if q.TLS != (TLS{}) && strings.HasPrefix(q.OAuth2.TokenURL.Reveal(), "http://") {
		r.clash(path+".oauth2.token_url", path+".tls", "the token_url is http, which knows no certificates: take tls out, or write https")
	}
}

func checkTokenURL(text string) string {
	if strings.ContainsAny(text, "{}") {
		return "has a brace in it: there are no placeholders, as one token is for all jobs"
	}
	if u, err := url.Parse(text); err == nil && u.User != nil {
		return "has a user or password in it: write them as client_id and client_secret"
	}
	return checkURL(text)
}

func checkClientID(text string) string {
	if text == "" {
		return "is empty: write the id that the gateway gave you"
	}
	return checkHeaderValue(text)
}

func checkClientSecret(text string) string {
	if text == "" {
		return "is empty: name the variable or file with the secret"
	}
	return checkHeaderValue(text)
}
