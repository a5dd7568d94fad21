package remote

import (
	"context"
	"net/http"
	"sync"
	"time"

	"spillway/internal/desk"
	"spillway/internal/roles"
)

// BatchesOf says which batches to list.
type BatchesOf struct {
	At
	// Limit is the length of a page: 1 to 1,000.
	Limit int `json:"limit,omitempty"`
	// After is Next of the previous page.
	After string `json:"after,omitempty"`
	// Active leaves out batches without jobs left.
	Active bool `json:"active,omitempty"`
}

// BatchPage is a page of batches.
type BatchPage struct {
	Batches []desk.BatchRow `json:"batches"`
	// Next is the cursor of the next page; nil on the last one.
	Next *string `json:"next"`
}

// MostShown is the most items of a page over HTTP.
const MostShown = 1000

// shown is the default length of a page.
const shown = 100

func pageSize(limit int) (int, error) {
	switch {
	case limit == 0:
		return shown, nil
	case limit < 0 || limit > MostShown:
		return 0, usage("", "limit is not a number from 1 to 1000")
	}
	return limit, nil
}

// Batches lists batches, newest first, a page at a time.
var Batches = &Op[BatchesOf, None, BatchPage]{About{Name: "listBatches", Need: roles.View, Method: http.MethodGet, Path: "/v1/batches", Commands: []string{"batch list"}},
	func(ctx context.Context, h *Here, q BatchesOf, _ Out[None]) (page BatchPage, err error) {
		most, err := pageSize(q.Limit)
		if err != nil {
			return page, err
		}
		d, err := h.At(ctx, q.Gateways)
		if err != nil {
			return page, err
		}
		page.Batches = []desk.BatchRow{}
		for row, err := range d.Batches(ctx, desk.BatchQuery{Limit: most + 1, After: q.After, Active: q.Active}) {
			if err != nil {
				return page, err
			}
			if len(page.Batches) == most {
				page.Next = &page.Batches[most-1].Cursor
				break
			}
			page.Batches = append(page.Batches, row)
		}
		return page, nil
	}}

// unknownBatch is the problem code for an unknown batch.
const unknownBatch = "unknown_batch"

// BatchOf names a batch.
type BatchOf struct {
	Name string `json:"-" path:"name"`
	At
	// By asks whether it will be finished by a time: +2h, or a time, in UTC unless it says otherwise.
	By string `json:"by,omitempty"`
}

// Batch returns the state of a batch.
var Batch = &Op[BatchOf, None, *desk.Batch]{About{Name: "getBatch", Need: roles.View, Method: http.MethodGet, Path: "/v1/batches/{name}", NotFound: unknownBatch, Commands: []string{"batch"}},
	func(ctx context.Context, h *Here, q BatchOf, _ Out[None]) (*desk.Batch, error) {
		var by time.Time
		if q.By != "" {
			var err error
			if by, err = desk.ParseBy(q.By, time.Now()); err != nil {
				return nil, err
			}
		}
		d, err := h.At(ctx, q.Gateways)
		if err != nil {
			return nil, err
		}
		b, err := d.Batch(ctx, q.Name)
		if err == nil && q.By != "" {
			b.Judge(by)
		}
		return b, err
	}}

// BatchJobsOf names a batch whose jobs to export.
type BatchJobsOf struct {
	Name string `json:"-" path:"name"`
	At
	ExportAs
}

// BatchJobs exports what became of each job of a batch.
var BatchJobs = &Op[BatchJobsOf, JobLine, None]{About{Name: "exportBatch", Need: roles.View, Method: http.MethodGet, Path: "/v1/batches/{name}/jobs", Kind: Lines, NotFound: unknownBatch,
	Commands: []string{"batch"}},
	func(ctx context.Context, h *Here, q BatchJobsOf, out Out[JobLine]) (none None, err error) {
		if err = q.check(); err != nil {
			return none, err
		}
		d, err := h.At(ctx, q.Gateways)
		if err != nil {
			return none, err
		}
		n, err := export(d.BatchJobs(ctx, q.Name, q.Fields), out)
		if err == nil && n == 0 {
			err = d.NoBatch(ctx, q.Name)
		}
		return none, err
	}}

// BatchActOf names a batch to act on.
type BatchActOf struct {
	Name string `json:"-" path:"name"`
	At
	Actor
	// DryRun only returns what would be done.
	DryRun bool `json:"dry_run,omitempty"`
}

// BatchStep is how many jobs one step of an act has changed.
type BatchStep struct {
	Jobs int64 `json:"jobs"`
}

// inSteps returns a function that writes each step of an act, also of several gateways at once.
func inSteps(out Out[BatchStep]) func(jobs int64) {
	var one sync.Mutex
	return func(jobs int64) {
		one.Lock()
		defer one.Unlock()
		_ = out.line(BatchStep{jobs}) // if the client has gone, ctx has ended
	}
}

// BatchDone is the actual or planned result of an act on a batch: "batch pause -o json".
type BatchDone struct {
	Batch    string           `json:"batch"`
	What     string           `json:"what"`
	Done     bool             `json:"done"`
	Gateways []desk.BatchDeed `json:"gateways"`
	// Problem is why it was not done for all jobs; nil if it was.
	Problem *Fault `json:"problem,omitempty"`
}

// Unfinished reports that it stopped early: repeating it continues.
func (d BatchDone) Unfinished() bool { return d.Problem != nil }

// The acts on batches.
var (
	PauseBatch  = batchAct(desk.PauseBatch)
	ResumeBatch = batchAct(desk.ResumeBatch)
	CancelBatch = batchAct(desk.CancelBatch)
	RejectBatch = batchActOf(desk.RejectBatch, roles.Approve)
)

// BatchAct is an act on a batch.
type BatchAct = Op[BatchActOf, BatchStep, BatchDone]

func batchAct(a desk.BatchAction) *BatchAct { return batchActOf(a, roles.Operate) }

func batchActOf(a desk.BatchAction, need roles.Need) *BatchAct {
	return &BatchAct{About{Name: a.Verb + "Batch", Need: need, Method: http.MethodPost, Path: "/v1/batches/{name}/" + a.Verb, Kind: Long, Act: true, NotFound: unknownBatch,
		Commands: []string{"batch " + a.Verb}},
		func(ctx context.Context, h *Here, q BatchActOf, out Out[BatchStep]) (d BatchDone, err error) {
			by, err := q.acts(h, "batch "+a.Verb)
			if err != nil {
				return d, err
			}
			at, err := h.At(ctx, q.Gateways)
			if err != nil {
				return d, err
			}
			b, err := at.Batch(ctx, q.Name)
			if err != nil {
				return d, err
			}
			d = BatchDone{Batch: q.Name, What: a.Verb, Done: !q.DryRun}
			if q.DryRun {
				d.Gateways = b.Would(a)
				return d, nil
			}
			d.Gateways, err = b.Do(ctx, a, by, inSteps(out))
			d.Problem = faultOf(ctx, err)
			return d, nil
		}}
}
