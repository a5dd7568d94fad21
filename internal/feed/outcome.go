package feed

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
)

// BatchDone is the state in an outcome of a batch: all of its jobs accepted at the gateway so far are done or
// discarded. If more jobs of the batch come, it is written again later.
const BatchDone = "batch_done"

// Outcome is one line of the feed. It never contains a payload.
type Outcome struct {
	Cursor  string `json:"cursor"`
	Gateway string `json:"gateway"`
	ID      string `json:"id,omitempty"` // empty for BatchDone
	Batch   string `json:"batch"`
	Route   string `json:"route,omitempty"` // empty: the gateway's own request
	Lane    string `json:"lane,omitempty"`  // empty: none
	State   string `json:"state"`           // done, parked, discarded or BatchDone
	// Reason is why it is parked; nil if it is not.
	Reason *job.Reason `json:"reason"`
	// Status is that of the gateway's last answer; 0 if there was none.
	Status    int    `json:"status"`
	Reference string `json:"reference"` // the gateway's own
	// Amount is in minor units; nil if the record has none.
	Amount   *big.Int `json:"amount"`
	Currency string   `json:"currency"`
	// Attempts is how many calls were made since it was last admitted.
	Attempts int `json:"attempts"`
	// AcceptedAt is when the job was accepted: an id enqueued again after its dedupe window is another job. Nil for
	// BatchDone.
	AcceptedAt *time.Time `json:"accepted_at,omitempty"`
	At         time.Time  `json:"at"`
}

// errEntry returns the error for an entry that told.lua has not written.
func errEntry(id string) error {
	return fmt.Errorf("the entry %s of the outcome feed can't be read: something else has written into it, or another version of Spillway is at work on this Redis", id)
}

// entry parses a stream entry written by told.lua: its outcomes, and the number of the first of them.
func entry(gateway string, m redis.XMessage) (all []Outcome, first int64, err error) {
	text, _ := m.Values["told"].(string)
	last, wrong := ParseCursor(m.ID)
	head, text, ok := strings.Cut(text, ";")
	var count int64
	if _, scanned := fmt.Sscanf(head, "%d %d", &first, &count); !ok || wrong != nil || scanned != nil || count < 1 {
		return nil, 0, errEntry(m.ID)
	}
	for i := range count {
		var o Outcome
		if o, text, err = outcome(text, last.Time-(count-1)+i); err != nil {
			return nil, 0, errEntry(m.ID)
		}
		o.Gateway, o.Cursor = gateway, Cursor{last.Epoch, last.Time - (count - 1) + i}.String()
		all = append(all, o)
	}
	return all, first, nil
}

// outcome parses the first outcome of a text, and returns the rest.
func outcome(text string, at int64) (o Outcome, rest string, err error) {
	head, rest, _ := strings.Cut(text, ":")
	fields := strings.Split(head, " ")
	if len(fields) < 8 {
		return o, "", strconv.ErrSyntax
	}
	numbers := make([]int64, len(fields)) // the first field is the state
	for i, field := range fields[1:] {
		if numbers[i+1], err = strconv.ParseInt(field, 10, 64); err != nil {
			return o, "", err
		}
	}
	texts := make([]string, 0, 6)
	for _, size := range numbers[4:] {
		if size < 0 || size > int64(len(rest)) {
			return o, "", strconv.ErrRange
		}
		texts, rest = append(texts, rest[:size]), rest[size:]
	}
	o.State, o.Status, o.Attempts, o.At = fields[0], int(numbers[1]), int(numbers[2]), record.Moment(at)
	o.ID, o.Batch, o.Reference = texts[0], texts[1], texts[2]
	if len(texts) > 4 {
		o.Route = texts[4]
	}
	if len(texts) > 5 {
		o.Lane = texts[5]
	}
	if state, reason, parked := strings.Cut(o.State, "/"); parked {
		o.State, o.Reason = state, (*job.Reason)(&reason)
	}
	if money, ok := job.Booked(texts[3]); ok {
		o.Amount, o.Currency = money.Minor, money.Currency
	}
	if o.State != BatchDone {
		accepted := record.Moment(at - numbers[3])
		o.AcceptedAt = &accepted
	}
	return o, rest, nil
}
