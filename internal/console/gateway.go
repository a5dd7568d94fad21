package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/roles"
)

// lettersShown is how many dead letters a page has.
const lettersShown = 50

// listTime bounds the search for a page of dead letters: a filter that matches few of very many takes long.
const listTime = 4 * time.Second

// trailShown is how many audit entries a page has.
const trailShown = 10

// lanesShown is how many lanes a page has.
const lanesShown = 10

// stoppedShown is how many batches that stopped themselves a page lists.
const stoppedShown = 10

type gatewayView struct {
	base
	G glance
	hourly
	Set     limitsNow
	Filter  filter
	Letters []letter
	Payload bool
	Next    string // address of the next page; empty on the last
	First   string // address of the first page; empty on it
	Cut     bool   // the search took too long
	Clear   []choice
	Lanes   *desk.Lanes         // the lanes with the most jobs; nil if there are none
	Stopped []desk.StoppedBatch // batches that stopped themselves
	Trail   []deadletter.Act
	Act     *act
	Who     string
}

// limitsNow is the limits in force and the configured ones.
type limitsNow struct {
	SetLive bool
	File    string
}

// letter is a row of the list.
type letter struct {
	job.Record
	Payload string
}

// choice is an action available for the selected jobs.
type choice struct {
	Do, Label, Link string
}

func (c *Console) gatewayPage(w http.ResponseWriter, r *http.Request) error {
	g, err := c.gateway(r.Context(), r.PathValue("gateway"))
	if err != nil {
		return err
	}
	q := r.URL.Query()
	v := &gatewayView{base: base{Title: g.Name}, Payload: q.Get("payload") == "1", Who: whoBefore(r)}
	if v.Payload {
		if err := c.payloads(r); err != nil {
			return err
		}
	}
	if v.G, err = look(r.Context(), g); err != nil {
		return err
	}
	if v.Filter, err = parseFilter(q, v.G.Glance.Now.UTC()); err != nil {
		return err
	}
	now, err := g.Limits(r.Context())
	if err != nil {
		return err
	}
	v.Set = limitsNow{now.SetLive, strings.Join(now.File, " ")}
	v.Live = !v.Payload
	if err := list(r.Context(), g, v, q.Get("after")); err != nil {
		return err
	}
	if whoAsks(r.Context()).May(roles.Operate) {
		v.Clear = choices(g, v.Filter, someInDoubt(v.Filter, v.G.Glance.Parked))
	}
	if v.Stopped, _, err = g.StoppedBatches(r.Context(), stoppedShown); err != nil {
		return err
	}
	if v.hourly, err = hoursOf(r, &desk.Desk{Gateways: []*desk.Gateway{g}}); err != nil {
		return err
	}
	if v.Lanes, err = g.GlancedLanes(r.Context(), v.G.Status, lanesShown); err != nil {
		return err
	}
	if v.Trail, err = trail(r.Context(), g); err != nil {
		return err
	}
	v.Act = c.acts.find(func(a *act) bool { return a.ID == q.Get("act") && a.bulk.Name == g.Name })
	c.show(w, r, http.StatusOK, "gateway.html", v)
	return nil
}

