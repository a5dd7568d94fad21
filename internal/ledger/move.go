package ledger

import (
	"context"
	_ "embed" // the scripts are files
	"strconv"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

//go:embed due.lua
var dueLua string

//go:embed waiting.lua
var waitingLua string

var (
	dueScript     = redisdb.NewScript(redisdb.NowLua, redisdb.RecordLua, dueLua)
	waitingScript = redisdb.NewScript(redisdb.NowLua, waitingLua)
)

// moveChunk is how many due jobs one script moves: few enough not to stall anyone.
const moveChunk = 100

type waiter struct {
	id         string
	generation int64
}

// MoveDue puts jobs whose back-off or time has passed at the head of the queue, ahead of the backlog. It returns how
// many it moved and how long it is until the next one is due (negative: none is known).
func (b *Books) MoveDue(ctx context.Context) (moved int, next time.Duration, err error) {
	next = -1
	for _, set := range []struct {
		key   string
		state job.State
	}{{b.keys.Scheduled(), job.Scheduled}, {b.keys.Retrying(), job.Retrying}} {
		n, in, err := b.moveFrom(ctx, set.key, set.state)
		moved += n
		if err != nil {
			return moved, next, err
		}
		if in >= 0 && (next < 0 || in < next) {
			next = in
		}
	}
	return moved, next, nil
}

func (b *Books) moveFrom(ctx context.Context, set string, state job.State) (int, time.Duration, error) {
	var behind []string
	if state == job.Retrying {
		behind = []string{b.keys.Hold(), b.keys.Pending()}
	}
	due, next, err := b.waiting(ctx, set, true, moveChunk, behind...)
	if err != nil || len(due) == 0 {
		return 0, next, err
	}
	k := b.keys
	keys := []string{set, k.Pending(), k.Costs()}
	args := []any{b.now(), string(state), b.cfg.Gateway, redisdb.Wake}
	for _, w := range due {
		taskID, taskKey, msg, err := b.task(w.id, w.generation+1)
		if err != nil {
			return 0, next, err
		}
		keys = append(keys, k.Job(w.id), taskKey)
		args = append(args, w.id, w.generation, taskID, msg)
	}
	moved, err := dueScript.Run(ctx, b.c, keys, args...).Int()
	if len(due) == moveChunk {
		next = 0 // there may be more
	}
	return moved, next, err
}

// waiting returns members of a sorted set of jobs, with the generation of each: those that are due, the latest first, so that of
// more than one chunk the first due ends up at the very head; or the oldest of all. behind is the hold and the queue: none is
// due while the circuit is open and other jobs wait.
func (b *Books) waiting(ctx context.Context, set string, dueOnly bool, n int, behind ...string) ([]waiter, time.Duration, error) {
	reply, err := waitingScript.Run(ctx, b.c, append([]string{set}, behind...), b.now(), flag(dueOnly), n, b.keys.JobPrefix()).Slice()
	if err != nil {
		return nil, -1, err
	}
	if len(reply) == 0 || len(reply)%2 != 1 {
		return nil, -1, badReply("waiting.lua", reply)
	}
	us, ok := reply[0].(int64)
	if !ok {
		return nil, -1, badReply("waiting.lua", reply[0])
	}
	next := time.Duration(us) * time.Microsecond
	if us < 0 {
		next = -1
	}
	found := make([]waiter, 0, len(reply)/2)
	for i := 1; i < len(reply); i += 2 {
		id, ok1 := reply[i].(string)
		text, ok2 := reply[i+1].(string)
		generation, err := strconv.ParseInt(text, 10, 64)
		if !ok1 || !ok2 || err != nil {
			return nil, -1, badReply("waiting.lua", reply[i])
		}
		found = append(found, waiter{id, generation})
	}
	return found, next, nil
}

// OldestRejected returns up to n jobs that are parked as rejected, oldest first, ready to be readmitted.
func (b *Books) OldestRejected(ctx context.Context, n int) ([]job.Return, error) {
	found, _, err := b.waiting(ctx, b.keys.Parked(string(job.Rejected)), false, n)
	if err != nil {
		return nil, err
	}
	jobs := make([]job.Return, len(found))
	for i, w := range found {
		jobs[i] = job.Return{ID: w.id, Generation: w.generation, Reason: job.Rejected, Key: job.KeepKey}
	}
	return jobs, nil
}
