package ledger

import (
	"context"
	_ "embed" // the scripts are files
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

//go:embed reclaim.lua
var reclaimLua string

//go:embed settle.lua
var settleLua string

var (
	reclaimScript = redisdb.NewScript(redisdb.NowLua, redisdb.RecordLua, reclaimLua)
	settleScript  = redisdb.NewScript(redisdb.NowLua, redisdb.RecordLua, settleLua)
)

// leaseGrace is how long past a lease's end a task is left alone: asynq writes leases in whole seconds of the
// worker's own clock, which may be off.
const leaseGrace = 5 * time.Second

// sweepChunk is how many jobs one sweep looks at in each place.
const sweepChunk = 500

// Swept counts what a sweep put right.
type Swept struct {
	Reclaimed int // attempts whose worker died during the call: the job goes on, or is parked
	Requeued  int // tasks pulled by a worker that died before it opened an attempt
	Removed   int // tasks of jobs that had moved on
}

// Sweep takes up what dead workers left: attempts past their deadline, tasks without a living lease, and tasks that
// asynq's recoverer moved to its retry set. Every process may sweep at any time.
func (b *Books) Sweep(ctx context.Context) (Swept, error) {
	var s Swept
	if err := b.reclaim(ctx, &s); err != nil {
		return s, err
	}
	return s, b.settle(ctx, &s)
}

func (b *Books) reclaim(ctx context.Context, s *Swept) error {
	overdue, _, err := b.waiting(ctx, b.keys.Open(), true, sweepChunk)
	if err != nil {
		return err
	}
	for _, w := range overdue {
		done, err := b.reclaimOne(ctx, w)
		if err != nil {
			return err
		}
		if done != "none" {
			s.Reclaimed++
		}
	}
	return nil
}

func (b *Books) reclaimOne(ctx context.Context, w waiter) (string, error) {
	taskID, taskKey, msg, err := b.task(w.id, w.generation+1)
	if err != nil {
		return "", err
	}
	k, old := b.keys, job.TaskID(w.id, w.generation)
	keys := []string{k.Job(w.id), k.Open(), k.Pending(), taskKey, k.Task(old), k.Active(), k.Lease(), k.Costs(), k.Counters(),
		k.Parked(string(job.UnknownOutcome)), k.Parked(string(job.Exhausted)), k.Rate()}
	return reclaimScript.Run(ctx, b.c, keys, b.now(), w.id, w.generation, old, taskID, msg, flag(b.cfg.Keys),
		b.cfg.KeyLifetime.Microseconds(), b.cfg.Attempts, b.cfg.Gateway, redisdb.Wake).Text()
}

func (b *Books) settle(ctx context.Context, s *Swept) error {
	tasks, err := b.unheld(ctx)
	if err != nil {
		return err
	}
	for _, taskID := range tasks {
		id, generation, ok := job.ParseTaskID(taskID)
		if !ok {
			continue // not one of ours: internal/queue finds it, and it is parked as unreadable
		}
		did, err := b.settleOne(ctx, taskID, id, generation)
		if err != nil {
			return err
		}
		switch did {
		case "queued":
			s.Requeued++
		case "removed":
			s.Removed++
		}
	}
	return nil
}

func (b *Books) settleOne(ctx context.Context, taskID, id string, generation int64) (string, error) {
	newID, newKey, msg, err := b.task(id, generation+1)
	if err != nil {
		return "", err
	}
	k := b.keys
	keys := []string{k.Job(id), k.Task(taskID), k.Active(), k.Lease(), k.Pending(), k.AsynqRetry(), newKey, k.Costs()}
	return settleScript.Run(ctx, b.c, keys, b.now(), taskID, generation, leaseGrace.Microseconds(), newID, msg,
		b.cfg.Gateway, redisdb.Wake).Text()
}

// unheld returns the tasks that no living worker seems to hold; settle.lua decides each for itself.
func (b *Books) unheld(ctx context.Context) ([]string, error) {
	var active, expired, retry *redis.StringSliceCmd
	var leases *redis.ZSliceCmd
	nowSec := strconv.FormatInt(time.Now().Unix(), 10)
	if _, err := b.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		active = p.LRange(ctx, b.keys.Active(), 0, -1)
		leases = p.ZRangeWithScores(ctx, b.keys.Lease(), 0, -1)
		expired = p.ZRangeByScore(ctx, b.keys.Lease(), &redis.ZRangeBy{Min: "-inf", Max: nowSec, Count: sweepChunk})
		retry = p.ZRangeByScore(ctx, b.keys.AsynqRetry(), &redis.ZRangeBy{Min: "-inf", Max: "+inf", Count: sweepChunk})
		return nil
	}); err != nil {
		return nil, err
	}
	held := make(map[string]bool, len(leases.Val()))
	for _, z := range leases.Val() {
		held[z.Member.(string)] = true
	}
	found := append(expired.Val(), retry.Val()...)
	for _, taskID := range active.Val() {
		if !held[taskID] {
			found = append(found, taskID)
		}
	}
	return found, nil
}
