// Package deadletter is steps 7 and 8 of 8: the store of parked jobs, and their way back. Nothing in it expires or is
// trimmed. A parked job's record holds the whole job; a sorted set for each reason holds the order of parking.
package deadletter

import (
	"context"
	"crypto/sha256"
	_ "embed" // the scripts are files
	"encoding/hex"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

//go:embed park.lua
var parkLua string

//go:embed unreadable.lua
var unreadableLua string

//go:embed discard.lua
var discardLua string

var (
	parkScript       = redisdb.NewScript(redisdb.NowLua, redisdb.RecordLua, parkLua)
	unreadableScript = redisdb.NewScript(redisdb.NowLua, redisdb.RecordLua, unreadableLua)
	discardScript    = redisdb.NewScript(redisdb.NowLua, redisdb.RecordLua, discardLua)
)

// Store is one gateway's dead letters. Safe for concurrent use.
type Store struct {
	c       redis.UniversalClient
	gateway string
	keys    redisdb.Keys
	// NowMicros replaces Redis's clock, in microseconds. For tests; nil means Redis's own.
	NowMicros func() int64
}

// New returns the store of a gateway.
func New(c redis.UniversalClient, gateway string) *Store {
	return &Store{c: c, gateway: gateway, keys: redisdb.NewKeys(gateway)}
}

func (s *Store) now() int64 {
	if s.NowMicros == nil {
		return 0
	}
	return s.NowMicros()
}

// Park ends an attempt in the store. Doing it twice is the same as once; nothing happens if the record has moved on.
func (s *Store) Park(ctx context.Context, a job.Attempt, e job.Ending, reason job.Reason) error {
	k := s.keys
	keys := []string{k.Job(a.Job.ID), k.Open(), k.Rate(), k.Counters(), k.Parked(string(reason))}
	return parkScript.Run(ctx, s.c, keys, s.now(), a.Job.ID, a.Generation, a.Owner, flag(e.Spent), e.Line(), e.Status,
		string(reason), e.Error, flag(e.Unsure)).Err()
}

// ParkUnreadable parks something in the queue that is not a job, as it is. An id that no job could have gets one of
// its own, made from its digest.
func (s *Store) ParkUnreadable(ctx context.Context, id string, content []byte, why string) error {
	sum := sha256.Sum256(append([]byte(id), content...))
	digest := hex.EncodeToString(sum[:8])
	if job.CheckID(id) != nil {
		id = "unreadable-" + digest
	}
	keys := []string{s.keys.Job(id), s.keys.Counters(), s.keys.Parked(string(job.Unreadable))}
	return unreadableScript.Run(ctx, s.c, keys, s.now(), id, content, digest, why).Err()
}

// discardChunk is how many jobs one script discards.
const discardChunk = 200

// Discard takes parked jobs out for good, keeping their records for the dedupe window. It returns how many it took;
// jobs that are not parked as given any more are left alone.
func (s *Store) Discard(ctx context.Context, jobs []job.Return, dedupe time.Duration) (int, error) {
	total := 0
	for len(jobs) > 0 {
		chunk := jobs[:min(discardChunk, len(jobs))]
		jobs = jobs[len(chunk):]
		keys, args := []string{s.keys.Counters()}, []any{s.now(), dedupe.Milliseconds()}
		for _, r := range chunk {
			keys = append(keys, s.keys.Job(r.ID), s.keys.Parked(string(r.Reason)))
			args = append(args, r.ID, r.Generation, string(r.Reason))
		}
		answers, err := discardScript.Run(ctx, s.c, keys, args...).Int64Slice()
		if err != nil {
			return total, err
		}
		for _, a := range answers {
			total += int(a)
		}
	}
	return total, nil
}

// Counts returns how many jobs are parked for each reason; only reasons with jobs.
func (s *Store) Counts(ctx context.Context) (map[job.Reason]int64, error) {
	cmds := make(map[job.Reason]*redis.IntCmd)
	if _, err := s.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, r := range job.Reasons() {
			cmds[r] = p.ZCard(ctx, s.keys.Parked(string(r)))
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("count the parked jobs of %s: %w", s.gateway, err)
	}
	counts := make(map[job.Reason]int64)
	for r, cmd := range cmds {
		if cmd.Val() > 0 {
			counts[r] = cmd.Val()
		}
	}
	return counts, nil
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
