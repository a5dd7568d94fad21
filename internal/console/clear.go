package console

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"spillway/internal/desk"
	"spillway/internal/job"
)

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
