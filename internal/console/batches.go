package console

import (
	"fmt"
	"net/http"
	"net/url"
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
