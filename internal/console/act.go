package console

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/desk"
	"spillway/internal/job"
)

// patience is how long an answer waits for an action to end. A longer one continues in the background, and its
// page shows the progress.
const patience = 2 * time.Second

// actsKept is how many acts of this process are remembered. The audit trail in Redis has all of them.
const actsKept = 50

// act is an action that this process has carried out, or is carrying out.
type act struct {
	ID    string
	Past  string // "replayed"
	bulk  *desk.Bulk
	over  chan struct{}
	ended error // valid once over is closed
}

// acts are the last acts of this process, of one kind.
type acts[A any] struct {
	mu  sync.Mutex
	all []A
}

func (s *acts[A]) add(a A) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all = append(s.all, a); len(s.all) > actsKept {
		s.all = s.all[1:]
	}
}

// find returns the matching act, or the zero value if this process knows none.
func (s *acts[A]) find(is func(A) bool) (none A) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.all {
		if is(a) {
			return a
		}
	}
	return none
}

// await returns when an act is over, but no later than after d.
func await(ctx context.Context, over <-chan struct{}, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// actNow is a snapshot of an act.
type actNow struct {
	Past  string
	Jobs  int64
	Money string
	Gone  int
	Held  []heldBack
	Over  bool
	Error string
}

// asked returns the request that was stored because a second person has to approve; nil if there is none, or
// none yet.
func (a *act) asked() *desk.Request {
	select {
	case <-a.over:
	default:
		return nil
	}
	if waits, is := errors.AsType[*desk.Awaits](a.ended); is {
		return &waits.Request
	}
	return nil
}

// Now returns the act's progress.
func (a *act) Now() actNow {
	far := a.bulk.Now()
	v := actNow{Past: a.Past, Jobs: far.Took.Jobs, Money: far.Took.Money(), Gone: far.Gone, Held: sorted(a.bulk.Held())}
	select {
	case <-a.over:
		v.Over = true
	default:
		return v
	}
	if asked := a.asked(); asked != nil {
		v.Error = "Nothing was done: " + requestNote(*asked) + "."
	} else if halt, ok := errors.AsType[*deadletter.Halt](a.ended); ok {
		v.Error = "It stopped by itself: " + halt.Why + ". What is left is still parked: do it again when that is over."
	} else if a.ended != nil {
		v.Error = "It ended before all was done. What is left is still parked: do it again, that is safe."
	}
	return v
}

// begin starts an action that continues after its request.
func (c *Console) begin(b *desk.Bulk, d deed, by saying) *act {
	a := &act{ID: rand.Text(), Past: d.Past, bulk: b, over: make(chan struct{})}
	c.acts.add(a)
	c.running.Go(func() {
		defer close(a.over)
		a.ended = b.Run(c.ctx, by.by(), c.cfg.Traces, nil)
		c.cfg.Log.Info("dead letters were changed at the console", "gateway", b.Name, "what", d.Name, "jobs", b.Now().Took.Jobs,
			"who", by.name(), "why", by.why, "from", by.from, "error", a.ended)
	})
	return a
}

const whoCookie = "spillway_who"

// remember stores a person's name for the next form.
func remember(w http.ResponseWriter, r *http.Request, who string) {
	const year = 365 * 24 * 60 * 60
	http.SetCookie(w, &http.Cookie{Name: whoCookie, Value: url.QueryEscape(who), Path: "/", MaxAge: year, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"})
}

// whoBefore returns the name of the logged-in user, or else the one last typed; empty if there is none.
func whoBefore(r *http.Request) string {
	if name := whoAsks(r.Context()).Name; name != "" {
		return name
	}
	cookie, err := r.Cookie(whoCookie)
	if err != nil {
		return ""
	}
	who, err := url.QueryUnescape(cookie.Value)
	if err != nil {
		return ""
	}
	return who
}

// parsePace parses the form of a replay.
func parsePace(form url.Values) (p desk.Pace, err error) {
	fast, ahead := strings.TrimSpace(form.Get("pace")), strings.TrimSpace(form.Get("canary"))
	switch {
	case strings.HasSuffix(fast, "%"):
		err = p.SetShare(fast, "how fast:")
	case fast != "":
		err = p.SetRate(fast, "how fast:")
	}
	if err == nil && ahead != "" {
		if p.Canary, err = strconv.Atoi(ahead); err != nil || p.Canary < 1 {
			return p, wrong("how many jobs go ahead is a number from 1", "go back and write one, like 20, or leave it empty")
		}
	}
	return p, err
}

// deed is an action in its form.
type deed struct {
	desk.Action
	Label string // on its button
	Past  string // "resolved as done"
	Means string // what it does, in a sentence or two
}

// deeds are the actions on dead letters, in display order.
var deeds = []deed{
	{desk.Replay, "Replay", "replayed",
		"The jobs go in again through admission, oldest first, with a new count of attempts. The idempotency key stays, unless the gateway has said a definite no."},
	{desk.Ask, "Ask the gateway", "asked about",
		"The gateway is asked now what became of these jobs. They are pending until it can tell, and settle themselves then. After the last look-up of its schedule they are parked again."},
	{desk.Done, "Resolve as done", "resolved as done",
		"You have looked these jobs up at the gateway, and every one of them was charged. They count as done and are never sent again."},
	{desk.NotDone, "Resolve as not done", "resolved as not done",
		"You have looked these jobs up at the gateway, and none of them was charged. They go in again through admission with a new idempotency key; one whose time has passed stays, as expired. " +
			"If one was charged after all, it is charged twice."},
	{desk.Discard, "Discard", "discarded",
		"The jobs are taken out for good and never sent. Their records stay for the gateway's dedupe time, so that their ids are not accepted again. " +
			"Jobs that may have been charged are held back."},
}

// previewTime bounds counting for a preview.
const previewTime = 8 * time.Second

// clearView is the preview of an action, with the form that carries out exactly what it shows.
type clearView struct {
	base
	deed
	Gateway string
	Filter  filter
	All     job.Totals
	Would   job.Totals
	Reasons []reasonTotals
	Held    []heldBack
	Fields  []field
	Cut     bool   // not all jobs could be counted
	Halt    string // why it would stop at once; empty if it would not
	Second  bool   // a second person has to approve it
	Who     string
	Classes []job.Class // classes that the jobs can be given; empty if there are none
}

type reasonTotals struct {
	Reason job.Reason
	job.Totals
}

type heldBack struct {
	Why  string
	Jobs int
}

func (c *Console) preview(w http.ResponseWriter, r *http.Request) error {
	g, d, err := c.meant(r, r.URL.Query().Get("do"))
	if err != nil {
		return err
	}
	v := &clearView{base: base{Title: d.Label + " · " + g.Name}, deed: d, Gateway: g.Name, Who: whoBefore(r)}
	if v.Filter, err = parseFilter(r.URL.Query(), time.Now().UTC()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), previewTime)
	defer cancel()
	plan, err := (&desk.Selection{Desk: &desk.Desk{Gateways: []*desk.Gateway{g}}, Filter: v.Filter.means}).Plan(ctx, d.Action, desk.Options{})
	if err != nil && job.CodeOf(err) != job.CodeNotFound { // if none of the ids is parked, the selection is empty
		return err
	}
	if plan != nil {
		v.show(plan)
	}
	if d.Name == desk.Replay.Name {
		v.Classes = g.Priority.List()
	}
	v.Fields = append(fields(v.Filter.query()), field{"do", d.Name})
	c.show(w, r, http.StatusOK, "clear.html", v)
	return nil
}

// show sets what the action would do.
func (v *clearView) show(plan *desk.Plan) {
	v.All, v.Would, v.Held, v.Cut = plan.Meant(), plan.Would(), sorted(plan.Held()), plan.Cut
	byReason := plan.ByReason()
	for _, r := range desk.Places() {
		if of, ok := byReason[r]; ok {
			v.Reasons = append(v.Reasons, reasonTotals{r, of})
		}
	}
	for _, part := range plan.Parts {
		v.Halt, v.Second, v.Filter.means.Until = part.Halt, part.NeedsSecond(), part.Until()
	}
}

// meant returns the gateway and the action of a request.
func (c *Console) meant(r *http.Request, name string) (*desk.Gateway, deed, error) {
	g, err := c.gateway(r.Context(), r.PathValue("gateway"))
	if err != nil {
		return g, deed{}, err
	}
	i := slices.IndexFunc(deeds, func(d deed) bool { return d.Name == name })
	if i < 0 {
		return g, deed{}, wrong("unknown action", "choose one of the buttons")
	}
	return g, deeds[i], nil
}

func sorted(held map[string]int) []heldBack {
	var all []heldBack
	for why, n := range held {
		all = append(all, heldBack{why, n})
	}
	slices.SortFunc(all, func(a, b heldBack) int { return strings.Compare(a.Why, b.Why) })
	return all
}

// clear carries out what a preview has shown, and sends the browser to the gateway's page, which shows the
// progress.
func (c *Console) clear(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return wrong("the form can't be read", "go back and try again")
	}
	g, d, err := c.meant(r, r.PostForm.Get("do"))
	if err != nil {
		return err
	}
	by := says(r)
	switch {
	case by.who == "":
		return wrong("your name is missing, and it has to be recorded", "go back and type in who you are")
	case d.NeedsWhy && by.why == "":
		return wrong("no reason was given, and it has to be written down", "go back and type in why, such as a ticket's number")
	}
	f, err := parseFilter(r.PostForm, time.Now().UTC())
	if err != nil {
		return err
	}
	if f.means.Until.IsZero() {
		return wrong("it was not previewed what this would touch", "go back to the list and choose there")
	}
	var o desk.Options
	if d.Heeds {
		if o.Pace, err = parsePace(r.PostForm); err != nil {
			return err
		}
		o.Priority = typed(r, "priority")
	}
	b, err := g.Bulk(r.Context(), d.Action, f.means, o)
	if err != nil {
		return err
	}
	a := c.begin(b, d, by)
	await(r.Context(), a.over, patience)
	remember(w, r, by.who)
	if asked := a.asked(); asked != nil {
		http.Redirect(w, r, "/approvals?request="+asked.ID, http.StatusSeeOther)
		return nil
	}
	http.Redirect(w, r, "/gateways/"+g.Name+"?act="+a.ID, http.StatusSeeOther)
	return nil
}
