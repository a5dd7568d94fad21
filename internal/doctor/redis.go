package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	units "github.com/docker/go-units"
	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

const (
	// jobBytes is the memory that a queued job of some hundred bytes takes in Redis: record, task and place in
	// the queue.
	jobBytes = 1024
	// skewMost is the largest acceptable difference between Redis's clock and the local one.
	skewMost = time.Second
	// stall is a duration of a PING that means that Redis stood still.
	stall = time.Second
	// fewJobs is room that a producer fills in a moment.
	fewJobs = 10_000
)

// servers checks each primary.
func (x *examination) servers(ctx context.Context, db *redisdb.DB) error {
	all, err := db.Health(ctx, x.p.Now)
	if err != nil {
		return err
	}
	for _, h := range all {
		of := "Redis"
		if len(all) > 1 {
			of = "Redis at " + h.Addr
		}
		x.found("redis", of, h.Findings[redisdb.OfVersion], h.Called())
		x.found("role", of, h.Findings[redisdb.OfRole], "takes writes")
		x.persistence(of, h)
		x.found("eviction", of, h.Findings[redisdb.OfEviction], "deletes nothing when its memory is full (maxmemory-policy noeviction)")
		x.memory(of, h)
		x.replicas(of, h)
		x.keyless(of, h)
		x.clock(of, h)
		x.delay(of, h)
	}
	return nil
}

// found turns the findings of one subject into checks; without any, it passes.
func (x *examination) found(name, of string, found []redisdb.Finding, well string) {
	if len(found) == 0 {
		x.add(ok(name, "", "%s: %s", of, well))
	}
	for _, f := range found {
		level := Warn
		if f.Severity == redisdb.Refuse {
			level = Fail
		}
		x.add(Check{Name: name, Level: level, Message: named(of, f.Message), Hint: f.Hint})
	}
}

// named puts a server's name before a message, if there are several servers.
func named(of, message string) string {
	if of == "Redis" {
		return message
	}
	return of + ": " + message
}

func (x *examination) persistence(of string, h redisdb.Health) {
	const name = "persistence"
	if h.DiskError {
		x.add(fail(name, "", "look at Redis's log and at the space on its disk", "%s could not write its disk the last time it tried", of))
	}
	if h.Seen && !h.AOF && h.Save == "" {
		f := h.Findings[redisdb.OfDisk][0]
		x.add(fail(name, "", f.Hint, "%s", named(of, f.Message)))
		return
	}
	x.found(name, of, h.Findings[redisdb.OfDisk], fmt.Sprintf("keeps an append-only file (appendfsync %s)", h.Fsync))
}

// memory says for how many more jobs there is room.
func (x *examination) memory(of string, h redisdb.Health) {
	const name = "memory"
	if h.Most == 0 {
		x.add(warn(name, "", "set maxmemory below the machine's memory: a full Redis then says no, and everything waits, instead of being killed",
			"%s has no maxmemory: it uses %s, and the machine has %s in all", of, size(h.Used), size(h.Machine)))
		return
	}
	left := max(h.Most-h.Used, 0)
	text := fmt.Sprintf("%s uses %s of %s (maxmemory): room for about %d more jobs of some 100 bytes", of, size(h.Used), size(h.Most), left/jobBytes)
	switch {
	case left == 0:
		x.add(fail(name, "", "raise maxmemory: redis-cli CONFIG SET maxmemory 2gb, and in its configuration file", "%s: it takes no jobs, and calls wait", text))
	case left < h.Most/10 || left/jobBytes < fewJobs:
		x.add(warn(name, "", "raise maxmemory, or clear dead letters that nobody needs", "%s", text))
	default:
		x.add(ok(name, "", "%s", text))
	}
}

func (x *examination) replicas(of string, h redisdb.Health) {
	const name = "replicas"
	wait := x.p.Config.WaitReplicas
	switch {
	case h.MinReplicas > h.Replicas:
		x.add(fail(name, "", "bring the replicas back, or lower min-replicas-to-write", "%s takes no writes: min-replicas-to-write is %d, and %d are online",
			of, h.MinReplicas, h.Replicas))
	case h.Replicas < wait:
		f := h.Findings[redisdb.OfReplicas][0]
		x.add(fail(name, "", f.Hint, "%s", named(of, f.Message)))
	case wait == 0 && h.Replicas == 0:
		x.add(ok(name, "", "%s has none: a lost disk loses every job since the last backup", of))
	default:
		x.found(name, of, h.Findings[redisdb.OfReplicas], fmt.Sprintf("%d online, %d have each job before it is reported", h.Replicas, wait))
	}
}

// keyless warns of calls without a key with a server that may lose them.
func (x *examination) keyless(of string, h redisdb.Health) {
	for _, g := range x.p.Gateways {
		if f := dispatch.Keyless([]config.Gateway{g}, h, x.p.Config.WaitReplicas); f != nil {
			x.add(warn("forgotten_calls", g.Name, f.Hint, "%s", named(of, f.Message)))
		}
	}
}

