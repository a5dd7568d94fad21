package deadletter

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"

	"spillway/internal/job"
)

// Exchange summarizes a replacement of payloads: ids, digests and sums, never a payload.
type Exchange struct {
	Amount   job.Amounts `json:"amount_before"`         // the jobs' money before
	NoAmount int64       `json:"without_amount_before"` // jobs whose amount could not be read before
	Changes  []Change    `json:"changes"`               // the first of them
	Digest   string      `json:"digest"`                // SHA-256 over a line for each: "ID BEFORE AFTER\n"

	sum hash.Hash
}

// Change is one job's payload before and after, by the digest stored in the record.
type Change struct {
	ID     string `json:"id"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// mostChanges is how many jobs an audit entry lists; the digest covers all.
const mostChanges = 100

// NewExchange returns an empty Exchange.
func NewExchange() *Exchange {
	return &Exchange{Changes: []Change{}, sum: sha256.New()}
}

// Add adds one job. money says that the gateway's jobs have money.
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
