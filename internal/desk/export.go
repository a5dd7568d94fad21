package desk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/big"
	"slices"
	"strings"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/producer"
	"spillway/internal/seal"
)

// ExportLine is a parked job as a line of a billing file for enqueue.
type ExportLine struct {
	ID      string          `json:"id"`
	Gateway string          `json:"gateway"`
	Payload json.RawMessage `json:"payload,omitempty"`
	Sealed  []byte          `json:"sealed,omitempty"` // replaces payload
	Cost    int64           `json:"cost,omitempty"`
	At      *time.Time      `json:"at,omitempty"`
	Expires *time.Time      `json:"expires,omitempty"`
	Batch   string          `json:"batch,omitempty"`
	Route   string          `json:"route,omitempty"`
	Class   string          `json:"priority,omitempty"`
	Lane    string          `json:"lane,omitempty"`
	// Mapped says that the gateway has a map, and that the payload is already mapped.
	Mapped bool `json:"mapped,omitempty"`
}

// Unfit says why a parked job can't be a line of a billing file.
type Unfit struct{ Why error }

func (u Unfit) Error() string { return u.Why.Error() }

// Export returns a parked job as a line of a billing file. If encryption is configured, the payload is sealed,
// unless plain is set. The error is Unfit if the job can't be a line.
func (g *Gateway) Export(r job.Record, plain bool) (ExportLine, error) {
	line := ExportLine{ID: r.Job.ID, Gateway: r.Job.Gateway, Payload: r.Job.Payload, Batch: r.Job.Batch, Route: r.Job.Route, Class: r.Job.Priority, Lane: r.Job.Lane, Mapped: g.Map != nil}
	if !r.Job.At.IsZero() {
		line.At = &r.Job.At
	}
	if !r.Job.Expires.IsZero() {
		line.Expires = &r.Job.Expires
	}
	if r.Job.Cost > 1 {
		line.Cost = r.Job.Cost
	}
	if why := unfit(line, r, plain); why != nil {
		return line, Unfit{why}
	}
	box := dispatch.Box(g.Gateway)
	if plain || r.Sealed == nil && !box.Seals() {
		return line, nil
	}
	line.Sealed, line.Payload = r.Sealed, nil
	if line.Sealed == nil { // stored before payloads were sealed
		var err error
		if line.Sealed, err = box.Seal(line.ID, r.Job.Payload); err != nil {
			return line, fmt.Errorf("job %q of %s: %w", line.ID, line.Gateway, err)
		}
	}
	return line, nil
}

