package ledger

import (
	"context"
	"strconv"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/seal"
)

// moveChunk is how many due jobs one script moves: few enough not to block Redis for long.
const moveChunk = 100

type waiter struct {
	id         string
	generation int64
}

// MoveDue moves jobs whose back-off or time has passed into the queue, in due order. Jobs that were called
// before go to the tail of the retries. Scheduled jobs go to the tail of the due line, which precedes all other
// jobs never called. A job without attempts left is parked instead (see Config.Exhausted). One whose route or key is still
// missing waits on (see Config.Unrouted and Unopened). MoveDue returns how many jobs it moved or parked, and how long
// until the next is due; negative if none is known.
func (b *Books) MoveDue(ctx context.Context) (moved int, next time.Duration, err error) {
	next = -1
	for _, m := range []move{
		{job.Scheduled, b.keys.Scheduled(), b.keys.Due()},
		{job.Retrying, b.keys.Retrying(), b.keys.Retries()},
	} {
		n, in, err := b.moveFrom(ctx, m)
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

// move moves due jobs from a set into a line of the queue.
type move struct {
	state    job.State
	from, to string
}

func (b *Books) moveFrom(ctx context.Context, m move) (int, time.Duration, error) {
	due, next, err := b.waiting(ctx, m.from, dueFirst, moveChunk)
	if err != nil || len(due) == 0 {
		return 0, next, err
	}
	k := b.keys
	keys := []string{m.from, m.to, k.Costs(), k.Hold(), k.Counters(), k.Parked(string(job.Exhausted)), k.Asking()}
	args := []any{b.cfg.NowMicros.Now(), string(m.state), b.cfg.Gateway, redisdb.Wake, b.cfg.Attempts, redisdb.Flag(b.cfg.Keys), b.cfg.KeyLifetime.Microseconds(), b.cfg.Asks.First(false),
		b.routesHere(), job.Unrouted, job.PostponedFor.Microseconds(), b.cfg.Box.Opens(), seal.Unopened}
	for _, w := range due {
		taskID, taskKey, msg, err := b.Task(w.id, w.generation+1)
		if err != nil {
			return 0, next, err
		}
		keys = append(keys, k.Job(w.id), taskKey)
		args = append(args, w.id, w.generation, taskID, msg)
	}
	reply, err := record.Due.For(b.cfg.Feed).Run(ctx, b.c, keys, args...).Slice()
	if err != nil {
		return 0, next, redisdb.Leaving(b.cfg.Gateway, err)
	}
	moved, ok1 := at[int64](reply, 0)
	unrouted, ok2 := at[int64](reply, 1)
	unopened, ok3 := at[int64](reply, 2)
	if !ok1 || !ok2 || !ok3 {
		return 0, next, redisdb.BadReply("due.lua", reply)
	}
	if unrouted > 0 && b.cfg.Unrouted != nil {
		b.cfg.Unrouted(unrouted)
	}
	if unopened > 0 && b.cfg.Unopened != nil {
		b.cfg.Unopened(unopened)
	}
	const counts = 3
	for i := counts; i < len(reply); i++ {
		if id, is := at[string](reply, i); is && b.cfg.Exhausted != nil {
			b.cfg.Exhausted(id)
		}
	}
	if len(due) == moveChunk {
		next = 0 // there may be more
	}
	return int(moved) + len(reply) - counts, next, nil
}

// routesHere returns the configured routes in the form that due.lua reads.
func (b *Books) routesHere() string {
	if b.cfg.Sent == "" {
		return "" // not the books of a dispatcher
	}
	return " " + b.routeSent
}

// order is the order of the due members of a sorted set of jobs.
type order string

const (
	dueFirst order = "first" // the first due first
	dueLast  order = "last"  // the last due first
)

// waiting returns the due members of a sorted set of jobs, with their generations, and how long until the next
// is due.
func (b *Books) waiting(ctx context.Context, set string, which order, n int) ([]waiter, time.Duration, error) {
	reply, err := waitingScript.Run(ctx, b.c, []string{set}, b.cfg.NowMicros.Now(), string(which), n, b.keys.JobPrefix()).Slice()
	if err != nil {
		return nil, -1, err
	}
	if len(reply) == 0 || len(reply)%2 != 1 {
		return nil, -1, redisdb.BadReply("waiting.lua", reply)
	}
	us, ok := reply[0].(int64)
	if !ok {
		return nil, -1, redisdb.BadReply("waiting.lua", reply[0])
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
			return nil, -1, redisdb.BadReply("waiting.lua", reply[i])
		}
		if generation < 0 {
			if _, err := b.setAside(ctx, record.Damage{ID: id}); err != nil {
				return nil, -1, err
			}
			continue
		}
		found = append(found, waiter{id, generation})
	}
	return found, next, nil
}
