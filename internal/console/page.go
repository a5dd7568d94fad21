package console

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/roles"
)

//go:embed templates
var templateFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// pages is parsed on first use: most commands of the program show no page.
var pages = sync.OnceValue(parsePages)

// parsePages combines each page with the layout. The files are embedded: a fault in one is a programming error.
func parsePages() map[string]*template.Template {
	all := map[string]*template.Template{}
	shared := template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html"))
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		all[strings.TrimPrefix(name, "templates/")] = template.Must(template.Must(shared.Clone()).ParseFS(templateFiles, name))
	}
	return all
}

var functions = template.FuncMap{
	"abs":          func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"hour":         func(t time.Time) string { return job.Clock(t.UTC()) },
	"iso":          func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"ago":          func(t time.Time) string { return relative(time.Until(t)) },
	"count":        func(n any) string { return grouped(fmt.Sprint(reflect.Indirect(reflect.ValueOf(n)))) },
	"dur":          short,
	"jobs":         jobs,
	"words":        words,
	"joblink":      jobLink,
	"answerslink":  answersLink,
	"runbook":      runbookLink,
	"stoppedbatch": func() string { return runbookLink(desk.NeedBatch.Runbook()) },
	"section":      func(r job.Reason) string { return runbookLink(desk.RunbookOfReason(r)) },
	"batchlink":    func(name string) string { return batchLink(name, nil) },
	"sums":         func(text string) []string { return strings.SplitAfter(text, ", ") },
	"reasons":      job.Reasons,
	"none":         none,
	"behind":       func(rows int) int { return max(rows-rowsOnPhones, 0) },
	"has":          func(all []job.Reason, r job.Reason) bool { return slices.Contains(all, r) },
}

// rowsOnPhones is how many rows of a long table a phone shows at first, as in the stylesheet.
const rowsOnPhones = 20

// none returns the class of an empty cell, which a card on a phone omits; empty if the cell has content.
func none(v any) string {
	if of := reflect.ValueOf(v); of.IsValid() && !of.IsZero() {
		return ""
	}
	return " none"
}

// words returns a name for people: underscores of a reason or state become blanks.
func words(v any) string {
	text := fmt.Sprint(v)
	if r, ok := v.(job.Reason); ok {
		text = r.Words()
	}
	return strings.ReplaceAll(text, "_", " ")
}

// base is what every page knows.
type base struct {
	Title   string
	Queues  bool
	LogOut  bool
	Live    bool // it keeps itself up to date
	Outside bool // shown to someone who is not logged in
	Sees    bool // the viewer may see the state of everything
	Acts    bool // the viewer may act, and see payloads
	As      string
}

// view is the data of a page: a pointer to a struct with a base.
type view interface {
	fill(c *Console, r *http.Request)
}

func (b *base) fill(c *Console, r *http.Request) {
	inside := c.cfg.Guard.Knows(r)
	who := whoAsks(r.Context())
	b.Sees, b.Acts = who.May(roles.View), who.May(roles.Operate)
	b.Queues, b.LogOut, b.Outside = c.cfg.Queues && b.Sees && !who.Scoped(), !c.cfg.Guard.Open() && inside, !inside
	if who.Name != "" {
		b.As = who.Name + " (" + string(who.Role) + ")"
	}
}

// show writes a page. It is rendered completely first, so that an error never leaves half a page.
func (c *Console) show(w http.ResponseWriter, r *http.Request, status int, name string, v view) {
	v.fill(c, r)
	var page bytes.Buffer
	if err := pages()[name].ExecuteTemplate(&page, "layout", v); err != nil {
		c.cfg.Log.Error("a page of the console could not be made", "page", name, "error", err)
		http.Error(w, "this page could not be made; the log says more", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w)
}

// refusal is an error answer that is not about Redis or the job.
type refusal struct {
	status int
	what   string
}

func (r *refusal) Error() string { return r.what }

type errorView struct {
	base
	Status  int
	Message string
	Hint    string
}

// fail shows an error to a person.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, err error) {
	v := &errorView{base: base{Title: "Not done"}, Status: http.StatusInternalServerError,
		Message: "something went wrong", Hint: "the log of the dispatcher says what"}
	refused, isRefusal := errors.AsType[*refusal](err)
	coded, isCoded := errors.AsType[*job.Error](redisdb.Coded(err))
	switch {
	case isRefusal:
		v.Status, v.Message, v.Hint = refused.status, refused.what, ""
	case isCoded:
		v.Status, v.Message, v.Hint = statusOf(coded.Code), coded.Message, coded.Hint
	case errors.Is(err, context.DeadlineExceeded):
		v.Status, v.Message, v.Hint = http.StatusServiceUnavailable, "this took too long", "try again, or ask for less with a filter"
	}
	if v.Status >= http.StatusInternalServerError {
		c.cfg.Log.Warn("a page of the console failed", "path", r.URL.Path, "error", err)
	}
	if v.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	c.show(w, r, v.Status, "error.html", v)
}

func statusOf(code job.Code) int {
	switch code {
	case job.CodeUsage, job.CodeInvalid:
		return http.StatusBadRequest
	case job.CodeNotFound:
		return http.StatusNotFound
	case job.CodeUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func assets() http.Handler {
	files := http.FileServerFS(assetFiles)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		files.ServeHTTP(w, r)
	})
}

// relative says how far a time is from now: "3m12s ago", "in 5s".
func relative(d time.Duration) string {
	switch {
	case d > -time.Second && d < time.Second:
		return "now"
	case d < 0:
		return short(-d) + " ago"
	}
	return "in " + short(d)
}

// short formats a duration in its two largest units.
func short(d time.Duration) string {
	const day = 24 * time.Hour
	two := func(large, small time.Duration, l, s string) string {
		text := strconv.FormatInt(int64(d/large), 10) + " " + l
		if rest := d % large / small; rest > 0 {
			text += " " + strconv.FormatInt(int64(rest), 10) + " " + s
		}
		return text
	}
	switch {
	case d >= day:
		return two(day, time.Hour, "d", "h")
	case d >= time.Hour:
		return two(time.Hour, time.Minute, "h", "min")
	case d >= time.Minute:
		return two(time.Minute, time.Second, "min", "s")
	case d >= time.Second:
		return strconv.FormatInt(int64(d/time.Second), 10) + " s"
	case d >= time.Millisecond:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	}
	return "under 1 ms"
}

// grouped puts a narrow space between thousands.
func grouped(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "\u202f" + digits[at:]
	}
	return sign + digits
}

func jobs(n any) string {
	text := fmt.Sprint(n)
	if text == "1" {
		return "1 job"
	}
	return grouped(text) + " jobs"
}

// jobLink returns a job's page. Browsers interpret "." and ".." as path steps, however they are written.
func jobLink(gateway, id string) string {
	q := url.Values{"gateway": {gateway}}
	if id == "." || id == ".." {
		q.Set("id", id)
		return "/jobs?" + q.Encode()
	}
	return "/jobs/" + url.PathEscape(id) + "?" + q.Encode()
}

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
