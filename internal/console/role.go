package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"spillway/internal/desk"
	"spillway/internal/roles"
)

// whoAsks returns the sender of a request: nobody, without any role, if the HTTP server did not say.
func whoAsks(ctx context.Context) roles.Identity {
	who, _ := roles.Of(ctx)
	return who
}

// lacking refuses a request whose sender lacks the role; nil if it passes.
func lacking(r *http.Request, need roles.Need) error {
	who := whoAsks(r.Context())
	if who.May(need) {
		return nil
	}
	return &refusal{http.StatusForbidden, fmt.Sprintf("this needs the role %s, and you are logged in as %s with the role %s", need, who.Name, who.Role)}
}

// forAll refuses a sender with access to only some gateways.
func forAll(r *http.Request) error {
	if !whoAsks(r.Context()).Scoped() {
		return nil
	}
	return &refusal{http.StatusForbidden, "this page is about all gateways, and you are logged in for some of them"}
}

// payloads permits a page to show payloads, and logs to whom.
func (c *Console) payloads(r *http.Request) error {
	if err := lacking(r, roles.Operate); err != nil {
		return err
	}
	c.cfg.Log.Info("payloads were asked for at the console", "path", r.URL.Path, "who", whoAsks(r.Context()).Name, "from", r.RemoteAddr)
	return nil
}

// saying is who acts in a form, and why: the typed name and the logged-in user.
type saying struct {
	who, why, from string
	in             roles.Identity
}

// says parses who sends a form. A user who is logged in by name need not type one.
func says(r *http.Request) saying {
	s := saying{who: typed(r, "who"), why: typed(r, "why"), from: r.RemoteAddr, in: whoAsks(r.Context())}
	if s.who == "" {
		s.who = s.in.Name
	}
	return s
}

// name returns who acts, for people.
func (s saying) name() string { return cmp.Or(s.in.Name, s.who) }

// by returns who acts, for the audit trail.
func (s saying) by() desk.By {
	return desk.ByOf(s.in, strings.TrimSpace(s.who+" (console)"), s.why)
}
