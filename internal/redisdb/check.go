package redisdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// Severity says what a Finding means for starting.
type Severity string

// The severities.
const (
	Refuse Severity = "refuse" // jobs would be lost: don't start
	Warn   Severity = "warn"   // start, with a warning
	Note   Severity = "note"   // worth knowing
)

// Finding is a property of Redis that an operator should know.
type Finding struct {
	Severity Severity
	Message  string // what is wrong
	Hint     string // what to do
}

// Check checks whether Redis can keep jobs: its version, that it evicts nothing, that data survives a restart, and
// whether a failover loses data. In a cluster it checks every primary. An error means that Redis could not be asked.
func (db *DB) Check(ctx context.Context) ([]Finding, error) {
	if db.Embedded {
		return []Finding{{Note, "the embedded Redis keeps everything in memory and is gone with this process",
			"use a Redis of its own for jobs that must not be lost"}}, nil
	}
	var mu sync.Mutex
	var all []Finding
	err := db.each(ctx, func(ctx context.Context, node redis.UniversalClient) error {
		found, err := db.checkNode(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		all = merge(all, found)
		return err
	})
	return all, err
}

func merge(all, found []Finding) []Finding {
	known := map[Finding]bool{}
	for _, f := range all {
		known[f] = true
	}
	for _, f := range found {
		if !known[f] {
			all = append(all, f)
		}
	}
	return all
}

func (db *DB) checkNode(ctx context.Context, node redis.UniversalClient) ([]Finding, error) {
	h, err := db.ask(ctx, node)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, subject := range []Subject{OfVersion, OfEviction, OfRole, OfReplicas, OfDisk} {
		found = append(found, h.Findings[subject]...)
	}
	return found, nil
}

func fields(info string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(info) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[k] = v
		}
	}
	return out
}

func checkVersion(version string) []Finding {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, errA := strconv.Atoi(major)
	b, errB := strconv.Atoi(minor)
	if errA != nil || errB != nil {
		return []Finding{{Warn, fmt.Sprintf("Redis does not say its version (it says %.40q)", version), "make sure that it can do what Redis 6.2 can"}}
	}
	if a < 6 || a == 6 && b < 2 {
		return []Finding{{Refuse, fmt.Sprintf("Redis %s is too old", version), "use 6.2 or newer"}}
	}
	return nil
}

func checkEviction(policy string) []Finding {
	switch policy {
	case "noeviction":
		return nil
	case "":
		return []Finding{{Warn, "Redis does not say whether it evicts keys", "make sure that its maxmemory-policy is noeviction"}}
	}
	return []Finding{{Refuse, fmt.Sprintf("Redis may delete jobs when its memory is full (maxmemory-policy %s)", policy),
		"set maxmemory-policy to noeviction: redis-cli CONFIG SET maxmemory-policy noeviction, and in its configuration file"}}
}

func checkRole(role string) []Finding {
	if role != "slave" {
		return nil
	}
	return []Finding{{Warn, "this Redis is a replica and takes no writes", "give the address of the primary, or use redis-sentinel://"}}
}

// checkReplicas checks one primary with has replicas, of which wait must have each job.
func checkReplicas(wait, has int) []Finding {
	switch {
	case wait == 0 && has == 0:
		return nil
	case wait == 0:
		return []Finding{{Note, "a fail-over to a replica may forget the last moments: jobs that were reported, calls that were made (wait_replicas is 0)",
			"set wait_replicas: 1 to have each of them on a replica before it is reported or made"}}
	case has < wait:
		return []Finding{{Warn, fmt.Sprintf("NOTHING IS TAKEN IN OR CALLED: wait_replicas is %d, and Redis has %d replicas now", wait, has),
			"bring the replicas back, or lower wait_replicas"}}
	case has == wait:
		return []Finding{{Note, fmt.Sprintf("if one replica is away, nothing is accepted or called: wait_replicas is %d, and Redis has no more than that", wait),
			"run one replica more than wait_replicas"}}
	}
	return nil
}

