package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// previewTime bounds counting what would be touched.
const previewTime = 8 * time.Second

// clearView is the preview of a deed, with the form that does exactly what it shows.
type clearView struct {
	base
	Gateway string
	Name    string // of the deed
	Do      string // its button
	Verb    string
	Means   string
	NeedWhy bool
	Final   bool
	Paced   bool
	Filter  filter
	All     *pile
	Would   *pile
	Reasons []reasonPile
	Held    []heldBack
	Fields  []field
	Cut     bool   // there are more than could be counted
	Halt    string // why it would stop at once; empty if it would not
	Who     string
}

type reasonPile struct {
	Reason job.Reason
	*pile
}

type heldBack struct {
	Why  string
	Jobs int
}

func (c *Console) preview(w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("do")
	g, d, err := c.meant(r, name)
	if err != nil {
		return err
	}
	v := &clearView{base: base{Title: d.label + " · " + g.Name}, Gateway: g.Name, Name: name, Do: d.label, Verb: d.verb, Means: d.means,
		NeedWhy: d.why, Final: d.final, Paced: d.paced, All: newPile(), Would: newPile(), Who: whoBefore(r)}
	u, now, err := c.unit(r.Context(), g)
	if err != nil {
		return err
	}
	if d.heeds {
		v.Halt = stopped(now)
	}
	if v.Filter, err = c.clearFilter(r.URL.Query(), d, u); err != nil {
		return err
	}
	met, err := c.countUp(r.Context(), u, d, v)
	if err != nil {
		return err
	}
	v.Held, v.Filter.means.Until = sorted(met.Held), met.Until
	v.Fields = append(fields(v.Filter.query()), field{"do", name})
	c.show(w, r, http.StatusOK, "clear.html", v)
	return nil
}

// meant returns the gateway and the deed of a request.
func (c *Console) meant(r *http.Request, name string) (config.Gateway, deed, error) {
	g, err := c.gateway(r.PathValue("gateway"))
	if err != nil {
		return g, deed{}, err
	}
	d, ok := deedsByName[name]
	if !ok {
		return g, d, wrong("nobody can do that to dead letters", "choose one of the buttons")
	}
	return g, d, nil
}

func (c *Console) unit(ctx context.Context, g config.Gateway) (unit, dispatch.Glance, error) {
	now, err := dispatch.Look(ctx, c.cfg.Redis, g)
	if err != nil {
		return unit{}, now, err
	}
	return unit{g: g, rules: dispatch.Rules(g, now.Now)}, now, nil
}

func (c *Console) clearFilter(q url.Values, d deed, u unit) (filter, error) {
	f, err := parseFilter(q, u.rules.Now)
	f.means.InDoubt = d.doubt && len(f.Reasons)+len(f.means.IDs) == 0
	return f, err
}

// countUp fills in what the deed would touch.
func (c *Console) countUp(ctx context.Context, u unit, d deed, v *clearView) (*deadletter.Preview, error) {
	ctx, cancel := context.WithTimeout(ctx, previewTime)
	defer cancel()
	store, met, byReason := dispatch.Store(c.cfg.Redis, u.g), &deadletter.Preview{Rules: u.rules, Decide: d.decide}, map[job.Reason]*pile{}
	f, err := store.UpToNow(ctx, v.Filter.means)
	if err != nil {
		return met, dispatch.Coded(err)
	}
	f.ToCount(u.g.Amount.Field != "")
	for rec, err := range store.List(ctx, f) {
		if err != nil && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)) {
			v.Cut = true
			break
		}
		if err != nil {
			return met, dispatch.Coded(err)
		}
		if byReason[rec.Reason] == nil {
			byReason[rec.Reason] = newPile()
		}
		byReason[rec.Reason].add(rec, u.g.Amount)
		v.All.add(rec, u.g.Amount)
		if met.Meet(rec) {
			v.Would.add(rec, u.g.Amount)
		}
	}
	for _, r := range job.Reasons() {
		if p := byReason[r]; p != nil {
			v.Reasons = append(v.Reasons, reasonPile{r, p})
		}
	}
	return met, nil
}

func sorted(held map[string]int) []heldBack {
	var all []heldBack
	for why, n := range held {
		all = append(all, heldBack{why, n})
	}
	slices.SortFunc(all, func(a, b heldBack) int { return strings.Compare(a.Why, b.Why) })
	return all
}

// clear does what a preview has shown, and sends the browser to the gateway's page, where it says how far it got.
func (c *Console) clear(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return wrong("the form can't be read", "go back and try again")
	}
	g, d, err := c.meant(r, r.PostForm.Get("do"))
	if err != nil {
		return err
	}
	who, why := typed(r, "who"), typed(r, "why")
	switch {
	case who == "":
		return wrong("nobody's name was given, and it has to be written down", "go back and type in who you are")
	case d.why && why == "":
		return wrong("no reason was given, and it has to be written down", "go back and type in why, such as a ticket's number")
	}
	u, _, err := c.unit(r.Context(), g)
	if err != nil {
		return err
	}
	f, err := c.clearFilter(r.PostForm, d, u)
	if err != nil {
		return err
	}
	if f.means.Until.IsZero() {
		return wrong("it was not looked at first what this would touch", "go back to the list and choose there")
	}
	if d.paced {
		if u.pace, err = parsePace(r.PostForm); err != nil {
			return err
		}
	}
	a := c.begin(u, d, f, saying{who: who, why: why, from: r.RemoteAddr})
	a.wait(r.Context(), patience)
	remember(w, r, who)
	http.Redirect(w, r, "/gateways/"+g.Name+"?act="+a.ID, http.StatusSeeOther)
	return nil
}
