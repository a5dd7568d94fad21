package deadletter

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"

	"spillway/internal/job"
)

// Exchange is what a replacement of payloads put in the place of what: names and sums, never a payload.
type Exchange struct {
	Amount   job.Amounts `json:"amount_before"`         // the jobs' money until then
	NoAmount int64       `json:"without_amount_before"` // those of them whose amount could not be read
	Changes  []Change    `json:"changes"`               // the first of them
	Digest   string      `json:"digest"`                // SHA-256 over a line for each of them: "ID BEFORE AFTER\n"

	sum hash.Hash
}

// Change is one job's payload before and after, by its digest as the record has it.
type Change struct {
	ID     string `json:"id"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// mostChanges is how many jobs an entry of the trail names; the digest is over all.
const mostChanges = 100

// NewExchange returns one of no job.
func NewExchange() *Exchange {
	return &Exchange{Changes: []Change{}, sum: sha256.New()}
}

// Add counts one job; money says that the gateway's jobs have some.
func (e *Exchange) Add(id string, before, after Version, money bool) {
	fmt.Fprintf(e.sum, "%s %s %s\n", id, before.Digest, after.Digest) // a hash never fails
	e.Digest = hex.EncodeToString(e.sum.Sum(nil))
	if len(e.Changes) < mostChanges {
		e.Changes = append(e.Changes, Change{id, before.Digest, after.Digest})
	}
	if !money {
		return
	}
	if m, ok := job.Booked(before.Money); ok {
		e.Amount.Add(m)
	} else {
		e.NoAmount++
	}
}
