package ledger

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

const (
	sweepChunk = 500  // expired attempts read at once
	mostAstray = 5000 // tasks of each kind that one sweep examines: more than a process has in flight
)

// Swept counts what a sweep repaired.
type Swept struct {
	Reclaimed int // attempts whose worker died during the call: the job continues, or is parked
	Requeued  int // tasks pulled by a worker that died before it opened an attempt
	Removed   int // stale tasks of jobs that had moved on
}

// Sweep recovers what dead workers left: attempts past their deadline, tasks whose server shows no sign of
// life, tasks without a lease, and tasks in asynq's own sets. Any process may sweep at any time. With a sweep
// about once a second, as pulses request it, a dead worker's tasks are recovered within 6 to 13 s.
func (b *Books) Sweep(ctx context.Context) (Swept, error) {
	var s Swept
	for b.watch.calmed() {
		n, err := b.reclaim(ctx, &s)
		if err != nil {
			return s, err
		}
		if n < sweepChunk {
			break
		}
	}
	return s, b.settle(ctx, &s)
}

// reclaim handles attempts past their deadline. It returns how many it read, or 0 if none of them led to a
// change.
func (b *Books) reclaim(ctx context.Context, s *Swept) (int, error) {
	overdue, _, err := b.waiting(ctx, b.keys.Open(), dueLast, sweepChunk)
	if err != nil {
		return 0, err
	}
	before := s.Reclaimed
	for _, w := range overdue {
		done, err := b.reclaimOne(ctx, w)
		if err != nil {
			return 0, err
		}
		if done != "none" {
			s.Reclaimed++
		}
	}
	if s.Reclaimed == before {
		return 0, nil // too early, or another process handles them: continuing at once is pointless
	}
	return len(overdue), nil
}

func (b *Books) reclaimOne(ctx context.Context, w waiter) (string, error) {
	taskID, taskKey, msg, err := b.Task(w.id, w.generation+1)
	if err != nil {
		return "", err
	}
	k, old := b.keys, job.TaskID(w.id, w.generation)
	keys := []string{k.Job(w.id), k.Open(), k.Due(), taskKey, k.Task(old), k.Active(), k.Lease(), k.Costs(), k.Counters(),
		k.Parked(string(job.UnknownOutcome)), k.Parked(string(job.Exhausted)), k.Rate(), k.Alive(), k.Retries(), k.Asking()}
	return record.Reclaim.For(b.cfg.Feed).Run(ctx, b.c, keys, b.cfg.NowMicros.Now(), w.id, w.generation, old, taskID, msg, redisdb.Flag(b.cfg.Keys),
		b.cfg.KeyLifetime.Microseconds(), b.cfg.Attempts, b.cfg.Gateway, redisdb.Wake, patience.Microseconds(), b.cfg.Asks.First(false)).Text()
}

