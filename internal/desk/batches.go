package desk

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
)

// BatchQuery says which batches to list.
type BatchQuery struct {
	Limit  int    // at most this many; 0 means all
	After  string // cursor of a batch: list those after it
	Active bool   // only those with jobs left
}

// batchesAtOnce is how many batches are read together.
const batchesAtOnce = 100

// listedBatch is a batch to be read.
type listedBatch struct {
	name  string
	first time.Time
	at    []*Gateway // gateways that know it, in the order of the desk
}

// Batches yields the batches of the desk's gateways, summed over gateways, in the order in which their first
// jobs were accepted, newest first. It reads the names of all batches and the totals of those that it yields,
// but no jobs. An error with code usage says that the cursor is invalid.
func (d *Desk) Batches(ctx context.Context, q BatchQuery) iter.Seq2[BatchRow, error] {
	return func(yield func(BatchRow, error) bool) {
		all, err := d.listBatches(ctx, q.After)
		if err != nil {
			yield(BatchRow{}, err)
			return
		}
		left, looks := q.Limit, &batchLooks{}
		for some := range slices.Chunk(all, batchesAtOnce) {
			rows, err := readBatches(ctx, some, looks)
			if err != nil {
				yield(BatchRow{}, err)
				return
			}
			for _, row := range rows {
				if q.Active && row.left() == 0 {
					continue
				}
				if !yield(row, nil) {
					return
				}
				if left--; left == 0 {
					return
				}
			}
		}
	}
}

// listBatches returns the batches after a cursor, newest first.
func (d *Desk) listBatches(ctx context.Context, after string) ([]listedBatch, error) {
	from, err := parseBatchCursor(after)
	if err != nil {
		return nil, err
	}
	books := make([]*ledger.Books, len(d.Gateways))
	for i, g := range d.Gateways {
		books[i] = g.Books
	}
	starts, err := ledger.BatchStarts(ctx, books)
	if err != nil {
		return nil, err
	}
	byName := map[string]*listedBatch{}
	for i, g := range d.Gateways {
		for _, start := range starts[i] {
			b := byName[start.Name]
			if b == nil {
				b = &listedBatch{name: start.Name, first: start.First}
				byName[start.Name] = b
			}
			b.at = append(b.at, g)
			if start.First.Before(b.first) {
				b.first = start.First
			}
		}
	}
	all := make([]listedBatch, 0, len(byName))
	for _, b := range byName {
		if after == "" || newestFirst(from, *b) < 0 {
			all = append(all, *b)
		}
	}
	slices.SortFunc(all, newestFirst)
	return all, nil
}

func newestFirst(a, b listedBatch) int {
	return cmp.Or(b.first.Compare(a.first), strings.Compare(a.name, b.name))
}

func (b listedBatch) cursor() string {
	return strconv.FormatInt(record.Micros(b.first), 10) + "/" + b.name
}

func parseBatchCursor(text string) (b listedBatch, err error) {
	if text == "" {
		return b, nil
	}
	digits, name, found := strings.Cut(text, "/")
	us, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !found || us <= 0 || name == "" {
		return b, usage(`take it from "cursor" of the last batch that "batch list -o json" printed: 1763742851000001/2026-11`, "%q is not the cursor of a batch", text)
	}
	return listedBatch{name: name, first: record.Moment(us)}, nil
}

// readBatches reads the totals of some batches, and leaves out expired ones.
func readBatches(ctx context.Context, some []listedBatch, looks *batchLooks) ([]BatchRow, error) {
	var asked []ledger.BatchOf
	for _, b := range some {
		for _, g := range b.at {
			asked = append(asked, ledger.BatchOf{Books: g.Books, Name: b.name})
		}
	}
	books, err := ledger.Batches(ctx, asked)
	if err != nil {
		return nil, err
	}
	if err := looks.look(ctx, some, books); err != nil {
		return nil, err
	}
	var rows []BatchRow
	for _, b := range some {
		whole := &Batch{Batch: b.name}
		for i, g := range b.at {
			if len(books[i].Places) == 0 {
				continue
			}
			glance, err := looks.glance(ctx, g, books[i])
			if err != nil {
				return nil, err
			}
			whole.parts = append(whole.parts, batchPart{g, glance})
		}
		books = books[len(b.at):]
		if len(whole.parts) > 0 {
			whole.view()
			rows = append(rows, whole.row(b))
		}
	}
	return rows, nil
}

