package redisdb

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Health is what one server reports about itself. Sizes are in bytes.
type Health struct {
	// Addr is host:port of the server; empty if the connection does not say.
	Addr string
	// Version is the Redis version, such as 7.0.15; empty if unknown. For another product, it is the Redis version that
	// it is compatible with.
	Version string
	// Product is the product, and Own its own version, which for Redis is Redis's.
	Product Product
	Own     string
	// Policy is its maxmemory-policy; empty if unknown.
	Policy string
	// Used is the memory in use, Most its maxmemory, and Machine the machine's memory. Zero Most means no bound.
	Used, Most, Machine int64
	// Keys is the number of keys in all databases.
	Keys int64
	// AOF says that it has an append-only file, Fsync how it is synced (empty if CONFIG is forbidden), and Save when it
	// takes snapshots. Seen says whether Fsync or Save could be read.
	AOF         bool
	Fsync, Save string
	Seen        bool
	// DiskError says that the last write of the append-only file or of a snapshot failed.
	DiskError bool
	// Replicas is how many are online, MinReplicas how many Redis itself requires for a write.
	Replicas, MinReplicas int
	// Median and Worst are round-trip times of PING.
	Median, Worst time.Duration
	// Skew is how far the server's clock is ahead of the local one; negative if it is behind.
	Skew time.Duration
	// Findings are those of DB.Check, by subject.
	Findings map[Subject][]Finding
}

// Subject is what a finding of Health is about.
type Subject string

// The subjects.
const (
	OfVersion  Subject = "version"
	OfEviction Subject = "eviction"
	OfRole     Subject = "role"
	OfReplicas Subject = "replicas"
	OfDisk     Subject = "persistence"
)

// pings is how many PINGs Health measures.
const pings = 20

// Health asks every primary for its health, the one with the lowest address first. now is the local clock, nil for the
// system's. It writes nothing. An error means that a server could not be asked.
func (db *DB) Health(ctx context.Context, now func() time.Time) ([]Health, error) {
	if now == nil {
		now = time.Now
	}
	var mu sync.Mutex
	var all []Health
	err := db.each(ctx, func(ctx context.Context, node redis.UniversalClient) error {
		h, err := db.health(ctx, node, now)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, h)
		return nil
	})
	slices.SortFunc(all, func(a, b Health) int { return cmp.Compare(a.Addr, b.Addr) })
	return all, err
}

func (db *DB) health(ctx context.Context, node redis.UniversalClient, now func() time.Time) (Health, error) {
	h, err := db.ask(ctx, node)
	if err != nil {
		return h, err
	}
	if err := h.measure(ctx, node); err != nil {
		return h, fmt.Errorf("measuring Redis's answers: %w", err)
	}
	before := now()
	at, err := node.Time(ctx).Result()
	if err != nil {
		return h, fmt.Errorf("asking Redis for its time: %w", err)
	}
	h.Skew = at.Sub(before.Add(now().Sub(before) / 2))
	return h, nil
}

// ask reads a server's report about itself, and checks it.
func (db *DB) ask(ctx context.Context, node redis.UniversalClient) (Health, error) {
	text, err := node.Info(ctx).Result()
	if err != nil {
		return Health{}, fmt.Errorf("asking Redis for INFO: %w", err)
	}
	info := fields(text)
	h := Health{Version: info["redis_version"], Policy: info["maxmemory_policy"], AOF: info["aof_enabled"] == "1",
		Used: number(info["used_memory"]), Most: number(info["maxmemory"]), Machine: number(info["total_system_memory"]),
		DiskError: info["aof_last_write_status"] == "err" || info["rdb_last_bgsave_status"] == "err",
		Replicas:  strings.Count(text, ",state=online,"), Keys: keysIn(info)}
	h.Product, h.Own = productOf(info)
	if c, ok := node.(interface{ Options() *redis.Options }); ok {
		h.Addr = c.Options().Addr
	}
	if err := h.configured(ctx, node); err != nil {
		return h, err
	}
	h.Findings = map[Subject][]Finding{
		OfVersion: checkProduct(h.Product, h.Own, h.Version), OfEviction: checkEviction(h.Policy), OfRole: checkRole(info["role"]),
		OfReplicas: checkReplicas(db.waitReplicas, h.Replicas), OfDisk: h.checkDisk(),
	}
	return h, nil
}

// configured reads what INFO does not contain. A managed Redis may forbid it.
func (h *Health) configured(ctx context.Context, node redis.UniversalClient) error {
	for name, to := range map[string]func(string){
		"appendfsync":           func(v string) { h.Fsync = v },
		"save":                  func(v string) { h.Save = v },
		"min-replicas-to-write": func(v string) { h.MinReplicas = int(number(v)) },
	} {
		conf, err := node.ConfigGet(ctx, name).Result()
		switch {
		case err != nil && forbidden(err):
			return nil
		case err != nil:
			return fmt.Errorf("asking Redis for its configuration: %w", err)
		}
		h.Seen = true
		to(conf[name])
	}
	return nil
}

func (h *Health) measure(ctx context.Context, node redis.UniversalClient) error {
	took := make([]time.Duration, pings)
	for i := range took {
		began := time.Now()
		if err := node.Ping(ctx).Err(); err != nil && !says(err, []string{"MISCONF"}) {
			return err
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	h.Median, h.Worst = took[pings/2], took[pings-1]
	return nil
}

// keysIn adds up the keyspace section, which has "keys=12,expires=3,…" for each database.
func keysIn(info map[string]string) (n int64) {
	for name, v := range info {
		if rest, ok := strings.CutPrefix(v, "keys="); ok && strings.HasPrefix(name, "db") {
			count, _, _ := strings.Cut(rest, ",")
			n += number(count)
		}
	}
	return n
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
