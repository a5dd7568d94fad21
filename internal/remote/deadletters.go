package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/roles"
)

// DeadLettersOf says which parked jobs to list.
type DeadLettersOf struct {
	Filter
	After string `json:"after,omitempty"`
	// Payload requests the payloads, too: they may contain personal data.
	Payload bool `json:"payload,omitempty"`
	// Order is need for the order for people, with jobs that need an operator first; empty: oldest first, gateway
	// by gateway.
	Order string `json:"order,omitempty"`
}

// ParkedLine is a parked job in a list.
type ParkedLine struct {
	desk.Parked
	// Unopened is why its payload can't be shown; empty if it can, or was not requested.
	Unopened string `json:"unopened,omitempty"`
}

// DeadLetterPage is a page of parked jobs.
type DeadLetterPage struct {
	Jobs []ParkedLine `json:"jobs"`
	// Next is the cursor of the next page; nil on the last one.
	Next *string `json:"next"`
	LeftOut
	// ForRoom is how many jobs wait for room, which the order for people omits.
	ForRoom int64 `json:"waiting_for_room,omitempty"`
}

// DeadLetters lists parked jobs, a page at a time.
var DeadLetters = &Op[DeadLettersOf, None, DeadLetterPage]{About{Name: "listDeadLetters", Need: roles.View, Method: http.MethodGet, Path: "/v1/dead-letters", Commands: []string{"dlq list"}}, deadLetters}

func deadLetters(ctx context.Context, h *Here, q DeadLettersOf, out Out[None]) (page DeadLetterPage, err error) {
	if q.Order != "" && q.Order != "need" {
		return page, usage("write need, or leave it out", fmt.Sprintf("there is no order %.40q", q.Order))
	}
	most, err := pageSize(q.Limit)
	if err != nil {
		return page, err
	}
	byNeed, start := q.Order != "", q.After
	if byNeed {
		start = ""
	}
	q.Limit = most
	s, err := q.selected(ctx, h, start)
	if err != nil {
		return page, err
	}
	s.Filter.NoPayload, s.Filter.Looked = !q.Payload, looking(out.remark)
	page.Jobs = []ParkedLine{}
	visit := func(_ *desk.Gateway, r job.Record) error {
		l := ParkedLine{Parked: desk.ParkedOf(r, q.Payload), Unopened: unopened(r)}
		l.Cursor = desk.Cursor(r)
		page.Jobs = append(page.Jobs, l)
		if len(page.Jobs) == most {
			page.Next = &l.Cursor
			if byNeed {
				page.Next = new(desk.NeedCursor(r))
			}
		}
		return nil
	}
	if byNeed {
		if err = s.EachByNeed(ctx, q.After, visit); err == nil && s.LeavesOut() {
			page.ForRoom, err = s.ForRoom(ctx)
		}
		return page, err
	}
	missing, err := s.Each(ctx, visit)
	if err == nil {
		page.LeftOut, err = leftOut(ctx, s, missing)
	}
	return page, err
}

// lookEvery is how often a search by error reports its progress.
const lookEvery = 2 * time.Second

// looking returns a function that counts the errors examined and reports the number from time to time.
func looking(say func(string)) func(int) {
	sum, said := 0, time.Now()
	return func(n int) {
		if sum += n; n > 0 && time.Since(said) >= lookEvery {
			said = time.Now()
			say("looked at the errors of " + job.JobsText(int64(sum)) + " so far")
		}
	}
}

// DeadLetterAnswer is what is known of one parked job.
type DeadLetterAnswer struct {
	desk.ParkedWhole
	// Most is the most attempts that a job of the gateway may spend.
	Most int `json:"attempts_most"`
	// Unopened is why the payload can't be shown; empty if it can, or was not requested.
	Unopened string `json:"unopened,omitempty"`
}

// DeadLetter returns everything known of one parked job.
var DeadLetter = &Op[JobOf, None, DeadLetterAnswer]{About{Name: "getDeadLetter", Need: roles.View, Method: http.MethodGet, Path: "/v1/dead-letters/job/{id}", Commands: []string{"dlq show"}},
	at(func(ctx context.Context, d *desk.Desk, q JobOf, _ Out[None]) (v DeadLetterAnswer, err error) {
		found, err := d.Parked(ctx, q.ID)
		if err != nil {
			return v, err
		}
		v.ParkedWhole, err = found.ParkedWhole(ctx, q.Payload)
		if v.Most = found.Retry.Attempts; q.Payload {
			v.Unopened = unopened(found.Record)
		}
		return v, err
	})}