func (h Health) checkDisk() []Finding {
	switch {
	case !h.Seen:
		return unseen(h.AOF)
	case h.AOF && h.Fsync == "no":
		return []Finding{{Warn, "Redis leaves it to the system when accepted jobs reach the disk (appendfsync no): a power cut loses half a minute of them",
			"set appendfsync to everysec"}}
	case h.AOF:
		return nil
	case h.Save == "":
		return []Finding{{Warn, "REDIS KEEPS NOTHING ON DISK: a restart loses every job and the memory of what was charged", turnOn}}
	}
	return []Finding{{Warn, "Redis only takes snapshots: a restart loses every job accepted since the last one", turnOn}}
}

const turnOn = "set appendonly to yes: redis-cli CONFIG SET appendonly yes, and in its configuration file"

// forbidden reports whether err is a managed service's refusal: the command is renamed, or the user has no permission.
func forbidden(err error) bool {
	return redis.IsPermissionError(err) || says(err, []string{"ERR unknown command", "ERR unknown subcommand"})
}

func unseen(aof bool) []Finding {
	if aof {
		return []Finding{{Note, "CONFIG is forbidden here, so appendfsync could not be looked up", "make sure that it is everysec or always"}}
	}
	return []Finding{{Warn, "Redis keeps no append-only file, and whether it takes snapshots could not be looked up as CONFIG is forbidden here: " +
		"a restart may lose jobs", "turn persistence on in the service's settings"}}
}

// Product is the name of a server that speaks Redis's protocol.
type Product string

// The known products.
const (
	Redis     Product = "Redis"
	Valkey    Product = "Valkey"
	Redict    Product = "Redict"
	KeyDB     Product = "KeyDB"
	Dragonfly Product = "Dragonfly"
	Kvrocks   Product = "Kvrocks"
)

// tested are the versions on which "make servers" was run, by their first two numbers, newest last. docs/guarantees.md
// has the same list.
var tested = map[Product][]string{Redis: {"7.0", "8.0"}, Valkey: {"8.1"}}

// productOf returns which product INFO describes, and its own version. All products but Redis have one besides
// redis_version, which is the version they are compatible with.
func productOf(info map[string]string) (Product, string) {
	for field, p := range map[string]Product{"valkey_version": Valkey, "redict_version": Redict, "dragonfly_version": Dragonfly, "kvrocks_version": Kvrocks} {
		if v := info[field]; v != "" {
			return p, v
		}
	}
	if info["mvcc_depth"] != "" {
		return KeyDB, info["redis_version"]
	}
	return Redis, info["redis_version"]
}

// checkProduct checks a server by product. Redis and its forks are checked by version.
func checkProduct(p Product, version, asRedis string) []Finding {
	switch p {
	case Dragonfly:
		return []Finding{{Refuse, fmt.Sprintf("Dragonfly %s is not Redis: its scripts may touch no keys but those that are named beforehand, and its Lua is another one", version),
			"use Redis 6.2 or newer, or Valkey"}}
	case KeyDB, Kvrocks:
		return []Finding{{Warn, fmt.Sprintf("%s %s is not among the servers that Spillway is tested with: it may not keep limits and jobs", p, version), "use Redis 6.2 or newer, or Valkey"}}
	}
	if found := checkVersion(asRedis); found != nil {
		return found
	}
	if known := tested[p]; len(known) > 0 && beyond(version, known[len(known)-1]) {
		return []Finding{{Warn, fmt.Sprintf("%s %s is newer than the newest that this version's tests were run on (%s)", p, version, known[len(known)-1]),
			"look into the changelog of a newer Spillway, or run \"make servers\" on it"}}
	}
	return nil
}

// beyond reports whether a version has a higher major number than another.
func beyond(version, known string) bool {
	a, errA := strconv.Atoi(first(version))
	b, errB := strconv.Atoi(first(known))
	return errA == nil && errB == nil && a > b
}

func first(version string) string {
	major, _, _ := strings.Cut(version, ".")
	return major
}

// Called names the server and its version, such as "version 7.0.15" or "Valkey 8.1.1".
func (h Health) Called() string {
	text := string(h.Product) + " " + h.Own
	if h.Product == Redis {
		text = "version " + h.Own
	}
	if slices.ContainsFunc(tested[h.Product], func(known string) bool { return strings.HasPrefix(h.Own+".", known+".") }) {
		return text
	}
	return text + ", which the tests of this version were not run on"
}