func (x *examination) clock(of string, h redisdb.Health) {
	where := "ahead of"
	if h.Skew < 0 {
		where = "behind"
	}
	off := h.Skew.Abs().Round(time.Millisecond)
	if off <= skewMost {
		x.add(ok("clock", "", "%s is within %s of this machine", of, max(off, time.Millisecond)))
		return
	}
	x.add(warn("clock", "", "run a time service (chrony, systemd-timesyncd) on both machines",
		"%s's clock is %s %s this machine's: at, expires and --since are meant by the one and judged by the other",
		of, off.Round(100*time.Millisecond), where)) // measured over a network: more digits would be meaningless
}

// delay compares the response time with the horizon: slots are requested no further ahead than that.
func (x *examination) delay(of string, h redisdb.Health) {
	const name = "latency"
	text := fmt.Sprintf("%s answers in %s (median), %s (worst of %d)", of, short(h.Median), short(h.Worst), 20)
	horizon, gateway := tightest(x.p.Gateways)
	switch {
	case h.Median > horizon/2:
		x.add(warn(name, "", "run dispatchers nearer to Redis, or give limits with longer windows",
			"%s: too long for the horizon of %s, in which the slots of %s are asked for; its rate will not be reached", text, horizon, gateway))
	case h.Worst > stall:
		x.add(warn(name, "", "look for what makes it stand still: redis-cli SLOWLOG GET, LATENCY DOCTOR; a slow disk, swap, other users",
			"%s: it stood still, and nothing is called meanwhile", text))
	default:
		x.add(ok(name, "", "%s", text))
	}
}

// tightest returns the shortest horizon of the gateways, min(100 ms, W/2), and the gateway that has it.
func tightest(all []config.Gateway) (horizon time.Duration, gateway string) {
	horizon = 100 * time.Millisecond
	for _, g := range all {
		for _, l := range g.Leak.Limits {
			if gateway == "" || l.Window/2 < horizon {
				horizon, gateway = min(horizon, l.Window/2), g.Name
			}
		}
	}
	return horizon, gateway
}

// size formats a number of bytes.
func size(n int64) string { return units.BytesSize(float64(n)) }

// short rounds a time for display.
func short(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

// mostOpened is how many payloads are opened as a sample: each may be a megabyte.
const mostOpened = 20

// sealed checks that the payloads of a few waiting jobs can be opened with the configured keys.
func (x *examination) sealed(ctx context.Context, c redis.UniversalClient, g config.Gateway, records []job.Record) error {
	books := dispatch.Books(c, g)
	looked, shut := 0, map[string]int{}
	for _, r := range records {
		if looked == mostOpened {
			break
		}
		if r.State == "" || r.State == job.Done || r.State == job.Discarded {
			continue
		}
		looked++
		whole, ok, err := books.Find(ctx, r.Job.ID)
		if err != nil {
			return err
		}
		if ok && whole.Unopened != nil {
			shut[whole.Unopened.Error()]++
		}
	}
	for _, why := range slices.Sorted(maps.Keys(shut)) {
		x.add(fail("payloads", g.Name, "give run and enqueue every key that has sealed a job which still waits; docs/configuration.md says what else it may be",
			"of %d jobs looked at, %d can't be called: %s", looked, shut[why], why))
	}
	return nil
}

// unreadLong is how long an outcome may wait for a reader before that is reported.
const unreadLong = 15 * time.Minute

// outcomes checks the readers of the outcome feed, and for a feed that is not configured, to which these
// programs do not write.
func (x *examination) outcomes(ctx context.Context, c redis.UniversalClient, g config.Gateway, v dispatch.Glance) error {
	if v.Outcomes == nil {
		n, err := c.Exists(ctx, redisdb.NewKeys(g.Name).Feed()).Result()
		if n > 0 {
			x.add(warn("outcomes_off", g.Name, fmt.Sprintf("put outcomes back into the file; if nobody reads them any more: redis-cli DEL %s %s", redisdb.NewKeys(g.Name).Feed(), redisdb.NewKeys(g.Name).Outcomes()),
				"Redis has an outcome feed of it, and the file has no outcomes: what programs with this file do is not told"))
		}
		return err
	}
	for _, r := range v.Outcomes.Readers {
		if r.Behind > 0 && v.Now.Sub(r.Since) >= unreadLong {
			x.add(warn("outcomes_unread", g.Name, "start the reader; or take it out of outcomes.readers if it is gone for good",
				"the reader %s is %d outcomes behind, since %s", r.Reader, r.Behind, job.Moment(r.Since)))
		}
		if r.Dropped > 0 {
			x.add(warn("outcomes_dropped", g.Name, "dispatcher export has what became of each job", "%d outcomes were dropped before the reader %s had them", r.Dropped, r.Reader))
		}
	}
	return nil
}
