package desk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/seal"
)

// Repeats says how much of a batch was also in an earlier one.
type Repeats struct {
	Batch   string `json:"batch"`
	Percent int64  `json:"percent"`
	// Of is what was compared: payees_and_amounts, or amounts if the payees of either are unknown.
	Of string `json:"of"`
}

// What two batches are compared by.
const (
	ofPayees  = "payees_and_amounts"
	ofAmounts = "amounts"
)

// Text returns "94 % of its payees and amounts were in 2026-10".
func (r Repeats) Text() string {
	return job.CountText(r.Percent) + " % of its " + strings.ReplaceAll(r.Of, "_", " ") + " were in " + r.Batch
}

const (
	mostCompared = 100_000              // jobs of a batch that are read
	lastBatches  = 3                    // number of earlier batches to compare with
	printBytes   = 8                    // of the digest of a payee and an amount
	printsStay   = 400 * 24 * time.Hour // so that last year's batch of the same month is still known
)

// prints are digests of the payees and amounts of a batch's jobs, printBytes each.
type prints []byte

// seenJobs is what was read of a batch's jobs.
type seenJobs struct {
	jobs    int64
	largest []LargeJob
	amounts map[string]int64 // number of jobs by amount
	prints  prints           // nil: the payees are unknown
}

// look reads the jobs of a batch, up to mostCompared. Jobs without an amount or a record are ignored.
func (part batchPart) look(ctx context.Context, name string, payees bool) (seenJobs, error) {
	s := seenJobs{amounts: map[string]int64{}, largest: []LargeJob{}}
	box := dispatch.Box(part.Gateway.Gateway)
	var large []job.Money
	for r, err := range part.Books.BatchRecords(ctx, name, payees) {
		if err != nil {
			return s, err
		}
		if s.jobs++; s.jobs > mostCompared {
			s.jobs = mostCompared
			break
		}
		m, ok := job.Booked(r.Money)
		if !ok {
			continue
		}
		s.amounts[r.Money]++
		at, _ := slices.BinarySearchFunc(large, m, func(a, b job.Money) int { return b.Minor.Cmp(a.Minor) })
		if at < mostLarge {
			large = slices.Insert(large, at, m)
			s.largest = slices.Insert(s.largest, at, LargeJob{r.Job.ID, m.Minor.String(), m.Currency})
			large, s.largest = large[:min(len(large), mostLarge)], s.largest[:min(len(s.largest), mostLarge)]
		}
		if payees {
			if payee, is := job.FieldsOf(r.Job.Payload, []string{part.Approval.Payee})[0].(string); is && payee != "" {
				s.prints = append(s.prints, printOf(box, part.Name+"\x00"+payee+"\x00"+r.Money)...)
			}
		}
	}
	return s, nil
}

// printOf returns the digest of a payee and an amount. With encryption it depends on a key, so that payees
// can't be guessed from it without the key. Nil: the key is not available.
func printOf(box *seal.Box, text string) []byte {
	plain := sha256.Sum256([]byte(text))
	keyed := box.Digest("a payee and an amount", hex.EncodeToString(plain[:])) // no job has such an id
	if keyed == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(keyed))
	return sum[:printBytes]
}

// repeats compares a batch with the last ones before it; nil if there is none, or nothing matched.
func (part batchPart) repeats(ctx context.Context, name string, seen seenJobs) (most *Repeats, err error) {
	starts, err := ledger.BatchStarts(ctx, []*ledger.Books{part.Books})
	if err != nil || seen.jobs == 0 {
		return nil, err
	}
	before := starts[0]
	slices.SortFunc(before, func(a, b ledger.BatchStart) int { return b.First.Compare(a.First) })
	at := slices.IndexFunc(before, func(b ledger.BatchStart) bool { return b.Name == name })
	before = before[at+1:]
	for _, b := range before[:min(len(before), lastBatches)] {
		r, err := part.repeat(ctx, b.Name, seen)
		if err != nil {
			return nil, err
		}
		if r.Percent > 0 && (most == nil || r.Percent > most.Percent) {
			most = &r
		}
	}
	return most, nil
}

// repeat compares a batch with an earlier one: by payees and amounts if both are known, or else by amounts.
func (part batchPart) repeat(ctx context.Context, name string, seen seenJobs) (Repeats, error) {
	r := Repeats{Batch: name, Of: ofPayees}
	kept, err := part.Books.Prints(ctx, name)
	if err != nil {
		return r, err
	}
	same := int64(0)
	if len(kept) > 0 && len(seen.prints) > 0 {
		had := map[string]int64{}
		for one := range slices.Chunk(kept, printBytes) {
			had[string(one)]++
		}
		for one := range slices.Chunk(seen.prints, printBytes) {
			if had[string(one)] > 0 {
				had[string(one)]--
				same++
			}
		}
	} else {
		r.Of = ofAmounts
		was, err := part.look(ctx, name, false)
		if err != nil {
			return r, err
		}
		for money, n := range seen.amounts {
			same += min(n, was.amounts[money])
		}
	}
	r.Percent = same * 100 / seen.jobs
	return r, nil
}

// keepPrints stores the digests for comparison with later batches.
func (part batchPart) keepPrints(ctx context.Context, name string, p prints) error {
	if len(p) == 0 {
		return nil
	}
	return part.Books.KeepPrints(ctx, name, p, printsStay)
}
