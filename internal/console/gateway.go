package console

import (
	"bytes"
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
)

// lettersShown is how many dead letters one page has.
const lettersShown = 50

// listTime bounds the search for a page of dead letters: a filter that meets few of very many takes long.
const listTime = 4 * time.Second

// trailShown is how many acts of people a page has.
const trailShown = 10

type gatewayView struct {
	base
	G       glance
	Set     limitsNow
	Filter  filter
	Letters []letter
	Payload bool
	Next    string // address of the next page; empty on the last
	First   string // address of the first page; empty on it
	Cut     bool   // the search took too long
	Clear   []choice
	Trail   []deadletter.Act
	Act     *act
	Who     string
}

// limitsNow is what holds and what the file says.
type limitsNow struct {
	SetLive bool
	File    string
}

// letter is a row of the list.
type letter struct {
	job.Record
	Payload string
}

// choice is one thing that can be done to the jobs chosen.
type choice struct {
	Do, Label, Link string
}

func (c *Console) gatewayPage(w http.ResponseWriter, r *http.Request) error {
	g, err := c.gateway(r.PathValue("gateway"))
	if err != nil {
		return err
	}
	q := r.URL.Query()
	v := &gatewayView{base: base{Title: g.Name}, Payload: q.Get("payload") == "1", Who: whoBefore(r)}
	if v.G, err = look(r.Context(), g); err != nil {
		return err
	}
	if v.Filter, err = parseFilter(q, v.G.Glance.Now); err != nil {
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
	v.Clear = choices(g.Name, v.Filter, someInDoubt(v.Filter, v.G.Glance.Parked))
	if v.Trail, err = trail(r.Context(), g); err != nil {
		return err
	}
	v.Act = c.acts.find(q.Get("act"), g.Name)
	c.show(w, r, http.StatusOK, "gateway.html", v)
	return nil
}

// list fills in one page of dead letters, oldest first, behind the cursor of the one before.
func list(ctx context.Context, g *desk.Gateway, v *gatewayView, after string) error {
	f := v.Filter.means
	f.Limit, f.NoPayload = lettersShown+1, !v.Payload
	if after != "" {
		var err error
		if f.After, err = strconv.ParseInt(after, 10, 64); err != nil || f.After < 1 {
			return wrong("there is no such page of dead letters", "go back to the first")
		}
		v.First = gatewayLink(g, v, "")
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	for rec, err := range g.Store.List(ctx, f) {
		if err != nil {
			v.Cut = errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil
			if !v.Cut {
				return err
			}
			break
		}
		if len(v.Letters) == lettersShown {
			v.Next = gatewayLink(g, v, strconv.FormatInt(deadletter.Cursor(v.Letters[lettersShown-1].Record), 10))
			break
		}
		l := letter{Record: rec}
		if v.Payload {
			l.Payload = readable(rec)
		}
		v.Letters = append(v.Letters, l)
	}
	return nil
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

// Hidden is the filter for a form that shows or hides the payloads.
func (v *gatewayView) Hidden() []field { return fields(v.Filter.query()) }

// ByReason links each reason to its own list.
func (v *gatewayView) ByReason(r job.Reason) string {
	return "/gateways/" + v.G.Name + "?" + url.Values{"reason": {string(r)}}.Encode() + "#letters"
}

// someInDoubt says that jobs are parked, and meant, for a reason that often goes with doubt. One of another reason is resolved on its own page.
func someInDoubt(f filter, parked map[job.Reason]int64) bool {
	for _, r := range []job.Reason{job.UnknownOutcome, job.Exhausted, job.Cancelled, job.Paused} {
		if parked[r] > 0 && (len(f.Reasons) == 0 || slices.Contains(f.Reasons, r)) {
			return true
		}
	}
	return false
}

// choices are the links to the previews for the filter. Resolving is offered only where jobs may be in doubt, and nothing else for jobs of paused
// batches: those go on when their batch is resumed.
func choices(gateway string, f filter, doubt bool) []choice {
	var all []choice
	paused := slices.Equal(f.Reasons, []job.Reason{job.Paused})
	for _, d := range deeds {
		if d.InDoubt && !doubt || paused && !d.InDoubt {
			continue
		}
		q := f.query()
		q.Set("do", d.Name)
		all = append(all, choice{d.Name, d.Label, "/gateways/" + gateway + "/clear?" + q.Encode()})
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

// readable is a job's payload with its parts on lines of their own. What is no JSON stays as it is.
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
