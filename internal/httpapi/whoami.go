package httpapi

import (
	"encoding/json"
	"net/http"
	"time"

	"spillway/internal/roles"
)

// HowToLogIn says how the command line logs in with an OpenID provider. It is empty if there is none.
type HowToLogIn struct {
	Issuer   string   `json:"issuer,omitempty"`
	ClientID string   `json:"client_id,omitempty"`
	Scopes   []string `json:"scopes,omitempty"`
}

// Whoami describes the owner of a token.
type Whoami struct {
	Name     string      `json:"name,omitempty"` // omitted if the token has none
	Role     roles.Role  `json:"role"`
	Gateways []string    `json:"gateways,omitempty"` // visible gateways; omitted if all are
	Via      roles.Proof `json:"via"`
	// Ends is when the token or login expires; omitted if never.
	Ends *time.Time `json:"ends,omitempty"`
}

func (a *API) howToLogIn(w http.ResponseWriter, _ *http.Request) {
	var how HowToLogIn
	how.Issuer, how.ClientID, how.Scopes = a.cfg.Guard.Device()
	answerJSON(w, how)
}

func (a *API) whoami(w http.ResponseWriter, r *http.Request) {
	who, _ := roles.Of(r.Context())
	answer := Whoami{Name: who.Name, Role: who.Role, Gateways: who.Gateways, Via: who.Proof}
	if ends, _ := r.Context().Value(ends{}).(time.Time); !ends.IsZero() {
		ends = ends.UTC().Truncate(time.Second)
		answer.Ends = &ends
	}
	answerJSON(w, answer)
}

// ends is the context key for when the token or login of a request expires.
type ends struct{}

func answerJSON(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil { // unreachable: it has only texts and times
		body = nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(body, '\n'))
}