// Tallies counts parked jobs: "dlq stats -o json".
type Tallies struct {
	Gateways []*desk.Tally `json:"gateways"`
	LeftOut
}

// Stats counts parked jobs by gateway and reason.
var Stats = &Op[Filter, None, Tallies]{About{Name: "countDeadLetters", Need: roles.View, Method: http.MethodGet, Path: "/v1/dead-letters/stats", Commands: []string{"dlq stats"}},
	func(ctx context.Context, h *Here, q Filter, _ Out[None]) (v Tallies, err error) {
		s, err := q.selected(ctx, h, "")
		if err != nil {
			return v, err
		}
		var missing []string
		if v.Gateways, missing, err = s.Count(ctx); err == nil {
			v.LeftOut, err = leftOut(ctx, s, missing)
		}
		return v, err
	}}

// DeadExportOf says which parked jobs to export.
type DeadExportOf struct {
	Filter
	After string `json:"after,omitempty"`
	// Plain opens sealed payloads.
	Plain bool `json:"plain,omitempty"`
	// Remarks requests lines {"remark": TEXT} about what was left out.
	Remarks bool `json:"remarks,omitempty"`
}

// DeadExport writes parked jobs as a billing file.
var DeadExport = &Op[DeadExportOf, desk.ExportLine, None]{About{Name: "exportDeadLetters", Need: roles.Operate, Method: http.MethodGet, Path: "/v1/dead-letters/export", Kind: Lines, Commands: []string{"dlq export"}},
	func(ctx context.Context, h *Here, q DeadExportOf, out Out[desk.ExportLine]) (n None, err error) {
		s, err := q.selected(ctx, h, q.After)
		if err != nil {
			return n, err
		}
		remark := func(text string) {
			if q.Remarks {
				out.remark(text)
			}
		}
		s.Filter.Looked = looking(remark)
		missing, err := s.Each(ctx, func(g *desk.Gateway, r job.Record) error {
			line, err := g.Export(r, q.Plain)
			if unfit := (desk.Unfit{}); errors.As(err, &unfit) {
				remark(fmt.Sprintf("left out: job %q of %s: %v", line.ID, line.Gateway, unfit))
				return nil
			}
			if err != nil {
				return err
			}
			return out.line(line)
		})
		if err != nil {
			return n, err
		}
		left, err := leftOut(ctx, s, missing)
		if left.MissingWhy != "" {
			remark("left out: " + left.MissingWhy)
		}
		return n, err
	}}

// HistoryOf says which acts to list.
type HistoryOf struct {
	At
	Since string `json:"since,omitempty"`
	Until string `json:"until,omitempty"`
	// Limit is the most acts listed; 0: all.
	Limit int `json:"limit,omitempty"`
}

// History lists who did what, gateway by gateway, oldest first, and at the end the gateways that were forgotten.
var History = &Op[HistoryOf, dispatch.Forgotten, None]{About{Name: "listHistory", Need: roles.View, Method: http.MethodGet, Path: "/v1/history", Kind: Lines, Commands: []string{"dlq history"}}, history}

func history(ctx context.Context, h *Here, q HistoryOf, out Out[dispatch.Forgotten]) (n None, err error) {
	if q.Limit < 0 {
		return n, usage("give at least 1, or leave it out for all", "limit is too few")
	}
	since, until, err := between(q.Since, q.Until, time.Now().UTC())
	if err != nil {
		return n, err
	}
	d, err := h.At(ctx, q.Gateways)
	if err != nil {
		return n, err
	}
	shown := 0
	show := func(gateway string, a deadletter.Act) error {
		if q.Limit > 0 && shown == q.Limit || !since.IsZero() && a.At.Before(since) || !until.IsZero() && !a.At.Before(until) {
			return nil
		}
		shown++
		return out.line(dispatch.Forgotten{Gateway: gateway, Act: a})
	}
	for _, g := range d.Gateways {
		for a, err := range g.Store.Acts(ctx) {
			if err == nil {
				err = show(g.Name, a)
			}
			if err != nil {
				return n, err
			}
			if q.Limit > 0 && shown == q.Limit {
				return n, nil
			}
		}
	}
	if len(q.Gateways) > 0 {
		return n, nil
	}
	all, err := d.Forgotten(ctx)
	for _, f := range all {
		if err := show(f.Gateway, f.Act); err != nil {
			return n, err
		}
	}
	return n, err
}
