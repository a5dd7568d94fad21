package ledger

import (
	"context"
	"errors"
	"hash/maphash"
	"iter"
	"slices"

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