// list sets one page of dead letters, those that need an operator first, after the previous page's cursor.
func list(ctx context.Context, g *desk.Gateway, v *gatewayView, after string) error {
	s := &desk.Selection{Desk: &desk.Desk{Gateways: []*desk.Gateway{g}}, Filter: v.Filter.means}
	s.Filter.Limit, s.Filter.NoPayload = lettersShown+1, !v.Payload
	if after != "" {
		if !desk.OfPeople(after) {
			return wrong("there is no such page of dead letters", "go back to the first")
		}
		v.First = gatewayLink(g, v, "")
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	err := s.EachByNeed(ctx, after, func(_ *desk.Gateway, rec job.Record) error {
		v.add(g, rec)
		return nil
	})
	if v.Cut = err != nil && (errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil); v.Cut {
		return nil
	}
	return err
}

// add adds one dead letter, or notes that there is another page.
func (v *gatewayView) add(g *desk.Gateway, rec job.Record) {
	if len(v.Letters) == lettersShown {
		v.Next = gatewayLink(g, v, desk.NeedCursor(v.Letters[lettersShown-1].Record))
		return
	}
	l := letter{Record: rec}
	if v.Payload {
		l.Payload = readable(rec)
	}
	v.Letters = append(v.Letters, l)
}

func gatewayLink(g *desk.Gateway, v *gatewayView, after string) string {
	q := v.Filter.query()
	if v.Payload {
		q.Set("payload", "1")
	}
	if after != "" {
		q.Set("after", after)
	}
	return "/gateways/" + g.Name + "?" + q.Encode() + "#letters"
}

// Hidden returns the filter for a form that shows or hides the payloads.
func (v *gatewayView) Hidden() []field { return fields(v.Filter.query()) }

// Rejected returns the reason of jobs that wait for room, which are not dead letters.
func (v *gatewayView) Rejected() job.Reason { return job.Rejected }

// ByReason returns a link to a reason's own list.
func (v *gatewayView) ByReason(r job.Reason) string {
	return "/gateways/" + v.G.Name + "?" + url.Values{"reason": {string(r)}}.Encode() + "#letters"
}

// Divided reports whether the queue is divided by routes, classes or lanes.
func (v *gatewayView) Divided() bool { return v.Lanes != nil || len(v.G.Routes)+len(v.G.Classes) > 0 }

// ByLane returns a link to a lane's parked jobs.
func (v *gatewayView) ByLane(lane string) string {
	return "/gateways/" + v.G.Name + "?" + url.Values{"lane": {lane}}.Encode() + "#letters"
}

// ByRoute returns a link to a route's parked jobs.
func (v *gatewayView) ByRoute(route string) string {
	return "/gateways/" + v.G.Name + "?" + url.Values{"route": {route}}.Encode() + "#letters"
}

// someInDoubt reports whether selected jobs are parked for a reason that often goes with doubt. A job parked
// for another reason is resolved on its own page.
func someInDoubt(f filter, parked map[job.Reason]int64) bool {
	for _, r := range []job.Reason{job.UnknownOutcome, job.Exhausted, job.Cancelled, job.Paused} {
		if parked[r] > 0 && (len(f.Reasons) == 0 || slices.Contains(f.Reasons, r)) {
			return true
		}
	}
	return false
}

// choices returns the links to the previews for the filter. Resolving is offered only if jobs may be in doubt.
// Nothing else is offered for jobs of paused batches, which continue when their batch is resumed. Asking is
// offered if the gateway has look-ups.
func choices(g *desk.Gateway, f filter, doubt bool) []choice {
	var all []choice
	paused := slices.Equal(f.Reasons, []job.Reason{job.Paused})
	for _, d := range deeds {
		if d.InDoubt && !doubt || paused && !d.InDoubt || d.Name == desk.Ask.Name && !g.CanAsk() {
			continue
		}
		q := f.query()
		q.Set("do", d.Name)
		all = append(all, choice{d.Name, d.Label, "/gateways/" + g.Name + "/clear?" + q.Encode()})
	}
	return all
}

// trail returns the last acts, newest first.
func trail(ctx context.Context, g *desk.Gateway) ([]deadletter.Act, error) {
	acts, err := g.Store.LastActs(ctx, trailShown)
	if err != nil {
		return nil, err
	}
	slices.Reverse(acts)
	return acts, nil
}

// readable returns a job's payload indented. What is not JSON is unchanged.
func readable(rec job.Record) string {
	payload := rec.Job.Payload
	switch {
	case rec.Unopened != nil:
		return rec.Unopened.Error()
	case rec.PayloadGone() != "":
		return "It was " + rec.PayloadGone() + "."
	case len(payload) == 0:
		return "{}"
	}
	var text bytes.Buffer
	if json.Indent(&text, payload, "", "  ") != nil {
		return string(payload)
	}
	return text.String()
}

const (
	// gatewaysShown is how many gateways a page of the list has.
	gatewaysShown = 50
	// fewGateways is the number of gateways up to which no search is needed.
	fewGateways = 8
)

// gatewayList is one page of the list of gateways, as requested.
type gatewayList struct {
	Rows       []glance
	Name       string // a part of their names; empty: all
	Doing      string // the word of their state; empty: all
	Sort       string // a key of orders; empty: configured order
	All, Met   int    // number of all gateways, and of those requested
	From, To   int    // numbers of the first and last one shown, from 1
	Prev, Next string // addresses of the previous and next page; empty if there is none
	States     []stateCount
	shown      []desk.Status
}

// stateCount is the number of gateways in a state.
type stateCount struct {
	Word string
	N    int
}

// Many reports whether there are enough gateways to need a search.
func (l gatewayList) Many() bool { return l.All > fewGateways }

// order is a way to sort the gateways.
type order struct {
	Key, Label string
	compare    func(a, b *desk.Status) int
}

// Orders returns the ways to sort the gateways, besides configured order.
func (l gatewayList) Orders() []order { return orders }

var orders = []order{
	{"name", "name", func(a, b *desk.Status) int { return strings.Compare(a.Gateway, b.Gateway) }},
	{"queued", "most queued", func(a, b *desk.Status) int { return cmp.Compare(b.Queued, a.Queued) }},
	{"parked", "most parked", func(a, b *desk.Status) int {
		return cmp.Compare(b.Glance.AllParked()-b.ForRoom(), a.Glance.AllParked()-a.ForRoom())
	}},
	{"room", "most waiting for room", func(a, b *desk.Status) int { return cmp.Compare(b.ForRoom(), a.ForRoom()) }},
	{"rate", "highest rate", func(a, b *desk.Status) int { return cmp.Compare(b.Rate1m, a.Rate1m) }},
	{"done", "most done", func(a, b *desk.Status) int { return cmp.Compare(b.Done, a.Done) }},
}

// listOf selects the gateways of the requested page. An invalid request means all.
func listOf(all []desk.Status, q url.Values) gatewayList {
	l := gatewayList{Name: strings.TrimSpace(q.Get("name")), Doing: q.Get("state"), Sort: q.Get("sort"), All: len(all)}
	counts, met := map[string]int{}, make([]*desk.Status, 0, len(all))
	for i := range all {
		s := &all[i]
		word := stateOf(*s).Word
		counts[word]++
		if (l.Doing == "" || l.Doing == word) && strings.Contains(strings.ToLower(s.Gateway), strings.ToLower(l.Name)) {
			met = append(met, s)
		}
	}
	for word, n := range counts {
		l.States = append(l.States, stateCount{word, n})
	}
	slices.SortFunc(l.States, func(a, b stateCount) int { return strings.Compare(a.Word, b.Word) })
	if i := slices.IndexFunc(orders, func(o order) bool { return o.Key == l.Sort }); i >= 0 {
		slices.SortStableFunc(met, orders[i].compare)
	}
	l.cut(met, q.Get("page"))
	return l
}

// cut keeps the page with that number, or else the first.
func (l *gatewayList) cut(met []*desk.Status, page string) {
	n, _ := strconv.Atoi(page)
	last := max((len(met)+gatewaysShown-1)/gatewaysShown, 1)
	n = min(max(n, 1), last)
	from, to := (n-1)*gatewaysShown, min(n*gatewaysShown, len(met))
	for _, s := range met[from:to] {
		l.shown = append(l.shown, *s)
	}
	l.Met, l.From, l.To = len(met), from+1, to
	if n > 1 {
		l.Prev = l.link(n - 1)
	}
	if n < last {
		l.Next = l.link(n + 1)
	}
}

// link returns the address of a page of the list.
func (l *gatewayList) link(page int) string {
	q := url.Values{}
	for key, value := range map[string]string{"name": l.Name, "state": l.Doing, "sort": l.Sort} {
		if value != "" {
			q.Set(key, value)
		}
	}
	q.Set("page", strconv.Itoa(page))
	return "/?" + q.Encode() + "#gateways"
}

type answersView struct {
	base
	desk.Answers
	hourly
	Name  string // of the gateway
	Since string // as it was typed
	Batch string
}

// answersSince is the default period of the page.
const answersSince = "1h"

func (c *Console) answers(w http.ResponseWriter, r *http.Request) error {
	g, err := c.gateway(r.Context(), r.PathValue("gateway"))
	if err != nil {
		return err
	}
	q := r.URL.Query()
	v := &answersView{base: base{Title: "Answers of " + g.Name}, Name: g.Name, Since: q.Get("since"), Batch: q.Get("batch")}
	if v.Since == "" && v.Batch == "" {
		v.Since = answersSince
	}
	var since time.Time
	if v.Since != "" {
		if since, err = desk.ParseAgo(v.Since, time.Now().UTC(), "since"); err != nil {
			return err
		}
	}
	if v.Answers, err = g.Answers(r.Context(), since, v.Batch); err != nil {
		return err
	}
	if v.hourly, err = hoursOf(r, &desk.Desk{Gateways: []*desk.Gateway{g}}); err != nil {
		return err
	}
	c.show(w, r, http.StatusOK, "answers.html", v)
	return nil
}

// answersLink returns the page of a gateway's answers to a batch.
func answersLink(gateway, batch string) string {
	return "/gateways/" + gateway + "/answers?" + url.Values{"batch": {batch}}.Encode()
}