func (b *Books) settle(ctx context.Context, s *Swept) error {
	all, now, err := b.astray(ctx)
	if err != nil {
		return err
	}
	dead, err := b.lastPulledFirst(ctx, b.watch.silent(all, now))
	if err != nil {
		return err
	}
	for _, h := range dead {
		id, generation, ok := job.ParseTaskID(h.task)
		if !ok {
			continue // a foreign task: internal/queue finds it, and it is parked as unreadable
		}
		did, err := b.settleOne(ctx, h, id, generation)
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

// lastPulledFirst sorts tasks so that putting each at the head of the queue in turn restores the order in which
// they were pulled. asynq adds pulled tasks to the left of its list.
func (b *Books) lastPulledFirst(ctx context.Context, tasks []held) ([]held, error) {
	if len(tasks) < 2 {
		return tasks, nil
	}
	active, err := b.c.LRange(ctx, b.keys.Active(), 0, -1).Result()
	if err != nil {
		return nil, err
	}
	place := make(map[string]int, len(active))
	for i, task := range active {
		place[task] = i
	}
	slices.SortStableFunc(tasks, func(x, y held) int { return place[x.task] - place[y.task] })
	return tasks, nil
}

func (b *Books) settleOne(ctx context.Context, h held, id string, generation int64) (string, error) {
	newID, newKey, msg, err := b.Task(id, generation+1)
	if err != nil {
		return "", err
	}
	k := b.keys
	keys := append([]string{k.Job(id), k.Task(h.task), k.Active(), k.Lease(), k.Due(), newKey, k.Costs(), k.Retries()}, b.keys.AsynqSets()...)
	did, err := record.Settle.Run(ctx, b.c, keys, b.cfg.NowMicros.Now(), h.task, generation, leaseGrace.Microseconds(), newID, msg,
		b.cfg.Gateway, redisdb.Wake, h.lease).Text()
	if err != nil {
		_, err = b.setAside(ctx, record.Damage{ID: id, Err: err}) // the next sweep removes its task
	}
	return did, err
}

// astray returns the tasks that may no longer be held by any server, and Redis's time in µs.
func (b *Books) astray(ctx context.Context) ([]held, int64, error) {
	keys := append([]string{b.keys.Active(), b.keys.Lease()}, b.keys.AsynqSets()...)
	reply, err := astrayScript.Run(ctx, b.c, keys, b.cfg.NowMicros.Now(), lowLease.Microseconds(), mostAstray).StringSlice()
	if err != nil {
		return nil, 0, err
	}
	if len(reply)%2 != 1 {
		return nil, 0, redisdb.BadReply("astray.lua", reply)
	}
	now, err := strconv.ParseInt(reply[0], 10, 64)
	if err != nil {
		return nil, 0, redisdb.BadReply("astray.lua", reply[0])
	}
	var all []held
	for i := 1; i < len(reply); i += 2 {
		all = append(all, held{reply[i], reply[i+1]})
	}
	return all, now, nil
}

// A live server extends the lease of every task it has pulled to 30 s from now, every 5 s (asynq v0.26.0,
// heartbeat.go), as long as the lease has not expired by its own clock. Leases are in whole seconds of Redis's
// clock (dequeue.lua, renew.lua); those of an older version of the program are in its own, which may be off. So
// a live server's lease may look old, but it keeps changing. A lease watched on Redis's clock that does not
// change for longer than a heartbeat belongs to a dead server, or to none: the server never got the reply to
// its dequeue. If a live server's task is taken for dead, the only cost is a stale task, because the job goes
// back to the queue in a new generation.
const (
	leaseLength = 30 * time.Second
	// lowLease is the rest of a lease after more than one missed heartbeat. One second of it allows for the
	// rounding to whole seconds.
	lowLease = leaseLength - 6500*time.Millisecond
	// silence is how long a low lease must stay unchanged.
	silence = 5500 * time.Millisecond
	// leaseGrace is how long after its end a lease counts as expired without further checks.
	leaseGrace = 5 * time.Second
	// stall is the time between two pulses after which leases look old because nobody could extend them.
	stall = 3 * time.Second
	// patience is how long live servers then have to extend their leases: a failing heartbeat takes 6 s, and
	// the next one begins 5 s later. They have as long to record the outcomes of calls whose attempts are past
	// their deadlines.
	patience = 12 * time.Second
)

// held is a task that may no longer be held by a server. lease is its end in seconds, as Redis returns it;
// empty if it has none.
type held struct{ task, lease string }

// watch remembers low leases, and since when they have not changed. Times are Redis's, in µs.
type watch struct {
	mu   sync.Mutex
	felt int64 // the last pulse
	calm int64 // no lease is judged before this time
	seen map[string]sighting
}

type sighting struct {
	lease string
	since int64
}

// feel records a pulse. A gap means that Redis or this process was stalled, and old leases prove nothing for
// now.
func (w *watch) feel(now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.felt > 0 && now-w.felt > stall.Microseconds() {
		w.calm, w.seen = now+patience.Microseconds(), nil
	}
	w.felt = now
}

// calmed reports whether Redis has answered for long enough, as seen here, for live servers to have recorded
// what they could not before.
func (w *watch) calmed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.felt >= w.calm
}

// silent returns the tasks whose servers have shown no sign of life.
func (w *watch) silent(all []held, now int64) []held {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := make(map[string]sighting, len(all))
	var dead []held
	for _, h := range all {
		s, ok := w.seen[h.task]
		if !ok || s.lease != h.lease {
			s = sighting{h.lease, now}
		}
		seen[h.task] = s
		if h.lease == "" || now >= w.calm && (ended(h.lease, now) || now-s.since >= silence.Microseconds()) {
			dead = append(dead, h)
		}
	}
	w.seen = seen
	return dead
}

// ended reports whether a lease expired so long ago that clock differences can't explain it.
func ended(lease string, now int64) bool {
	end, err := strconv.ParseFloat(lease, 64)
	return err != nil || int64(end*1e6)+leaseGrace.Microseconds() <= now
}
