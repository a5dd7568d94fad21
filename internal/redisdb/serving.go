package redisdb

import (
	"context"
	_ "embed" // for the script
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Processes is the dispatchers that serve gateways (hash; fields in serving.lua). It has no hash tag, because it covers
// all gateways.
const Processes = "spillway:processes"

//go:embed serving.lua
var servingLua string

var servingScript = NewScript(NowLua, servingLua)

// SilentKept is how long a process without a sign of life is still listed, if it did not announce its end.
const SilentKept = 6 * time.Hour

// Serving is what a process reports about itself.
type Serving struct {
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`  // by its own clock
	Gateways int       `json:"gateways"` // number served
	// Chosen are the first of them, if it was told to serve only some of its configuration.
	Chosen   []string  `json:"chosen,omitempty"`
	Listen   string    `json:"listen,omitempty"` // address of its HTTP server; empty: none
	Calls    int64     `json:"calls"`            // since it started
	LastCall time.Time `json:"last_call"`        // by its own clock; zero: none so far
	// Round is how long it takes to read all its gateways once, in µs; each gateway gets a sign of life that often.
	// Zero: not measured.
	Round int64 `json:"round_us,omitempty"`
}

// Process is a process that serves gateways, or did until recently.
type Process struct {
	Name string    // HOST.PID
	Seen time.Time // its last sign of life, on Redis's clock
	Serving
}

// Serve records that the process of that name is alive, with its report.
func Serve(ctx context.Context, c redis.UniversalClient, name string, s Serving) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("say what this process is: %w", err)
	}
	return servingScript.Run(ctx, c, []string{Processes}, 0, name, text, SilentKept.Microseconds()).Err()
}

// ServeNoMore records that the process of that name stops.
func ServeNoMore(ctx context.Context, c redis.UniversalClient, name string) error {
	return servingScript.Run(ctx, c, []string{Processes}, 0, name, "", SilentKept.Microseconds()).Err()
}

// WhoServes returns the processes that serve gateways or did until recently, in no particular order, and the time on
// Redis's clock. Unreadable entries are omitted.
func WhoServes(ctx context.Context, c redis.UniversalClient) (all []Process, now time.Time, err error) {
	known, err := processes(ctx, c)
	if err != nil {
		return nil, now, err
	}
	if now, err = c.Time(ctx).Result(); err != nil {
		return nil, now, err
	}
	for _, p := range known {
		if now.Sub(p.Seen) < SilentKept {
			all = append(all, p)
		}
	}
	return all, now.UTC(), nil
}

// SilentAfter is how long a process may be quiet before it counts as silent: each gives a sign of life every five
// seconds.
const SilentAfter = 20 * time.Second

// LongestRound returns the longest Round of the processes that are not silent at now, on Redis's clock. Zero: there is
// none.
func LongestRound(ctx context.Context, c redis.UniversalClient, now time.Time) (longest time.Duration, err error) {
	known, err := processes(ctx, c)
	for _, p := range known {
		if now.Sub(p.Seen) <= SilentAfter {
			longest = max(longest, time.Duration(p.Round)*time.Microsecond)
		}
	}
	return longest, err
}

// processes returns all readable entries.
func processes(ctx context.Context, c redis.UniversalClient) (all []Process, err error) {
	known, err := c.HGetAll(ctx, Processes).Result()
	for name, said := range known {
		at, text, _ := strings.Cut(said, " ")
		us, err := strconv.ParseInt(at, 10, 64)
		p := Process{Name: name, Seen: time.UnixMicro(us).UTC()}
		if err == nil && json.Unmarshal([]byte(text), &p.Serving) == nil {
			all = append(all, p)
		}
	}
	return all, err
}

// Gateways is the register: the names of all gateways that ever had jobs (set). It has no hash tag, because it is used
// to find the gateways of a cluster.
const Gateways = "spillway:gateways"

// AsynqQueues is asynq's own set of queue names. Dispatchers add the gateways that they serve; other users of asynq add
// their queues.
const AsynqQueues = "asynq:queues"

// Register adds a gateway to the register. That must happen before its first job is admitted: without an entry,
// programs that don't have the gateway configured would not find it.
func Register(ctx context.Context, c redis.UniversalClient, gateway string) error {
	return c.SAdd(ctx, Gateways, gateway).Err()
}

// Registered returns the names of all gateways that may have jobs, sorted: those in the register, and those of asynq's
// queues, which older versions used alone.
func Registered(ctx context.Context, c redis.UniversalClient) ([]string, error) {
	var names []string
	for _, set := range []string{Gateways, AsynqQueues} {
		some, err := c.SMembers(ctx, set).Result()
		if err != nil {
			return nil, err
		}
		names = append(names, some...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Unregister removes a gateway from both sets.
func Unregister(ctx context.Context, c redis.UniversalClient, gateway string) error {
	for _, set := range []string{Gateways, AsynqQueues} {
		if err := c.SRem(ctx, set, gateway).Err(); err != nil {
			return err
		}
	}
	return nil
}

// Forgotten is the entries of forgotten gateways: who, when, why and what there was (hash: "NAME µs", JSON). It is
// never trimmed.
const Forgotten = "spillway:forgotten"

// Starts returns the prefixes of the names of all keys of a gateway.
func Starts(gateway string) []string {
	k := NewKeys(gateway)
	return []string{k.own, k.asynq}
}

// EachPrimary calls ask for the single Redis, or for every primary of a cluster.
func EachPrimary(ctx context.Context, c redis.UniversalClient, ask func(context.Context, redis.UniversalClient) error) error {
	return eachPrimary(ctx, c, ask)
}
