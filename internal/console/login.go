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

// Guard lets in who shows the token. The HTTP side has it; the console asks for the token and shows who was let in.
type Guard interface {
	// Open says that there is no token.
	Open() bool
	// Knows says whether a request comes from somebody who was let in.
	Knows(r *http.Request) bool
	// LogIn lets a browser in that shows the token, and says whether it was the token. after is when an address may try again that has shown too many wrong ones; 0: now.
	LogIn(w http.ResponseWriter, r *http.Request, token string) (ok bool, after time.Duration)
	// LogOut ends that.
	LogOut(w http.ResponseWriter, r *http.Request)
	// Provider is the address of the OpenID provider that people log in with, empty where there is none, and tokens says whether they can with a token.
	Provider() (issuer string, tokens bool)
	// BeginLogin sends a browser to the provider, and FinishLogin lets it in when it comes back, and returns the page next that BeginLogin was told. Their errors are of the type *oidc.Error.
	BeginLogin(w http.ResponseWriter, r *http.Request, next string) error
	FinishLogin(w http.ResponseWriter, r *http.Request) (next string, err error)
}

type loginView struct {
	base
	Next     string
	Failed   bool
	Provider string // its host; empty: there is none
	Tokens   bool
}

// Login answers /login and /assets/, for everybody.
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

// fromProvider lets a browser in that comes back. It gets a page that leads on, and no redirection: a browser does not send the cookie of its session to where another site has sent it.
func (c *Console) fromProvider(w http.ResponseWriter, r *http.Request) {
	next, err := c.cfg.Guard.FinishLogin(w, r)
	if err != nil {
		c.fail(w, r, ofProvider(err))
		return
	}
	c.cfg.Log.Info("somebody logged in at the console with the OpenID provider", "from", r.RemoteAddr)
	next = local(next)
	w.Header().Set("Refresh", "0; url="+next)
	c.show(w, r, http.StatusOK, "login_done.html", &loginView{base: base{Title: "Logged in"}, Next: next})
}

// ofProvider is the page that says why a login with the provider was not taken.
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
	c.cfg.Log.Info("somebody logged in at the console", "from", r.RemoteAddr)
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (c *Console) logout(w http.ResponseWriter, r *http.Request) error {
	c.cfg.Guard.LogOut(w, r)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
	return nil
}

// local returns a path of ours; anything else becomes the first page, so that nobody is sent to another site.
func local(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(to, "/") ||
		strings.HasPrefix(to, "//") || strings.ContainsAny(to, "\\\r\n\t") || strings.HasPrefix(u.Path, "/login") {
		return "/"
	}
	return u.RequestURI()
}

// loopback says that a request was made to this machine by a name that only this machine has. A page of another site whose name was
// made to point here comes with its own name.
func loopback(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	ip := net.ParseIP(strings.Trim(name, "[]"))
	return name == "localhost" || (ip != nil && ip.IsLoopback())
}
