// Package deadletter is steps 7 and 8 of 8: the store of parked jobs, and their replay. Nothing in it expires
// or is trimmed. A parked job's record contains the whole job; a sorted set for each reason contains the order
// of parking.
package deadletter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/seal"
)

// Store is one gateway's dead letters. It is safe for concurrent use.
type Store struct {
	c       redis.UniversalClient
	gateway string
	keys    redisdb.Keys
	// NowMicros replaces Redis's clock. For tests; nil means Redis's own.
	NowMicros redisdb.Clock
	// Brake says when a batch stops itself.
	Brake job.Brake
	// Feed says that the gateway has an outcome feed: every change that ends or parks a job is written to it.
	Feed bool
	// Asks says when the first look-up is made for a job that may have been charged. The zero value means
	// never: such jobs are parked.
	Asks job.Asks
	// RouteAsks is Asks for each route, by name.
	RouteAsks map[string]job.Asks
	// TaskEnded is called for each task that Park has removed from the queue with its attempt. Nil: not called.
	TaskEnded func(taskID string)
	act       func() string // see For
	box       *seal.Box     // see Sealing
}

// Sealing returns a copy of the store with the box that seals and opens its payloads. Without a box they are
// stored in plain text.
func (s *Store) Sealing(box *seal.Box) *Store {
	one := *s
	one.box = box
	return &one
}

// For returns a copy of the store for one act: what Discard and Resolve take is counted for it in the same
// script, so that the audit trail is right however the act ends.
func (s *Store) For(e *Entry) *Store {
	one := *s
	one.act = e.Place
	return &one
}

// On returns a copy of the store that uses another client of the same Redis.
func (s *Store) On(c redis.UniversalClient) *Store {
	one := *s
	one.c = c
	return &one
}

func (s *Store) actPlace() string {
	if s.act == nil {
		return ""
	}
	return s.act()
}

// New returns the store of a gateway.
func New(c redis.UniversalClient, gateway string) *Store {
	return &Store{c: c, gateway: gateway, keys: redisdb.NewKeys(gateway)}
}

// asksOf returns when the first look-up is made for a job of a route. The empty name is the gateway's own
// request.
func asksOf(route string, own job.Asks, routes map[string]job.Asks) job.Asks {
	if route == "" {
		return own
	}
	return routes[route]
}

// parkAsks is park.lua's answer for a job that is now pending.
const parkAsks = 2

// Park is ParkOrAsk without the result.
func (s *Store) Park(ctx context.Context, a job.Attempt, e job.Ending, reason job.Reason) error {
	_, err := s.ParkOrAsk(ctx, a, e, reason)
	return err
}

// ParkOrAsk ends an attempt by parking the job. If look-ups are configured, a job that may have been charged
// becomes pending instead, and asked is true. It is idempotent, and does nothing if the record has moved on.
func (s *Store) ParkOrAsk(ctx context.Context, a job.Attempt, e job.Ending, reason job.Reason) (asked bool, err error) {
	k := s.keys
	end := k.TaskEnd(job.TaskID(a.Job.ID, a.Generation), time.Now())
	keys := append([]string{k.Job(a.Job.ID), k.Open(), k.Rate(), k.Counters(), k.Parked(string(reason)), k.Hold(), k.Asking()}, end.Keys...)
	accepted, brake := e.Verdict == job.VerdictAccepted, s.Brake.Setting()
	if !e.Called { // the gateway has refused nothing
		brake = ""
	}
	parked, err := record.Park.For(s.Feed).Run(ctx, s.c, keys, s.NowMicros.Now(), a.Job.ID, a.Generation, a.Owner, redisdb.Flag(e.Spent), e.Line(), e.Status,
		string(reason), e.Error, e.Doubt(), redisdb.Flag(e.Alive()), brake, e.Reference, redisdb.Flag(accepted), asksOf(a.Job.Route, s.Asks, s.RouteAsks).First(accepted), end.Task, end.Until).Int()
	if parked > 0 && s.TaskEnded != nil {
		s.TaskEnded(end.Task)
	}
	if err != nil {
		_, err = record.SetAside(ctx, s.c, record.Of{Keys: k, Feed: s.Feed}, record.Damage{ID: a.Job.ID, Err: err, Note: "it was to be parked as " + string(reason) + ": " + e.Error}, s.NowMicros.Now())
	}
	return parked == parkAsks, err
}

// ParkUnreadable parks a foreign task from the queue; its content is sealed like a payload. If no job could
// have its id, or another job has it, the id is replaced by one made from a digest of id and content. (If the
// key has changed between two tries, the second one parks it again, under that id.)
func (s *Store) ParkUnreadable(ctx context.Context, id string, content []byte, why string) error {
	sum := sha256.Sum256(append([]byte(id), content...))
	digest := s.box.Digest("", hex.EncodeToString(sum[:8]))
	own := "unreadable-" + digest
	if job.CheckID(id) != nil {
		id = own
	}
	for {
		stored, err := s.box.Seal(id, content)
		if err != nil {
			return err
		}
		keys := []string{s.keys.Job(id), s.keys.Counters(), s.keys.Parked(string(job.Unreadable))}
		parked, err := record.Unreadable.For(s.Feed).Run(ctx, s.c, keys, s.NowMicros.Now(), id, stored, digest, why).Bool()
		if err != nil || parked || id == own {
			return err
		}
		id = own
	}
}

// Mark returns the time just after the last parking. As Filter.Until it selects everything parked by now, and
// nothing parked later, whatever the clocks do.
func (s *Store) Mark(ctx context.Context) (time.Time, error) {
	us, err := s.c.HGet(ctx, s.keys.Counters(), "stamp").Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return time.Time{}, s.unread(err)
	}
	return time.UnixMicro(us + 1).UTC(), nil
}

// UpToNow makes a filter exclude jobs parked from now on.
func (s *Store) UpToNow(ctx context.Context, f Filter) (Filter, error) {
	mark, err := s.Mark(ctx)
	if err == nil && (f.Until.IsZero() || f.Until.After(mark)) {
		f.Until = mark
	}
	return f, err
}

func (s *Store) unread(err error) error {
	return fmt.Errorf("read the dead letters of %s: %w", s.gateway, err)
}
