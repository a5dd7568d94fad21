package ledger

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

const (
	// endedStep is how many Redis keys one step of EraseEnded examines, which takes Redis well below a
	// millisecond.
	endedStep = 200
	// endedRetold is how many outcomes one step copies.
	endedRetold = 100
	// toldWithin is the longest time from the end of a job to its outcome in the feed.
	toldWithin = 48 * time.Hour
)

// Ended selects the jobs of a gateway to erase, by how long they have been over.
type Ended struct {
	Books *Books
	After time.Duration // above 0
}

// EraseEnded erases jobs of some gateways on one Redis that have been over long enough, and their references in
// the stored outcomes. It scans all keys once, in short steps. After each step it calls rest with the time that
// the step took; rest should pause, and its error ends the scan. It returns the number of jobs erased by
// gateway, even with an error. If it is killed, the next call continues.
func EraseEnded(ctx context.Context, all []Ended, rest func(context.Context, time.Duration) error) (map[string]int64, error) {
	s := endedScan{of: map[string]Ended{}, pattern: redisdb.AnyJob, rest: rest, erased: map[string]int64{}, begun: map[string]bool{}}
	books := make([]*Books, len(all))
	for i, e := range all {
		books[i], s.of[e.Books.cfg.Gateway] = e.Books, e
	}
	if len(all) == 1 {
		s.pattern = books[0].keys.JobPrefix() + "*"
	}
	nodes, err := nodesOf(ctx, books)
	for i := 0; i < len(nodes) && err == nil; i++ {
		err = s.node(ctx, nodes[i])
	}
	for i := 0; i < len(all) && err == nil; i++ {
		err = s.retell(ctx, books[i])
	}
	return s.erased, err
}

// endedScan scans the keys of a Redis for jobs that have been over long enough.
type endedScan struct {
	of      map[string]Ended // by gateway
	pattern string
	rest    func(context.Context, time.Duration) error
	erased  map[string]int64
	begun   map[string]bool // gateways whose feed has to be rewritten
}

func (s *endedScan) node(ctx context.Context, node redis.Cmdable) error {
	now, err := node.Time(ctx).Result()
	if err != nil {
		return err
	}
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		begun := time.Now()
		var keys []string
		if keys, cursor, err = node.Scan(ctx, cursor, s.pattern, endedStep).Result(); err != nil {
			return err
		}
		ids := map[string][]string{}
		for _, key := range keys {
			if gateway, id, ok := redisdb.JobOf(key); ok && s.of[gateway].After > 0 {
				ids[gateway] = append(ids[gateway], id)
			}
		}
		for gateway, some := range ids {
			if err := s.erase(ctx, s.of[gateway], slices.Compact(slices.Sorted(slices.Values(some))), now); err != nil {
				return err
			}
		}
		if err := s.rest(ctx, time.Since(begun)); err != nil {
			return err
		}
	}
	return nil
}

// erase erases those of the given jobs that have been over long enough.
func (s *endedScan) erase(ctx context.Context, e Ended, ids []string, now time.Time) error {
	var due []job.Record
	var failed error
	record.Reader{C: e.Books.c, Keys: e.Books.keys, Fields: []string{"state", "accepted_at", "finished_at", "erased_at"}}.Read(ctx, ids, func(i int, h map[string]string, err error) {
		switch r := record.Parse(e.Books.cfg.Gateway, ids[i], h); {
		case redisdb.DamagedKeyOf(err, e.Books.keys.Job(ids[i])): // not a job's key
		case err != nil:
			failed = err
		case r.Over() && r.Erased.IsZero() && !r.Finished.After(now.Add(-e.After)):
			due = append(due, r)
		}
	})
	if failed != nil || len(due) == 0 {
		return failed
	}
	last := slices.MaxFunc(due, func(a, b job.Record) int { return a.Finished.Compare(b.Finished) })
	if err := s.begin(ctx, e.Books, last.Finished); err != nil {
		return err
	}
	done, err := e.Books.Erase(ctx, due)
	for _, is := range done {
		if is {
			s.erased[e.Books.cfg.Gateway]++
		}
	}
	return err
}

// begin marks a gateway's feed for rewriting, before jobs are erased whose outcomes it may contain. Any process
// that finds the mark rewrites the feed. No job was over after last.
func (s *endedScan) begin(ctx context.Context, b *Books, last time.Time) error {
	if s.begun[b.cfg.Gateway] {
		return nil
	}
	first, err := b.c.XRangeN(ctx, b.keys.Outcomes(), "-", "+", 1).Result()
	if err != nil || len(first) == 0 {
		return err
	}
	_, at, _ := strings.Cut(first[0].ID, "-") // µs: time of its last outcome
	if told, err := strconv.ParseInt(at, 10, 64); err == nil && told > record.Micros(last.Add(toldWithin)) {
		return nil // all readers have read them
	}
	s.begun[b.cfg.Gateway] = true
	return b.c.HSetNX(ctx, b.keys.Feed(), retelling, "due").Err()
}

// retelling is the field of the feed that is set while its outcomes are rewritten (retell.lua).
const retelling = "retelling"

// retell rewrites the outcomes of a gateway whose jobs were erased, by this process or by one that did not
// finish.
func (s *endedScan) retell(ctx context.Context, b *Books) error {
	marked, err := b.c.HExists(ctx, b.keys.Feed(), retelling).Result()
	if err != nil || !marked {
		return err
	}
	return b.eraseTold(ctx, endedRetold, s.rest)
}
