package console

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/roles"
)

// batchesShown is how many batches a page has.
const batchesShown = 100

type batchesView struct {
	base
	Rows   []batchRow
	Active bool   // only batches with jobs left
	Next   string // address of the next page; empty on the last
	First  string // address of the first page; empty on it
}

// batchRow is one batch in its row and at the head of its page.
type batchRow struct {
	desk.BatchRow
	Link   string
	Bar    []barPart
	Says   string // the bar's content in words
	Money  []moneyPart
	ETA    time.Duration
	HasETA bool
}

// barPart is a part of a bar of width 100.
type barPart struct {
	Class    string
	At, Wide float64
}

// moneyPart is the money of one currency: what is done, of all.
type moneyPart struct{ Done, All string }

func newBatchRow(r desk.BatchRow) batchRow {
	v := batchRow{BatchRow: r, Link: batchLink(r.Batch, nil), Money: moneyOf(r), HasETA: r.ETASeconds != nil}
	if v.HasETA {
		v.ETA = time.Duration(*r.ETASeconds * float64(time.Second))
	}
	v.Says = fmt.Sprintf("%s of %s done, %d waiting, %d for a person to decide", job.CountText(r.Done.Jobs), job.JobsText(r.Jobs), r.Waiting.Jobs, r.NeedsPerson.Jobs)
	at := 0.0
	for _, part := range []struct {
		class string
		of    job.Totals
	}{{"done", r.Done}, {"person", r.NeedsPerson}, {"other", r.Other}} {
		if part.of.Jobs == 0 || r.Jobs == 0 {
			continue
		}
		wide := 100 * float64(part.of.Jobs) / float64(r.Jobs)
		v.Bar = append(v.Bar, barPart{part.class, at, wide})
		at += wide
	}
	return v
}

// moneyOf returns the money of a batch by currency.
func moneyOf(r desk.BatchRow) (all []moneyPart) {
	for _, m := range r.Amount.Sorted() {
		done := job.Money{Minor: r.Done.Amount.Of(m.Currency), Currency: m.Currency}
		all = append(all, moneyPart{done.String(), m.String()})
	}
	return all
}

// batchLink returns a batch's page. Browsers interpret "." and ".." as path steps, however they are written.
func batchLink(name string, q url.Values) string {
	path := "/batches/" + url.PathEscape(name)
	if name == "." || name == ".." {
		path = "/batches"
		q = url.Values{"name": {name}, "act": q["act"]}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

func (c *Console) batches(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	switch {
	case q.Get("do") != "":
		if err := lacking(r, roles.Operate); err != nil {
			return err
		}
		return c.batchPreview(w, r)
	case q.Get("name") != "":
		return c.batchPage(w, r)
	}
	v := &batchesView{base: base{Title: "Batches", Live: true}, Active: q.Get("active") == "1"}
	query := desk.BatchQuery{Limit: batchesShown + 1, After: q.Get("after"), Active: v.Active}
	for row, err := range c.desk(r.Context()).Batches(r.Context(), query) {
		if err != nil {
			return err
		}
		if len(v.Rows) == batchesShown {
			v.Next = v.page(v.Rows[batchesShown-1].Cursor)
			break
		}
		v.Rows = append(v.Rows, newBatchRow(row))
	}
	if query.After != "" {
		v.First = v.page("")
	}
	c.show(w, r, http.StatusOK, "batches.html", v)
	return nil
}

func (v *batchesView) page(after string) string {
	q := url.Values{}
	if v.Active {
		q.Set("active", "1")
	}
	if after != "" {
		q.Set("after", after)
	}
	return strings.TrimSuffix("/batches?"+q.Encode(), "?")
}

// batchView is the state of one batch, by gateway and state.
type batchView struct {
	base
	Row   batchRow
	Parts []batchPart
	Do    []choice
	Act   *batchAct
	// By is the time asked about. Verdict says whether the batch will be finished by then, and Makes that it
	// will.
	By      string
	Verdict string
	Makes   bool
}

// batchPart is a batch at one gateway.
type batchPart struct {
	desk.BatchGateway
	Places []batchPlace
}

// batchPlace is the jobs in one state, with a link to them if they are parked.
type batchPlace struct {
	desk.BatchPlace
	Link string
}

func (c *Console) batchPage(w http.ResponseWriter, r *http.Request) error {
	name := batchNamed(r)
	b, err := c.desk(r.Context()).Batch(r.Context(), name)
	if err != nil {
		return err
	}
	v := &batchView{base: base{Title: "Batch " + name, Live: true}, Row: newBatchRow(b.Row()), By: r.URL.Query().Get("by")}
	if v.By != "" {
		if err := v.judge(b); err != nil {
			return err
		}
	}
	for _, g := range b.Gateways {
		v.Parts = append(v.Parts, newBatchPart(name, g))
	}
	if whoAsks(r.Context()).May(roles.Operate) {
		v.Do = batchChoices(name, b)
	}
	if waits := func(g desk.BatchGateway) bool { return g.Approval.Waits() }; whoAsks(r.Context()).May(roles.Approve) && slices.ContainsFunc(b.Gateways, waits) {
		v.Do = append(v.Do, choice{"approve", "Approve or reject", "/approvals?" + url.Values{"name": {name}}.Encode()})
	}
	v.Act = c.batchActs.find(func(a *batchAct) bool { return a.ID == r.URL.Query().Get("act") && a.Batch == name })
	c.show(w, r, http.StatusOK, "batch.html", v)
	return nil
}

// batchNamed returns the name of the batch on a page.
func batchNamed(r *http.Request) string {
	if name := r.PathValue("name"); name != "" {
		return name
	}
	return r.URL.Query().Get("name")
}

func newBatchPart(name string, g desk.BatchGateway) batchPart {
	part := batchPart{BatchGateway: g}
	for _, p := range g.States {
		place := batchPlace{BatchPlace: p}
		if p.State == job.Parked {
			place.Link = "/gateways/" + g.Gateway + "?" + url.Values{"batch": {name}, "reason": {string(p.Reason)}}.Encode() + "#letters"
		}
		part.Places = append(part.Places, place)
	}
	return part
}

// judge says whether the batch will be finished by the time that was typed.
func (v *batchView) judge(b *desk.Batch) error {
	by, err := desk.ParseBy(v.By, time.Now())
	if err != nil {
		return err
	}
	late, known := b.Judge(by)
	at := job.Clock(by.UTC())
	switch v.Makes = *b.MakesIt; {
	case v.Makes:
		v.Verdict = "It makes it by " + at + b.Condition() + "."
	case known:
		v.Verdict = "It does not make it by " + at + ": its last job will be called " + short(late) + " later" + b.Condition() + "."
	default:
		v.Verdict = "Nobody can say whether it makes it by " + at + ": " + b.WhyNoETA() + "."
	}
	return nil
}