// Format is the version of the form in which this program stores a gateway's data in Redis: records, lines, totals, and
// what scripts know. It is increased when a program that knows only the previous version would lose, double or damage
// what this one writes. docs/upgrading.md describes each version. Data without a version is older; Format 1 has the
// same form. Scripts compare it with the data in barred (NowLua).
const Format = "1"

// ErrNewer means that data has a newer format than this program knows.
var ErrNewer = errors.New("data of a newer format")

// newer is the prefix of the error of a script that refuses such data; its format follows.
const newer = "NEWER "

// NewerError returns the error for a gateway whose data has that format.
func NewerError(gateway, format string) error {
	return &Error{Kind: ErrNewer, Message: fmt.Sprintf("Redis's data of gateway %s is of format %s, written by a newer version of Spillway; this one knows formats up to %s, so it does nothing with it", gateway, format, Format),
		Hint: "use the newer version; to go back to this one, restore a backup from before the upgrade (docs/upgrading.md)"}
}

// Newer reports whether this program does not know that format. Empty means older than the first version.
func Newer(format string) bool {
	n, err := strconv.ParseFloat(strings.TrimSpace(format), 64) // parsed as scripts do
	known, _ := strconv.ParseFloat(Format, 64)
	return err == nil && n > known
}

// CheckFormat returns an ErrNewer if the data of one of the gateways has a newer format than this program knows. It
// ignores damaged keys.
func CheckFormat(ctx context.Context, c redis.UniversalClient, gateways []string) error {
	found := make([]*redis.StringCmd, 0, 2*len(gateways))
	_, _ = c.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for _, g := range gateways {
			k := NewKeys(g)
			found = append(found, p.HGet(ctx, k.Alive(), "format"), p.HGet(ctx, k.Counters(), "format"))
		}
		return nil
	})
	for i, cmd := range found {
		format, err := cmd.Result()
		if i%2 == 1 && found[i-1].Val() != "" {
			continue // written by the dispatchers, which takes precedence
		}
		if _, damaged := errors.AsType[*DamagedError](err); err != nil && !errors.Is(err, redis.Nil) && !damaged {
			return err
		}
		if Newer(format) {
			return NewerError(gateways[i/2], format)
		}
	}
	return nil
}

// refused converts the error of a script that refused to touch a gateway's data into one for people, or returns nil.
func refused(gateway string, err error) error {
	switch {
	case says(err, []string{strings.TrimSpace(leaving)}):
		return LeavingError(gateway, strings.TrimPrefix(err.Error(), leaving))
	case says(err, []string{strings.TrimSpace(newer)}):
		return NewerError(gateway, strings.TrimPrefix(err.Error(), newer))
	}
	return nil
}

// leaving is the prefix of the error of a script that refuses a gateway being renamed or forgotten; the action follows.
const leaving = "LEAVING "

// Leaving adds a code and words to the error of a script that refuses a gateway because it is being renamed or
// forgotten, or has data in a newer format (ErrNewer). It returns other errors unchanged.
func Leaving(gateway string, err error) error {
	if words := refused(gateway, err); words != nil {
		return words
	}
	return err
}

// LeavingError returns the error for a gateway being renamed or forgotten; what is "rename OLD NEW" or "forget NAME".
func LeavingError(gateway, what string) error {
	return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("gateway %s is not to be used now: \"dispatcher gateway %s\" was begun and is not over", gateway, what),
		Hint: "wait until it is over; if it was killed, run it again: it goes on"}
}

// Moving returns what is being done to a gateway: "rename OLD NEW", "forget NAME" or "".
func Moving(ctx context.Context, c redis.UniversalClient, gateway string) (string, error) {
	what, err := c.HGet(ctx, NewKeys(gateway).Alive(), "moving").Result()
	if errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "WRONGTYPE") {
		return "", nil
	}
	return what, err
}

// NotLeaving returns an error if a gateway is being renamed or forgotten, or if its data has a newer format than this
// program knows; or nil.
func NotLeaving(ctx context.Context, c redis.UniversalClient, gateway string) error {
	if what, err := Moving(ctx, c, gateway); err != nil || what != "" {
		return cmp.Or(err, LeavingError(gateway, what))
	}
	return CheckFormat(ctx, c, []string{gateway})
}
