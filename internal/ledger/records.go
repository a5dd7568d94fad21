package ledger

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

const (
	// recordsAtOnce is how many records are read in one round trip.
	recordsAtOnce = 250
	// payloadsAtOnce is the same for records with payloads, each of which may be a megabyte.
	payloadsAtOnce = 64
	// scanStep is how many Redis keys one step of a scan examines.
	scanStep = 1000
	// mostSeen is how many jobs a scan remembers. With more, it scans all keys in several passes.
	mostSeen = 4_000_000
)

// Gateway returns the gateway's name.
func (b *Books) Gateway() string { return b.cfg.Gateway }

// Records yields the records of these jobs in order. A job whose record is gone has no state. If payloads is
// set, payloads are read and opened.
func (b *Books) Records(ctx context.Context, ids []string, payloads bool) iter.Seq2[job.Record, error] {
	reader, most := record.Reader{C: b.c, Keys: b.keys, Fields: record.Listed()}, recordsAtOnce
	if payloads {
		reader.Fields, most = slices.Concat(reader.Fields, []string{"digest"}, record.PayloadFields()), payloadsAtOnce
	}
	return func(yield func(job.Record, error) bool) {
		for some := range slices.Chunk(ids, most) {
			found, errs := make([]job.Record, len(some)), make([]error, len(some))
			reader.Read(ctx, some, func(i int, h map[string]string, err error) {
				found[i], errs[i] = b.parse(some[i], h), err
			})
			for i, r := range found {
				if !yield(r, errs[i]) {
					return
				}
			}
		}
	}
}

// parse parses a record, and opens its payload if that was read.
func (b *Books) parse(id string, h map[string]string) job.Record {
	r := record.Parse(b.cfg.Gateway, id, h)
	if r.Unopened == nil {
		r.Job.Payload, r.Sealed, r.Unopened = b.cfg.Box.Reveal(id, r.Job.Payload, h["digest"], r.Reason == job.Unreadable)
	}
	return r
}

// EachJob yields the records of all jobs of many gateways on one Redis, each once, in no particular order. It
// scans all keys in short steps and in bounded memory. It remembers up to 4 million jobs by their hashes, so
// that none comes twice; with more, it scans the keys several times. A job admitted meanwhile may be missing.
// If payloads is set, payloads are read and opened.
func EachJob(ctx context.Context, all []*Books, payloads bool) iter.Seq2[job.Record, error] {
	return eachJob(ctx, all, payloads, mostSeen)
}

func eachJob(ctx context.Context, all []*Books, payloads bool, most int64) iter.Seq2[job.Record, error] {
	return func(yield func(job.Record, error) bool) {
		s := jobScan{books: map[string]*Books{}, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, payloads: payloads, pattern: redisdb.AnyJob}
		for _, b := range all {
			s.books[b.cfg.Gateway] = b
		}
		if len(all) == 1 {
			s.pattern = all[0].keys.JobPrefix() + "*"
		}
		nodes, err := nodesOf(ctx, all)
		for i := 0; i < len(nodes) && err == nil; i++ {
			err = s.node(ctx, nodes[i], most, yield)
		}
		if err != nil && !errors.Is(err, errEnough) {
			yield(job.Record{}, err)
		}
	}
}

// errEnough ends a scan whose consumer wants no more.
var errEnough = errors.New("enough")