const (
	// mostLooked is how many gateways a list reads for ETAs: each takes a few round trips.
	mostLooked = 50
	// looksAtOnce is how many of them are read concurrently.
	looksAtOnce = 8
)

// unlooked is why a list has no ETA for a batch.
const unlooked = "more gateways have waiting jobs than a list looks at: ask for the batch alone"

// batchLooks reads each gateway with waiting jobs of the listed batches once.
type batchLooks struct {
	at map[*Gateway]*dispatch.BatchLooker
}

// look reads the gateways needed for the ETAs of some batches.
func (l *batchLooks) look(ctx context.Context, some []listedBatch, books []record.Batch) error {
	if l.at == nil {
		l.at = map[*Gateway]*dispatch.BatchLooker{}
	}
	var ask []*Gateway
	for _, b := range some {
		for i, g := range b.at {
			_, known := dispatch.UnlookedBatch(g.Gateway, books[i])
			if _, looked := l.at[g]; !known && !looked && len(l.at) < mostLooked {
				l.at[g] = nil
				ask = append(ask, g)
			}
		}
		books = books[len(b.at):]
	}
	for together := range slices.Chunk(ask, looksAtOnce) {
		if err := l.lookTogether(ctx, together); err != nil {
			return err
		}
	}
	return nil
}

func (l *batchLooks) lookTogether(ctx context.Context, together []*Gateway) error {
	looked, errs := make([]*dispatch.BatchLooker, len(together)), make([]error, len(together))
	var all sync.WaitGroup
	for i, g := range together {
		all.Go(func() { looked[i], errs[i] = dispatch.NewBatchLooker(ctx, g.redis, g.Gateway) })
	}
	all.Wait()
	for i, g := range together {
		l.at[g] = looked[i]
	}
	return cmp.Or(errs...)
}

func (l *batchLooks) glance(ctx context.Context, g *Gateway, books record.Batch) (dispatch.BatchGlance, error) {
	v, known := dispatch.UnlookedBatch(g.Gateway, books)
	if known {
		return v, nil
	}
	if looker := l.at[g]; looker != nil {
		return looker.Glance(ctx, books)
	}
	v.ETA, v.FromNow, v.Stopped = -1, -1, unlooked
	return v, nil
}

// BatchState is the state of a batch as a whole.
type BatchState string

// The states of a batch.
const (
	BatchActive    BatchState = "active"            // some jobs are left
	BatchPaused    BatchState = "paused"            // at one or more gateways
	BatchAwaiting  BatchState = "awaiting_approval" // at one or more gateways; neither paused nor cancelled
	BatchCancelled BatchState = "cancelled"         // at one or more gateways; paused at none
	BatchOver      BatchState = "over"              // all jobs are done or discarded
)

// BatchRow summarizes one batch: a line of "batch list -o json". Each job is counted in one of Done, Waiting,
// NeedsPerson and Other.
type BatchRow struct {
	Batch      string     `json:"batch"`
	State      BatchState `json:"state"`
	FirstJobAt time.Time  `json:"first_job_at"`
	Gateways   []string   `json:"gateways"`
	job.Totals
	Done        job.Totals   `json:"done"`
	Waiting     job.Totals   `json:"waiting"`
	NeedsPerson job.Totals   `json:"needs_person"`
	Other       job.Totals   `json:"other"`
	States      []BatchPlace `json:"states"`
	ETASeconds  *float64     `json:"eta_seconds"`
	ETAWhy      string       `json:"eta_why,omitempty"`
	// StoppedAt is the gateways at which it is paused or cancelled.
	StoppedAt []string   `json:"stopped_at,omitempty"`
	PausedAt  *time.Time `json:"paused_at"`
	PauseWhy  string     `json:"pause_why,omitempty"`
	PausedBy  string     `json:"paused_by,omitempty"`
	Cancelled *time.Time `json:"cancelled_at"`
	CancelWhy string     `json:"cancel_why,omitempty"`
	CancelBy  string     `json:"cancelled_by,omitempty"`
	Cursor    string     `json:"cursor"`
}

// Row returns the batch as shown in lists, without its position there.
func (b *Batch) Row() BatchRow { return b.row(listedBatch{name: b.Batch}) }

