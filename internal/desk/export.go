package desk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"spillway/internal/dispatch"
	"spillway/internal/job"
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
