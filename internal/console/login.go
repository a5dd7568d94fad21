package console

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"spillway/internal/oidc"
)

// Guard authenticates requests. The HTTP server has it; the console asks for the token.
type Guard interface {
	// Open reports whether there is no token.
	Open() bool
	// Knows reports whether a request is authenticated.
	Knows(r *http.Request) bool
	// LogIn logs in a browser that presents the token, and reports whether it was valid. after is when an
	// address with too many wrong tokens may try again; 0: now.
	LogIn(w http.ResponseWriter, r *http.Request, token string) (ok bool, after time.Duration)
	// LogOut ends the session.
	LogOut(w http.ResponseWriter, r *http.Request)
	// Provider returns the address of the OpenID provider for logins, empty if there is none, and whether
	// tokens are accepted as well.
	Provider() (issuer string, tokens bool)
	// BeginLogin sends a browser to the provider. FinishLogin logs it in when it returns, and returns the page
	// next given to BeginLogin. Their errors are of type *oidc.Error.
	BeginLogin(w http.ResponseWriter, r *http.Request, next string) error
	FinishLogin(w http.ResponseWriter, r *http.Request) (next string, err error)
}

type loginView struct {
	base
	Next     string
	Failed   bool
	Provider string // its host; empty: none
	Tokens   bool
}

// Login serves /login and /assets/, without authentication.
func (c *Console) Login() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /assets/", assets())
	mux.HandleFunc("GET /login", c.loginPage)
	mux.HandleFunc("POST /login", c.login)
	mux.HandleFunc("GET /login/provider", c.toProvider)
	mux.HandleFunc("GET /login/callback", c.fromProvider)
	return c.Protect(mux, policy)
}

func (c *Console) loginPage(w http.ResponseWriter, r *http.Request) {
	next := local(r.URL.Query().Get("next"))
	if c.cfg.Guard.Knows(r) {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	}
	c.showLogin(w, r, http.StatusOK, next, false)
}

func (c *Console) showLogin(w http.ResponseWriter, r *http.Request, status int, next string, failed bool) {
	v := &loginView{base: base{Title: "Log in"}, Next: next, Failed: failed}
	issuer, tokens := c.cfg.Guard.Provider()
	v.Tokens = tokens
	if u, err := url.Parse(issuer); err == nil {
		v.Provider = u.Host
	}
	c.show(w, r, status, "login.html", v)
}

// toProvider sends a browser to the OpenID provider.
func (c *Console) toProvider(w http.ResponseWriter, r *http.Request) {
	if err := c.cfg.Guard.BeginLogin(w, r, local(r.URL.Query().Get("next"))); err != nil {
		c.fail(w, r, ofProvider(err))
	}
}

// fromProvider logs in a browser that returns. It answers with a page that leads on instead of a redirect,
// because a browser does not send its session cookie along a redirect that another site started.
func (c *Console) fromProvider(w http.ResponseWriter, r *http.Request) {
	next, err := c.cfg.Guard.FinishLogin(w, r)
	if err != nil {
		c.fail(w, r, ofProvider(err))
		return
	}
	c.cfg.Log.Info("a user logged in at the console with the OpenID provider", "from", r.RemoteAddr)
	next = local(next)
	w.Header().Set("Refresh", "0; url="+next)
	c.show(w, r, http.StatusOK, "login_done.html", &loginView{base: base{Title: "Logged in"}, Next: next})
}

// ofProvider returns the page that says why a login with the provider was rejected.
func ofProvider(err error) error {
	e, is := errors.AsType[*oidc.Error](err)
	if !is {
		return err
	}
	status := map[oidc.Kind]int{oidc.Away: http.StatusServiceUnavailable, oidc.Wrong: http.StatusBadRequest, oidc.Nobody: http.StatusForbidden}[e.Kind]
	return &refusal{status, e.Message + ": " + e.Hint}
}

func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	next := local(r.PostFormValue("next"))
	if ok, after := c.cfg.Guard.LogIn(w, r, r.PostFormValue("token")); !ok {
		status := http.StatusUnauthorized
		if after > 0 {
			status = http.StatusTooManyRequests
			w.Header().Set("Retry-After", strconv.Itoa(int(after/time.Second)+1))
		} else {
			c.cfg.Log.Warn("a wrong token was typed in at the console", "from", r.RemoteAddr)
		}
		c.showLogin(w, r, status, next, true)
		return
	}
	c.cfg.Log.Info("a user logged in at the console", "from", r.RemoteAddr)
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (c *Console) logout(w http.ResponseWriter, r *http.Request) error {
	c.cfg.Guard.LogOut(w, r)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
	return nil
}

// local returns a path on this site; anything else becomes the first page, so that nobody is sent to another
// site.
func local(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(to, "/") ||
		strings.HasPrefix(to, "//") || strings.ContainsAny(to, "\\\r\n\t") || strings.HasPrefix(u.Path, "/login") {
		return "/"
	}
	return u.RequestURI()
}

// loopback reports whether a request was made to this machine by a name that only this machine has. A page of
// another site whose name was made to point here uses its own name.
func loopback(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	ip := net.ParseIP(strings.Trim(name, "[]"))
	return name == "localhost" || (ip != nil && ip.IsLoopback())
}