// row returns the batch as shown in lists.
func (b *Batch) row(l listedBatch) BatchRow {
	r := BatchRow{Batch: b.Batch, State: BatchActive, FirstJobAt: l.first, Totals: b.Totals, States: b.States, ETASeconds: b.ETASeconds, ETAWhy: b.WhyNoETA(), Cursor: l.cursor()}
	for _, g := range b.Gateways {
		r.Gateways = append(r.Gateways, g.Gateway)
	}
	for _, place := range b.States {
		r.sumOf(place).Add(place.Totals)
	}
	b.stopped(&r)
	switch {
	case r.PausedAt != nil:
		r.State = BatchPaused
	case r.Cancelled != nil:
		r.State = BatchCancelled
	case slices.ContainsFunc(b.Gateways, func(g BatchGateway) bool { return g.Approval.Waits() }):
		r.State = BatchAwaiting
	case r.left() == 0:
		r.State = BatchOver
	}
	return r
}

// stopped sets where the batch is paused, or else cancelled, and for the first of these gateways, since when,
// why and by whom.
func (b *Batch) stopped(r *BatchRow) {
	paused := slices.ContainsFunc(b.Gateways, func(g BatchGateway) bool { return g.PausedAt != nil })
	for _, g := range b.Gateways {
		if g.PausedAt == nil && (paused || g.Cancelled == nil) {
			continue
		}
		if r.StoppedAt = append(r.StoppedAt, g.Gateway); len(r.StoppedAt) == 1 {
			r.PausedAt, r.PauseWhy, r.PausedBy = g.PausedAt, g.PauseWhy, g.PausedBy
			r.Cancelled, r.CancelWhy, r.CancelBy = g.Cancelled, g.CancelWhy, g.CancelBy
		}
	}
}

// sumOf returns the sum to which a place belongs.
func (r *BatchRow) sumOf(p BatchPlace) *job.Totals {
	switch p.State {
	case job.Done:
		return &r.Done
	case job.Scheduled, job.Queued, job.InFlight, job.Retrying, job.Pending:
		return &r.Waiting
	}
	switch {
	case p.State == job.Parked && p.Reason == job.Rejected:
		return &r.Waiting
	case p.NeedsPerson():
		return &r.NeedsPerson
	}
	return &r.Other
}

// NeedsPerson reports whether the jobs stay there until an operator decides.
func (p BatchPlace) NeedsPerson() bool {
	switch p.Reason {
	case job.UnknownOutcome, job.Refused, job.Exhausted:
		return p.State == job.Parked
	}
	return false
}

// Word returns a short name of the place: a job parked as rejected waits for room.
func (p BatchPlace) Word() string {
	switch {
	case p.State != job.Parked:
		return strings.ReplaceAll(string(p.State), "_", " ")
	case p.Reason == job.Rejected:
		return "waiting for room"
	}
	return strings.ReplaceAll(string(p.Reason), "_", " ")
}

// left returns how many jobs are neither over nor parked because their batch was cancelled.
func (r BatchRow) left() (jobs int64) {
	for _, p := range r.States {
		cancelled := p.State == job.Parked && p.Reason == job.Cancelled && r.Cancelled != nil
		if p.State != job.Done && p.State != job.Discarded && !cancelled {
			jobs += p.Jobs
		}
	}
	return jobs
}

// Where says where the unfinished jobs are, those that need an operator first: "2 refused, 20 queued".
func (r BatchRow) Where() string {
	var first, rest []string
	for _, p := range r.States {
		text := job.CountText(p.Jobs) + " " + p.Word()
		switch {
		case p.State == job.Done:
		case p.NeedsPerson():
			first = append(first, text)
		default:
			rest = append(rest, text)
		}
	}
	return strings.Join(append(first, rest...), ", ")
}

// mostGateways is the most gateways that a text names.
const mostGateways = 3

// GatewaysText names the batch's gateways, or counts them.
func (r BatchRow) GatewaysText() string { return gatewaysText(r.Gateways) }

func gatewaysText(names []string) string {
	if len(names) > mostGateways {
		return job.CountText(int64(len(names))) + " gateways"
	}
	return strings.Join(names, ", ")
}

// Stopped says by whom and why the batch is paused or cancelled, and where, unless at all of its gateways;
// empty if it is not.
func (r BatchRow) Stopped() string {
	if len(r.StoppedAt) == 0 {
		return ""
	}
	who, why := r.PausedBy, r.PauseWhy
	if r.PausedAt == nil {
		who, why = r.CancelBy, r.CancelWhy
	}
	text := fmt.Sprintf("by %s: %s", who, why)
	if len(r.StoppedAt) < len(r.Gateways) {
		text = "at " + gatewaysText(r.StoppedAt) + " " + text
	}
	return text
}