// unfit returns why a job can't be a line of a billing file, or nil. An admitted job can be admitted again,
// sealed or not; only a foreign task has to be checked.
func unfit(line ExportLine, r job.Record, plain bool) error {
	switch foreign := r.Reason == job.Unreadable; {
	case r.Unopened != nil && (plain || foreign || errors.Is(r.Unopened, seal.ErrChanged)):
		return r.Unopened
	case r.Unopened != nil:
		return nil
	case !json.Valid(line.Payload):
		return errors.New("its content is not JSON")
	case !foreign:
		return nil
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(line); err != nil {
		return err
	}
	return readable(text.Bytes())
}

// allowed ignores card numbers: the reader of the export refuses them.
func allowed(string) job.CardRule { return job.CardRule{Then: job.CardsAllow} }

// readable returns why enqueue could not use the line, or nil.
func readable(line []byte) error {
	r, err := producer.New(bytes.NewReader(line), producer.Options{Format: producer.NDJSON, Cards: allowed})
	if err != nil {
		return err
	}
	read, err := r.Next()
	if err != nil {
		return err
	}
	return read.Err
}

// Forgotten is the state of a job whose record has expired: it was over longer ago than dedupe.
const Forgotten job.State = "forgotten"

// JobLine is what became of a job: a line of "export" and of "batch NAME --export".
type JobLine struct {
	ID         string              `json:"id"`
	Gateway    string              `json:"gateway"`
	Batch      string              `json:"batch,omitempty"`
	Route      string              `json:"route,omitempty"`
	Priority   string              `json:"priority,omitempty"`
	Lane       string              `json:"lane,omitempty"`
	State      job.State           `json:"state"`
	Reason     job.Reason          `json:"reason,omitempty"`
	Amount     *big.Int            `json:"amount,omitempty"` // in minor units; nil if unknown
	Currency   string              `json:"currency,omitempty"`
	Status     int                 `json:"status,omitempty"`
	Reference  string              `json:"reference,omitempty"`
	Settled    *deadletter.Settled `json:"settled,omitempty"`
	Error      string              `json:"error,omitempty"`
	Attempts   int                 `json:"attempts"`
	Replays    int                 `json:"replays"`
	AcceptedAt *time.Time          `json:"accepted_at"`
	CalledAt   *time.Time          `json:"called_at,omitempty"`
	ParkedAt   *time.Time          `json:"parked_at,omitempty"`
	FinishedAt *time.Time          `json:"finished_at,omitempty"`
	ErasedAt   *time.Time          `json:"erased_at,omitempty"`
	// Fields are the requested fields of the payload, by path; nil for those that it lacks.
	Fields map[string]any `json:"fields,omitempty"`

	// Unopened is why its fields can't be read; nil if they can, or if none was requested.
	Unopened error `json:"-"`
}

// payloadPrefix is the prefix of a payload field's path, as typed.
const payloadPrefix = "payload."

// JobFields are the payload fields to export, as typed: "payload.customer.name".
type JobFields []string

// CheckJobFields returns an error with code usage if one of them is not a payload field. name is their name in
// errors.
func CheckJobFields(fields JobFields, name string) error {
	for _, f := range fields {
		if path, is := strings.CutPrefix(f, payloadPrefix); !is || slices.Contains(strings.Split(path, "."), "") {
			return usage("write payload.customer, or payload.customer.name for one that is deeper; with commas between several", "%s %q is not a field of a payload", name, f)
		}
	}
	return nil
}

// fill sets the fields of a job's payload in a line.
func (fields JobFields) fill(l *JobLine, r job.Record) {
	if len(fields) == 0 {
		return
	}
	paths := make([]string, len(fields))
	for i, f := range fields {
		paths[i] = strings.TrimPrefix(f, payloadPrefix)
	}
	l.Fields, l.Unopened = make(map[string]any, len(fields)), r.Unopened
	for i, value := range job.FieldsOf(r.Job.Payload, paths) {
		l.Fields[fields[i]] = value
	}
}

// BatchJobs yields what became of each job of a batch, gateway by gateway in configured order, in bounded
// memory. An unknown batch has no jobs.
func (d *Desk) BatchJobs(ctx context.Context, name string, fields JobFields) iter.Seq2[JobLine, error] {
	return func(yield func(JobLine, error) bool) {
		for _, g := range d.Gateways {
			settled := g.Store.Settlements()
			for r, err := range g.Books.BatchRecords(ctx, name, len(fields) > 0) {
				var line JobLine
				if err == nil {
					line, err = lineOf(ctx, r, settled, fields)
				}
				if !yield(line, err) || err != nil {
					return
				}
			}
		}
	}
}

// JobQuery says which jobs to export.
type JobQuery struct {
	States       []job.State // empty means all
	Since, Until time.Time   // from (inclusive) and before; zero means any time
	// Finished says that Since and Until apply to when jobs were done or discarded, rather than accepted.
	Finished bool
	Fields   JobFields
}

// States returns the states of a job with a record, in life-cycle order.
func States() []job.State {
	return []job.State{job.Scheduled, job.Queued, job.InFlight, job.Retrying, job.Pending, job.Done, job.Parked, job.Discarded}
}

// CheckStates returns an error with code usage if one of them is not a state. name is the field's name in
// errors.
func CheckStates(states []job.State, name string) error {
	for _, s := range states {
		if !slices.Contains(States(), s) {
			return usage("the states are scheduled, queued, in_flight, retrying, pending, done, parked and discarded", "%s %q is not a state of a job", name, s)
		}
	}
	return nil
}

func (q JobQuery) means(r job.Record) bool {
	at := r.Accepted
	if q.Finished {
		at = r.Finished
	}
	switch {
	case len(q.States) > 0 && !slices.Contains(q.States, r.State):
		return false
	case q.Finished && at.IsZero():
		return false
	}
	return (q.Since.IsZero() || !at.Before(q.Since)) && (q.Until.IsZero() || at.Before(q.Until))
}

// Jobs yields what became of each job that the query selects, in no particular order, in bounded memory. Each
// job comes once, in the state in which it was read.
func (d *Desk) Jobs(ctx context.Context, q JobQuery) iter.Seq2[JobLine, error] {
	return func(yield func(JobLine, error) bool) {
		books, settled := make([]*ledger.Books, len(d.Gateways)), map[string]settlements{}
		for i, g := range d.Gateways {
			books[i], settled[g.Name] = g.Books, g.Store.Settlements()
		}
		for r, err := range ledger.EachJob(ctx, books, len(q.Fields) > 0) {
			var line JobLine
			if err == nil && !q.means(r) {
				continue
			}
			if err == nil {
				line, err = lineOf(ctx, r, settled[r.Job.Gateway], q.Fields)
			}
			if !yield(line, err) || err != nil {
				return
			}
		}
	}
}

// settlements returns how an operator settled a job.
type settlements func(context.Context, job.Record) (*deadletter.Settled, error)

func lineOf(ctx context.Context, r job.Record, settled settlements, fields JobFields) (l JobLine, err error) {
	l = JobLine{ID: r.Job.ID, Gateway: r.Job.Gateway, Batch: r.Job.Batch, Route: r.Job.Route, Priority: r.Job.Priority, Lane: r.Job.Lane, State: r.State, Status: r.Status, Reference: r.Reference, Error: r.Error,
		Attempts: r.Attempts, Replays: r.Replays, AcceptedAt: when(r.Accepted), FinishedAt: when(r.Finished), ErasedAt: when(r.Erased)}
	switch r.State {
	case "":
		l.State = Forgotten
	case job.Parked:
		l.Reason, l.ParkedAt = r.Reason, when(r.ParkedAt)
	case job.Discarded:
		l.Reason = r.Reason
	}
	if m, ok := job.Booked(r.Money); ok {
		l.Amount, l.Currency = m.Minor, m.Currency
	}
	if calls := r.Calls(); len(calls) > 0 {
		l.CalledAt = when(calls[len(calls)-1].At)
	}
	fields.fill(&l, r)
	l.Settled, err = settled(ctx, r)
	return l, err
}

// Money returns its amount as a sum of one job; empty if unknown.
func (l JobLine) Money() (t job.Totals) {
	if l.Amount != nil {
		t.Amount.Add(job.Money{Minor: l.Amount, Currency: l.Currency})
	}
	return t
}
