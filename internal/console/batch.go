package console

import (
	"net/http"
	"net/url"
	"slices"
	"time"

	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/roles"
)

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