// nodesOf returns the servers that hold the gateways' keys, each once.
func nodesOf(ctx context.Context, all []*Books) (nodes []redis.Cmdable, err error) {
	for _, b := range all {
		node, err := redisdb.Node(ctx, b.c, b.keys.JobPrefix())
		if err != nil {
			return nil, err
		}
		if !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}

// jobScan scans the keys of a Redis.
type jobScan struct {
	books    map[string]*Books // by gateway
	pattern  string
	payloads bool
	seed     maphash.Seed
	part     uint64
	parts    uint64
	seen     map[uint64]struct{} // SCAN may return a key twice
}

func (s *jobScan) node(ctx context.Context, node redis.Cmdable, most int64, yield func(job.Record, error) bool) error {
	keys, err := node.DBSize(ctx).Result()
	if err != nil {
		return err
	}
	s.parts = uint64(keys/most) + 1
	for s.part = 0; s.part < s.parts; s.part++ {
		clear(s.seen)
		if err := s.keys(ctx, node, yield); err != nil {
			return err
		}
	}
	return nil
}

// keys scans all keys once.
func (s *jobScan) keys(ctx context.Context, node redis.Cmdable, yield func(job.Record, error) bool) error {
	for cursor := uint64(0); ; {
		var keys []string
		var err error
		if keys, cursor, err = node.Scan(ctx, cursor, s.pattern, scanStep).Result(); err != nil {
			return err
		}
		byGateway := map[string][]string{}
		for _, key := range keys {
			if gateway, id, ok := redisdb.JobOf(key); ok && s.books[gateway] != nil && s.first(key) {
				byGateway[gateway] = append(byGateway[gateway], id)
			}
		}
		for gateway, ids := range byGateway {
			if err := s.read(ctx, s.books[gateway], ids, yield); err != nil {
				return err
			}
		}
		if cursor == 0 {
			return nil
		}
	}
}

// first reports whether a key belongs to the current pass and was not seen before.
func (s *jobScan) first(key string) bool {
	hash := maphash.String(s.seed, key)
	if _, seen := s.seen[hash]; seen || hash%s.parts != s.part {
		return false
	}
	s.seen[hash] = struct{}{}
	return true
}

func (s *jobScan) read(ctx context.Context, b *Books, ids []string, yield func(job.Record, error) bool) error {
	for r, err := range b.Records(ctx, ids, s.payloads) {
		switch {
		case redisdb.DamagedKeyOf(err, b.keys.Job(r.Job.ID)): // it must not hide others
			r.State, r.Reason, r.Error = job.Parked, job.Unreadable, err.Error()
		case err != nil:
			return err
		case r.State == "": // deleted meanwhile
			continue
		}
		if !yield(r, nil) {
			return errEnough
		}
	}
	return nil
}

// PrefixSearch searches jobs by the beginning of their ids. It scans the keys of Redis, because there is no
// index ordered by id.
type PrefixSearch struct {
	Prefix string
	After  string // where the previous search stopped; empty: the beginning
	Jobs   int    // stop after finding this many
	Keys   int64  // or after examining about this many Redis keys
	// Within is how long the search may take; 0 means any time.
	Within time.Duration
	// Keep selects jobs by their record. Nil selects all, and no record is read. With Payloads, payloads are
	// read and opened, too.
	Keep     func(job.Record) bool
	Payloads bool
}

// PrefixFound is the result of a PrefixSearch.
type PrefixFound struct {
	IDs  map[string][]string // by gateway; jobs admitted meanwhile may be missing, and some may appear twice or again
	Keys int64               // about how many keys were examined
	Next string              // the next After; empty if all keys were scanned
}

// scanAt is a position in the scan of several nodes.
type scanAt struct {
	node   int
	cursor uint64
}

func (at scanAt) String() string { return fmt.Sprintf("%d-%d", at.node, at.cursor) }

// FindPrefix searches many gateways on one Redis. An error with code usage means that After is invalid.
func FindPrefix(ctx context.Context, all []*Books, q PrefixSearch) (PrefixFound, error) {
	found, at := PrefixFound{IDs: map[string][]string{}}, scanAt{}
	if q.After != "" {
		if _, err := fmt.Sscanf(q.After, "%d-%d", &at.node, &at.cursor); err != nil || at.node < 0 || at.String() != q.After {
			return found, &job.Error{Code: job.CodeUsage, Message: "there is no such place in a search", Hint: "begin from the first page"}
		}
	}
	nodes, err := nodesOf(ctx, all)
	known := map[string]*Books{}
	for _, b := range all {
		known[b.cfg.Gateway] = b
	}
	seen, jobs, begun := map[string]bool{}, 0, time.Now()
	for err == nil && at.node < len(nodes) {
		late := q.Within > 0 && found.Keys > 0 && time.Since(begun) >= q.Within
		if jobs >= q.Jobs || found.Keys >= q.Keys || late {
			found.Next = at.String()
			break
		}
		var keys []string
		if keys, at.cursor, err = scanPrefix(ctx, nodes[at.node], at.cursor, q.Prefix); err != nil {
			break
		}
		found.Keys += scanStep
		some := map[string][]string{}
		for _, key := range keys {
			gateway, id, ok := redisdb.JobOf(key)
			if ok && known[gateway] != nil && strings.HasPrefix(id, q.Prefix) && !seen[key] {
				seen[key] = true
				some[gateway] = append(some[gateway], id)
			}
		}
		for gateway, ids := range some {
			if ids, err = q.kept(ctx, known[gateway], ids); err != nil {
				return found, err
			}
			found.IDs[gateway] = append(found.IDs[gateway], ids...)
			jobs += len(ids)
		}
		if at.cursor == 0 {
			at.node++
		}
	}
	return found, err
}

// kept returns the ids that Keep selects.
func (q PrefixSearch) kept(ctx context.Context, b *Books, ids []string) (kept []string, err error) {
	if q.Keep == nil {
		return ids, nil
	}
	for r, err := range b.Records(ctx, ids, q.Payloads) {
		if err != nil {
			return nil, fmt.Errorf("read the jobs of %s: %w", b.cfg.Gateway, err)
		}
		if q.Keep(r) {
			kept = append(kept, r.Job.ID)
		}
	}
	return kept, nil
}

var literal = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

func scanPrefix(ctx context.Context, node redis.Cmdable, cursor uint64, prefix string) ([]string, uint64, error) {
	keys, next, err := node.Scan(ctx, cursor, redisdb.AnyJob[:len(redisdb.AnyJob)-1]+literal.Replace(prefix)+"*", scanStep).Result()
	if err != nil {
		return nil, 0, fmt.Errorf("search the keys of Redis: %w", err)
	}
	return keys, next, nil
}
