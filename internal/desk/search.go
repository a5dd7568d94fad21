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
	// JobsFound is the default length of a page of a search.
	JobsFound = 100
	// mostScanned is how many Redis keys one page scans: about a second if no payload is read.
	mostScanned = 1_000_000
	// ScanFor is the longest time for one page of an interactive search.
	ScanFor = 4 * time.Second
)

// JobSearch selects jobs: all of its conditions must hold.
type JobSearch struct {
	Prefix string // prefix of the id
	// Reference is the gateway's own of the payment; empty: any.
	Reference string
	Fields    []FieldIs     // required payload values; jobs that are over have no payload
	After     string        // cursor of the previous page; empty: the beginning
	Limit     int           // about how many jobs to find at most; 0: JobsFound
	Within    time.Duration // longest duration; 0: until the page is full or mostScanned keys were scanned
}

// FieldIs is a payload field and its required value: a text, a number as written, true or false.
type FieldIs struct{ Path, Value string }

// ParseField parses "payload.customer=cus_1". name is its name in errors.
func ParseField(text, name string) (FieldIs, error) {
	field, value, found := strings.Cut(text, "=")
	if !found {
		return FieldIs{}, usage("write payload.customer=cus_1", "%s %q has no =", name, text)
	}
	return NewField(field, value, name)
}

// NewField returns the FieldIs for a field and value.
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
	Amount     *big.Int   `json:"amount,omitempty"` // in minor units; nil if unknown
	Currency   string     `json:"currency,omitempty"`
	Reference  string     `json:"reference,omitempty"`
	AcceptedAt *time.Time `json:"accepted_at"`
}

// Money returns its amount as a sum of one job; empty if unknown.
func (h JobHit) Money() (t job.Totals) {
	if h.Amount != nil {
		t.Amount.Add(job.Money{Minor: h.Amount, Currency: h.Currency})
	}
	return t
}

// JobHits is a page of search results.
type JobHits struct {
	Jobs []JobHit `json:"jobs"` // by id
	Keys int64    `json:"keys"` // about how many Redis keys were scanned
	// Unread is how many jobs have a payload that can't be opened, or is damaged: whether they match is
	// unknown.
	Unread int64   `json:"unread"`
	Next   *string `json:"next"` // cursor of the next page; nil if all keys were scanned
}

// Search finds jobs of the desk's gateways by id, reference and payload. Redis has no index of these, so it scans
// the keys. It stops when its page is full or its time has passed, and returns what it has found. A job admitted
// meanwhile may be missing, and a job may be on two pages. An error with code usage says that there are no
// conditions, or that the cursor is invalid.
func (d *Desk) Search(ctx context.Context, q JobSearch) (JobHits, error) {
	if q.Prefix == "" && q.Reference == "" && len(q.Fields) == 0 {
		return JobHits{}, usage("name the beginning of an id, the gateway's reference, or a field of the payload", "nothing is searched for")
	}
	books, hits := make([]*ledger.Books, len(d.Gateways)), JobHits{Jobs: []JobHit{}}
	for i, g := range d.Gateways {
		books[i] = g.Books
	}
	where := ledger.PrefixSearch{Prefix: q.Prefix, After: q.After, Jobs: cmp.Or(q.Limit, JobsFound), Keys: mostScanned, Within: q.Within}
	if q.Reference != "" || len(q.Fields) > 0 {
		where.Payloads = len(q.Fields) > 0
		where.Keep = func(r job.Record) bool {
			if q.Reference != "" && r.Reference != q.Reference {
				return false
			}
			if where.Payloads && r.Unopened != nil {
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
			if r.State != "" { // otherwise it has gone meanwhile
				hits.Jobs = append(hits.Jobs, hitOf(r))
			}
		}
	}
	slices.SortFunc(hits.Jobs, func(a, b JobHit) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.Gateway, b.Gateway))
	})
	return hits, nil
}

// means reports whether the payload matches.
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
