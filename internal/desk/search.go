package desk

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"spillway/internal/job"
	"spillway/internal/ledger"
)

const (
	// JobsFound is how many jobs a page of a search has, unless something else is asked for.
	JobsFound = 100
	// mostScanned is how many keys of Redis one page looks at: about a second where no payload is read.
	mostScanned = 1_000_000
	// ScanFor is how long one page of a search goes on where somebody waits for it.
	ScanFor = 4 * time.Second
)

// JobSearch says which jobs are searched for: all that it names must hold.
type JobSearch struct {
	Prefix string        // the beginning of the id
	Fields []FieldIs     // what stands in the payload. Jobs that are over have none
	After  string        // the cursor of the page before; empty: from the beginning
	Limit  int           // about how many jobs are found at most; 0: JobsFound
	Within time.Duration // how long it goes on; 0: until so many keys of Redis were looked at that a page is full
}

// FieldIs is a field of a payload and what stands in it: a text, a number as it is written, true or false.
type FieldIs struct{ Path, Value string }

// ParseField reads "payload.customer=cus_1". name is how errors call it.
func ParseField(text, name string) (FieldIs, error) {
	field, value, found := strings.Cut(text, "=")
	if !found {
		return FieldIs{}, usage("write payload.customer=cus_1", "%s %q has no =", name, text)
	}
	return NewField(field, value, name)
}

// NewField returns the field that a person or a program has named.
func NewField(field, value, name string) (FieldIs, error) {
	if CheckJobFields(JobFields{field}, name) != nil {
		return FieldIs{}, usage("write payload.customer, or payload.customer.name for one that is deeper", "%s %q is not a field of a payload", name, field)
	}
	return FieldIs{strings.TrimPrefix(field, payloadPrefix), value}, nil
}

// JobHit is a job that was found.
type JobHit struct {
	ID         string     `json:"id"`
	Gateway    string     `json:"gateway"`
	State      job.State  `json:"state"`
	Reason     job.Reason `json:"reason,omitempty"`
	Batch      string     `json:"batch,omitempty"`
	Amount     *big.Int   `json:"amount,omitempty"` // in minor units; nil where the books have none
	Currency   string     `json:"currency,omitempty"`
	Reference  string     `json:"reference,omitempty"`
	AcceptedAt *time.Time `json:"accepted_at"`
}

// Money is its amount as a sum of one job; empty where the books have none.
func (h JobHit) Money() (t job.Totals) {
	if h.Amount != nil {
		t.Amount.Add(job.Money{Minor: h.Amount, Currency: h.Currency})
	}
	return t
}

// JobHits is a page of the jobs that a search found.
type JobHits struct {
	Jobs []JobHit `json:"jobs"` // by id
	Keys int64    `json:"keys"` // about how many keys of Redis were looked at
	// Unread is how many jobs have a payload that can't be opened, or is damaged: nobody knows whether they are meant.
	Unread int64   `json:"unread"`
	Next   *string `json:"next"` // the cursor of the next page; nil if all keys were looked at
}

// Search finds jobs of the desk's gateways by their ids and payloads. Redis has no order of either, so it goes through the keys, and stops where its page is
// full, or its time is up, with what it has found. A job that comes in meanwhile may be missing, and one may come on two pages. An error with the code usage
// says that nothing is searched for, or that the cursor is none.
func (d *Desk) Search(ctx context.Context, q JobSearch) (JobHits, error) {
	if q.Prefix == "" && len(q.Fields) == 0 {
		return JobHits{}, usage("name the beginning of an id, or a field of the payload", "nothing is searched for")
	}
	books, hits := make([]*ledger.Books, len(d.Gateways)), JobHits{Jobs: []JobHit{}}
	for i, g := range d.Gateways {
		books[i] = g.Books
	}
	where := ledger.PrefixSearch{Prefix: q.Prefix, After: q.After, Jobs: cmp.Or(q.Limit, JobsFound), Keys: mostScanned, Within: q.Within}
	if len(q.Fields) > 0 {
		where.Keep = func(r job.Record) bool {
			if r.Unopened != nil {
				hits.Unread++
			}
			return q.means(r)
		}
	}
	found, err := ledger.FindPrefix(ctx, books, where)
	if err != nil {
		return JobHits{}, err
	}
	if hits.Keys = found.Keys; found.Next != "" {
		hits.Next = &found.Next
	}
	for _, b := range books {
		for r, err := range b.Records(ctx, found.IDs[b.Gateway()], false) {
			if err != nil {
				return JobHits{}, err
			}
			if r.State != "" { // else it has gone meanwhile
				hits.Jobs = append(hits.Jobs, hitOf(r))
			}
		}
	}
	slices.SortFunc(hits.Jobs, func(a, b JobHit) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.Gateway, b.Gateway))
	})
	return hits, nil
}

// means says whether the payload has all that is searched for.
func (q JobSearch) means(r job.Record) bool {
	paths := make([]string, len(q.Fields))
	for i, f := range q.Fields {
		paths[i] = f.Path
	}
	for i, value := range job.FieldsOf(r.Job.Payload, paths) {
		switch value.(type) {
		case string, bool, json.Number:
			if fmt.Sprint(value) != q.Fields[i].Value {
				return false
			}
		default:
			return false
		}
	}
	return true
}

func hitOf(r job.Record) JobHit {
	h := JobHit{ID: r.Job.ID, Gateway: r.Job.Gateway, State: r.State, Reason: r.Reason, Batch: r.Job.Batch, Reference: r.Reference, AcceptedAt: when(r.Accepted)}
	if m, ok := job.Booked(r.Money); ok {
		h.Amount, h.Currency = m.Minor, m.Currency
	}
	return h
}
