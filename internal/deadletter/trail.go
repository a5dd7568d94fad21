package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// Acts yields the acts on the gateway's dead letters, oldest first. It reads page by page, because the trail is
// never trimmed.
func (s *Store) Acts(ctx context.Context) iter.Seq2[Act, error] {
	return func(yield func(Act, error) bool) {
		counts, err := s.counted(ctx)
		if err != nil {
			yield(Act{}, err)
			return
		}
		for from := int64(0); ; from += page {
			lines, err := s.c.LRange(ctx, s.keys.Trail(), from, from+page-1).Result()
			if err != nil {
				yield(Act{}, fmt.Errorf("read what was done to the dead letters of %s: %w", s.gateway, err))
				return
			}
			for i, line := range lines {
				a := s.parseAct(line, from+int64(i))
				counts.correct(&a, from+int64(i))
				if !yield(a, nil) {
					return
				}
			}
			if len(lines) < page {
				return
			}
		}
	}
}

// LastActs returns the last n acts, oldest first.
func (s *Store) LastActs(ctx context.Context, n int64) ([]Act, error) {
	counts, err := s.counted(ctx)
	if err != nil {
		return nil, err
	}
	var length *redis.IntCmd
	var read *redis.StringSliceCmd
	if _, err := s.c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		length, read = p.LLen(ctx, s.keys.Trail()), p.LRange(ctx, s.keys.Trail(), -n, -1)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read what was done to the dead letters of %s: %w", s.gateway, err)
	}
	lines := read.Val()
	acts := make([]Act, len(lines))
	for i, line := range lines {
		place := length.Val() - int64(len(lines)-i)
		acts[i] = s.parseAct(line, place)
		counts.correct(&acts[i], place)
	}
	return acts, nil
}

// counted is how many jobs acts without an end have affected, by their place.
type counted map[string]string

func (s *Store) counted(ctx context.Context) (counted, error) {
	all, err := s.c.HGetAll(ctx, s.keys.Acts()).Result()
	if err != nil {
		return nil, fmt.Errorf("read what was done to the dead letters of %s: %w", s.gateway, err)
	}
	return all, nil
}

// correct gives an act without an end the count kept by the scripts: its own may be a second old.
func (c counted) correct(a *Act, place int64) {
	if n, err := strconv.ParseInt(c[strconv.FormatInt(place, 10)], 10, 64); err == nil && a.Ended == nil {
		a.Jobs = max(a.Jobs, n)
	}
}

// Damaged is the value of What in an entry that can't be parsed.
const Damaged = "damaged"

// parseAct parses one entry of the trail. A damaged entry is returned as such, so that the others stay visible.
func (s *Store) parseAct(line string, place int64) Act {
	var a Act
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		why := fmt.Sprintf("entry %d of %s can't be read: another program has written to Redis; look at it with LINDEX", place+1, s.keys.Trail())
		return Act{What: Damaged, Why: why}
	}
	return a
}

// steered are the first words of What for acts that concern no jobs: a gateway, lane or route was paused or
// resumed, limits were changed, a brake was lifted, or a gateway was renamed.
var steered = []string{"pause", "resume", "limit", "gateway", "lane", "route", "brake"}

// Steers reports whether the act changed the gateway, and not a job.
func (a Act) Steers() bool {
	word, _, _ := strings.Cut(a.What, " ")
	return slices.Contains(steered, word)
}

// Steer does something to the gateway and records it in the audit trail. The entry is written first, so that
// nothing that was done is missing there. An act that fails has no end. a.At is set from Redis's clock.
func (s *Store) Steer(ctx context.Context, a Act, do func(context.Context) error) error {
	now, err := s.c.Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("write down who did what to %s: %w", s.gateway, err)
	}
	a.At = now
	e := s.Entry(a)
	if err := e.Begin(ctx); err != nil {
		return err
	}
	if err := do(ctx); err != nil {
		return err
	}
	return e.End(ctx, Deed{})
}

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
