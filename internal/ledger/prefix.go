package ledger

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// PrefixSearch searches jobs by the beginning of their ids. It scans the keys of Redis, because there is no
// index ordered by id.
type PrefixSearch struct {
	Prefix string
	After  string // where the previous search stopped; empty: the beginning
	Jobs   int    // stop after finding this many
	Keys   int64  // or after examining about this many Redis keys
	// Within is how long the search may take; 0 means any time.
	Within time.Duration
	// Keep selects jobs by their record, whose payload is read and opened. Nil selects all, and no record is
	// read.
	Keep func(job.Record) bool
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
	for r, err := range b.Records(ctx, ids, true) {
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
