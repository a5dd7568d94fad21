package console

import (
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
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
}

type loginView struct {
	base
	Next   string
	Failed bool
}

// Login answers /login and /assets/, for everybody.
func (c *Console) Login() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /assets/", assets())
	mux.HandleFunc("GET /login", c.loginPage)
	mux.HandleFunc("POST /login", c.login)
	return c.Protect(mux, policy)
}

func (c *Console) loginPage(w http.ResponseWriter, r *http.Request) {
	next := local(r.URL.Query().Get("next"))
	if c.cfg.Guard.Knows(r) {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	}
	c.show(w, r, http.StatusOK, "login.html", &loginView{base: base{Title: "Log in"}, Next: next})
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
		c.show(w, r, status, "login.html", &loginView{base: base{Title: "Log in"}, Next: next, Failed: true})
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
