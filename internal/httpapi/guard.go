package httpapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
)

// Guard lets in who shows the token: as "Authorization: Bearer TOKEN", or, in a browser, by the cookie of LogIn. All of
// them guard one dispatcher's HTTP side; a Guard without a token lets everybody in.
type Guard struct {
	open   bool
	token  [sha256.Size]byte
	cookie string
}

// cookieName is the cookie's. Its value is made of the token and is not the token; another token makes it worthless.
const cookieName = "spillway_session"

// LoginPath is where a browser without a cookie is sent, if there is a login page.
const LoginPath = "/login"

// NewGuard returns the guard of a token. Empty: nobody needs one.
func NewGuard(token string) *Guard {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("console session"))
	return &Guard{open: token == "", token: sha256.Sum256([]byte(token)), cookie: hex.EncodeToString(mac.Sum(nil))}
}

// Open says that there is no token: everybody is let in.
func (g *Guard) Open() bool { return g.open }

// LogIn gives a browser that shows the token its cookie, and says whether it was the token.
func (g *Guard) LogIn(w http.ResponseWriter, r *http.Request, token string) bool {
	if !g.open && !g.is(token) {
		return false
	}
	http.SetCookie(w, g.session(r, g.cookie, 0))
	return true
}

// LogOut takes the cookie back.
func (g *Guard) LogOut(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, g.session(r, "", -1))
}

func (g *Guard) session(r *http.Request, value string, age int) *http.Cookie {
	secure := r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
	return &http.Cookie{Name: cookieName, Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode}
}

// is compares in constant time, over digests, so that not even the token's length shows.
func (g *Guard) is(token string) bool {
	got := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(got[:], g.token[:]) == 1
}

// bearer says whether a request shows the token in its header.
func (g *Guard) bearer(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return g.open || strings.EqualFold(scheme, "Bearer") && g.is(token)
}

// Knows says whether a request shows the token or the cookie.
func (g *Guard) Knows(r *http.Request) bool {
	if g.bearer(r) {
		return true
	}
	c, err := r.Cookie(cookieName)
	return err == nil && subtle.ConstantTimeCompare([]byte(c.Value), []byte(g.cookie)) == 1
}

// Program lets programs through: only the header counts, which no foreign page can make a browser send.
func (g *Guard) Program(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.bearer(r) {
			unauthorized(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Person lets people through, by cookie or header. With a login page, a browser that wants to read a page is sent there.
func (g *Guard) Person(login bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case g.Knows(r):
			next.ServeHTTP(w, r)
		case login && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html"):
			http.Redirect(w, r, LoginPath+"?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		default:
			unauthorized(w)
		}
	})
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	newProblem(codeToken, "this needs the dispatcher's token", "show it as Authorization: Bearer TOKEN").answer(w)
}
