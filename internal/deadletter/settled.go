package deadletter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// Settled is how an operator last settled the outcome of a job's calls, by the audit trail.
type Settled struct {
	As  string    `json:"as"` // done or not_done
	At  time.Time `json:"at"` // on Redis's clock
	Who string    `json:"who"`
	Why string    `json:"why"`
}

// Text returns "done at TIME by WHO: WHY".
func (s Settled) Text() string {
	text := s.As + " at " + job.Moment(s.At)
	if s.Who != "" {
		text += " by " + s.Who
	}
	if s.Why != "" {
		text += ": " + s.Why
	}
	return text
}

// Settlements returns a function that returns how an operator settled a job, or nil if nobody did. It reads
// each act of the trail only once, because one act settles many jobs.
func (s *Store) Settlements() func(context.Context, job.Record) (*Settled, error) {
	known := map[string]Act{}
	return func(ctx context.Context, r job.Record) (*Settled, error) {
		if r.Settled.At.IsZero() {
			return nil, nil
		}
		act, read := known[r.Settled.Act]
		if !read {
			var err error
			if act, err = s.actAt(ctx, r.Settled.Act); err != nil {
				return nil, err
			}
			known[r.Settled.Act] = act
		}
		settled := &Settled{As: "not_done", At: r.Settled.At, Who: act.Who, Why: act.Why}
		if r.Settled.Done {
			settled.As = "done"
		}
		return settled, nil
	}
}

// actAt returns the act at a place of the trail, or an empty one.
func (s *Store) actAt(ctx context.Context, place string) (Act, error) {
	n, err := strconv.ParseInt(place, 10, 64)
	if err != nil || n < 0 {
		return Act{}, nil
	}
	line, err := s.c.LIndex(ctx, s.keys.Trail(), n).Result()
	if errors.Is(err, redis.Nil) {
		return Act{}, nil
	}
	if err != nil {
		return Act{}, fmt.Errorf("read who settled a job of %s: %w", s.gateway, err)
	}
	return s.parseAct(line, n), nil
}
