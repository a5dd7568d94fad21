package double

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// tokens are the OAuth tokens that a double has issued: RFC 6749, section 4.4.
type tokens struct {
	client   string // ID:SECRET of the only client that gets a token; "": any client with an id and a secret
	life     instant
	requests int
	given    int
	ends     map[string]instant // by token, without revoked ones
}

// TokenStats is what a double's token endpoint has seen.
type TokenStats struct {
	// Requests counts all calls to it, Given the tokens that it has issued, and Alive those that are valid now.
	Requests int `json:"requests"`
	Given    int `json:"given"`
	Alive    int `json:"alive"`
}

// Tokens returns what the token endpoint has seen. It is zero for a gateway without one.
func (d *Double) Tokens() TokenStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := TokenStats{Requests: d.tokens.requests, Given: d.tokens.given}
	now := d.now()
	for _, ends := range d.tokens.ends {
		if now < ends {
			s.Alive++
		}
	}
	return s
}

// RevokeTokens revokes all tokens: calls with one get 401 from now on.
func (d *Double) RevokeTokens() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.tokens.ends)
}

// token answers a request for an OAuth token.
func (d *Double) token(c *call) reply {
	d.tokens.requests++
	id, secret, basic := c.client()
	switch grant := c.text("grant_type"); {
	case c.broken != nil, c.header.Get("Authorization") != "" && !basic, grant == "", basic && c.text("client_secret") != "":
		return tokenError(http.StatusBadRequest, "invalid_request")
	case grant != "client_credentials":
		return tokenError(http.StatusBadRequest, "unsupported_grant_type")
	case !basic:
		id, secret = c.text("client_id"), c.text("client_secret")
	}
	if id == "" || secret == "" || d.tokens.client != "" && id+":"+secret != d.tokens.client {
		rep := tokenError(http.StatusUnauthorized, "invalid_client")
		rep.headers = with(rep.headers, "WWW-Authenticate", "Basic")
		return rep
	}
	d.tokens.given++
	token := fmt.Sprintf("tok_%d", d.tokens.given)
	d.tokens.ends[token] = c.at + d.tokens.life
	seconds := int64(d.real(d.tokens.life).Seconds())
	return tokenReply(http.StatusOK, fmt.Sprintf(`{"access_token":%q,"token_type":"Bearer","expires_in":%d}`, token, seconds))
}

func tokenError(status int, code string) reply {
	return tokenReply(status, fmt.Sprintf(`{"error":%q}`, code))
}

func tokenReply(status int, body string) reply {
	headers := map[string]string{"Cache-Control": "no-store", "Pragma": "no-cache"}
	return reply{name: "token", answer: answer{status: status, headers: headers, body: body}}
}

// client returns the id and the secret of HTTP Basic, which are written as in a form.
func (c *call) client() (id, secret string, ok bool) {
	r := http.Request{Header: c.header}
	id, secret, ok = r.BasicAuth()
	if !ok {
		return "", "", false
	}
	id, wrongID := url.QueryUnescape(id)
	secret, wrongSecret := url.QueryUnescape(secret)
	return id, secret, wrongID == nil && wrongSecret == nil
}

// authorised reports whether the call has a valid credential: a token of ours that has not expired, or any other text.
func (d *Double) authorised(c *call) bool {
	_, token, isPair := strings.Cut(c.header.Get(d.table.Auth.Header), " ")
	if !isPair {
		token = c.header.Get(d.table.Auth.Header)
	}
	if !strings.HasPrefix(token, "tok_") {
		return token != ""
	}
	ends, known := d.tokens.ends[token]
	return known && c.at < ends
}

// tokens returns the tokens of a double with these options, before it has issued any.
func (t *Table) tokens(o Options) (tokens, error) {
	has := slices.ContainsFunc(t.Endpoints, func(e Endpoint) bool { return e.Kind == "token" })
	id, secret, pair := strings.Cut(o.Client, ":")
	switch {
	case !has && (o.TokenLife > 0 || o.Client != ""):
		return tokens{}, fmt.Errorf("%s has no token endpoint: the life of tokens and their client are of gateways that have one", t.Gateway)
	case o.Client != "" && (!pair || id == "" || secret == ""):
		return tokens{}, errors.New("the client is written ID:SECRET")
	}
	return tokens{client: o.Client, life: cmp.Or(o.TokenLife, instant(t.Auth.Life)), ends: map[string]instant{}}, nil
}
