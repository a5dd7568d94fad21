package audit

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// The places of tasks that are not named after a set.
const (
	pendingPlace = "pending"
	activePlace  = "active"
	turnsPlace   = "parked:flows"
)

// place is where jobs or tasks are. read is the command that reads a range of it.
type place struct{ name, key, read string }

// lines returns the places of queued jobs.
func (g *Gateway) lines(ctx context.Context) ([]place, error) {
	k := g.keys
	all := []place{{"due", k.Due(), "LRANGE"}, {pendingPlace, k.Pending(), "LRANGE"}, {"retries", k.Retries(), "LRANGE"}, {"replays", k.Replays(), "LRANGE"}}
	classes, laned, err := redisdb.ClassesAndLanes(ctx, g.c, k)
	for _, class := range classes {
		all = append(all, place{"first:" + class, k.First(class), "LRANGE"})
	}
	if err != nil || !laned {
		return all, err
	}
	lanes, err := redisdb.LaneLines(ctx, g.c, k) // after those from which tasks come there
	for _, line := range lanes {
		all = append(all, place{"lanes", line, "LRANGE"})
	}
	return all, err
}

// sets returns the places of jobs that are not queued.
func (g *Gateway) sets() []place {
	all := []place{{"scheduled", g.keys.Scheduled(), "ZRANGE"}, {"retrying", g.keys.Retrying(), "ZRANGE"}, {"open", g.keys.Open(), "ZRANGE"}, {"asking", g.keys.Asking(), "ZRANGE"}}
	for _, r := range job.Reasons() {
		all = append(all, place{"parked:" + string(r), g.keys.Parked(string(r)), "ZRANGE"})
	}
	return all
}

// whereabouts are the places of one job. queuedAt is when its task became pending, in µs, by the task; 1 if the
// task does not say, and 0 if the job is not pending or the whole queue was searched.
type whereabouts struct {
	Finding
	generation int64
	queuedAt   int64
}

// places checks jobs by their records; deep searches the whole queue for each queued one. Jobs without a record are
// left out.
func (g *Gateway) places(ctx context.Context, ids []string, deep bool) ([]whereabouts, error) {
	k := g.keys
	keys := append([]string{k.Pending(), k.Active(), k.Scheduled(), k.Retrying(), k.Open(), k.Retries(), k.Replays(), k.Due(), k.Asking()}, g.keys.AllParked()...)
	first, err := patiently(ctx, func(ctx context.Context) ([]string, error) { return redisdb.FirstLines(ctx, g.c, k) })
	if err != nil {
		return nil, fmt.Errorf("audit gateway %s: its classes: %w", g.name, err)
	}
	keys = append(keys, first...)
	args := []any{k.JobPrefix(), k.TaskPrefix(), redisdb.Flag(deep), len(job.Reasons())}
	for _, r := range job.Reasons() {
		args = append(args, string(r))
	}
	for _, id := range ids {
		args = append(args, id)
	}
	reply, err := patiently(ctx, func(ctx context.Context) ([]string, error) {
		return recordsScript.Run(ctx, g.c, keys, args...).StringSlice()
	})
	if err != nil {
		return nil, fmt.Errorf("audit gateway %s: its records: %w", g.name, err)
	}
	if len(reply) != 4*len(ids) {
		return nil, redisdb.BadReply("records.lua", len(reply))
	}
	var found []whereabouts
	for i, id := range ids {
		r := reply[4*i : 4*i+4]
		if r[0] == "" {
			continue
		}
		p := whereabouts{Finding: Finding{ID: id, What: Wrong(r[2]), State: job.State(r[0])}}
		p.generation, _ = strconv.ParseInt(r[1], 10, 64)
		if r[2] != "" {
			p.Where = r[3]
		} else if ns, err := strconv.ParseInt(r[3], 10, 64); err == nil {
			p.queuedAt = max(ns/1000, 1)
		}
		found = append(found, p)
	}
	return found, nil
}

// ghosts returns those of these members of a set that have no record.
func (g *Gateway) ghosts(ctx context.Context, key string, ids []string) ([]string, error) {
	args := []any{g.keys.JobPrefix()}
	for _, id := range ids {
		args = append(args, id)
	}
	lost, err := patiently(ctx, func(ctx context.Context) ([]string, error) {
		return membersScript.Run(ctx, g.c, []string{key}, args...).StringSlice()
	})
	if err != nil {
		return nil, fmt.Errorf("audit gateway %s: its sets: %w", g.name, err)
	}
	return lost, nil
}

// tasks reports for each task in a place what is wrong with it.
func (s *survey) tasks(ctx context.Context, p place, tell func(task string, what Wrong) error) error {
	k := s.g.keys
	for at := 0; ; at += taskStep {
		found, err := patiently(ctx, func(ctx context.Context) ([]string, error) {
			return tasksScript.Run(ctx, s.g.c, []string{p.key}, p.read, at, at+taskStep-1, k.JobPrefix(), k.TaskPrefix(), redisdb.Flag(p.name == activePlace)).StringSlice()
		})
		if err != nil {
			return s.failed("its tasks", err)
		}
		for pair := range slices.Chunk(found, 2) {
			if err := tell(pair[0], Wrong(pair[1])); err != nil {
				return err
			}
		}
		if len(found) < 2*taskStep {
			return nil
		}
		if err := s.step(ctx); err != nil {
			return err
		}
	}
}

// task reports what is wrong with a task. A task without a message is found with its record.
func (s *survey) task(task string, what Wrong, where string) error {
	switch what {
	case OldTask, ForeignTask:
		return s.found(Finding{ID: task, What: what, Where: where})
	case NoRecord:
		id, _, _ := job.ParseTaskID(task)
		return s.found(Finding{ID: id, What: NoRecord, Where: where})
	}
	return nil
}

// asynq checks the tasks that are not in the queue.
func (s *survey) asynq(ctx context.Context) error {
	k := s.g.keys
	active := place{activePlace, k.Active(), "LRANGE"}
	if err := s.tasks(ctx, active, func(task string, what Wrong) error { return s.task(task, what, activePlace) }); err != nil {
		return err
	}
	for _, p := range []place{{"retry", k.AsynqRetry(), "ZRANGE"}, {"archived", k.AsynqArchive(), "ZRANGE"},
		{"scheduled", k.AsynqScheduled(), "ZRANGE"}, {"completed", k.AsynqCompleted(), "ZRANGE"}} {
		if err := s.tasks(ctx, p, func(task string, what Wrong) error { return s.aside(task, what, p.name) }); err != nil {
			return err
		}
	}
	return nil
}

// aside reports a task in one of asynq's own sets, which is a fault for the current task of a job.
func (s *survey) aside(task string, what Wrong, where string) error {
	if what != "" && what != NoMessage {
		return s.task(task, what, "asynq's "+where)
	}
	id, _, _ := job.ParseTaskID(task)
	return s.found(Finding{ID: id, What: AsynqSet, State: job.Queued, Where: where})
}

// members calls tell with the members of a set, some at a time.
func (g *Gateway) members(ctx context.Context, set string, tell func(ids []string) error) error {
	for cursor := uint64(0); ; {
		var next uint64
		pairs, err := patiently(ctx, func(ctx context.Context) (some []string, err error) {
			some, next, err = g.c.ZScan(ctx, set, cursor, "", taskStep).Result()
			return some, err
		})
		if err != nil {
			return fmt.Errorf("audit gateway %s: its set %s: %w", g.name, set, err)
		}
		ids := make([]string, 0, len(pairs)/2)
		for pair := range slices.Chunk(pairs, 2) {
			ids = append(ids, pair[0])
		}
		for some := range slices.Chunk(ids, taskStep) { // a small set comes whole
			if err := tell(some); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// sets checks the members of every set for those without a record.
func (s *survey) sets(ctx context.Context) error {
	for _, set := range s.g.sets() {
		if err := s.g.members(ctx, set.key, func(ids []string) error { return s.ghosts(ctx, set, ids) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *survey) ghosts(ctx context.Context, set place, ids []string) error {
	lost, err := s.g.ghosts(ctx, set.key, ids)
	if err != nil {
		return err
	}
	for _, id := range lost {
		if err := s.found(Finding{ID: id, What: NoRecord, Where: set.name}); err != nil {
			return err
		}
	}
	return s.step(ctx)
}

// reshelved is how many jobs one script checks.
const reshelved = 500

// shelves compares the sets of a batch's parked jobs, which answer queries by batch, with its totals. Both change
// in the same scripts, so a single read of both is exact.
func (c *batchCheck) shelves(ctx context.Context, name string) error {
	if c.told == name {
		return nil // wrong totals are no basis
	}
	wrong, err := c.unequal(ctx, name)
	if err == nil && len(wrong) > 0 && c.repair {
		if err = c.reshelve(ctx, name); err == nil {
			wrong, err = c.unequal(ctx, name)
		}
	}
	if len(wrong) > 0 {
		c.tell(name, strings.Join(wrong, ", "))
	}
	return err
}

// unequal says where the sets and the totals have different numbers of jobs.
func (c *batchCheck) unequal(ctx context.Context, name string) (wrong []string, err error) {
	reasons, k := job.Reasons(), c.g.keys
	books, sets := make([]*redis.StringCmd, len(reasons)), make([]*redis.IntCmd, len(reasons))
	if _, err = c.g.c.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		for i, r := range reasons {
			place := record.Place{State: job.Parked, Reason: r}
			books[i], sets[i] = tx.HGet(ctx, k.Batch(name), "n:"+place.Field()), tx.ZCard(ctx, k.ParkedBatch(string(r), name))
		}
		return nil
	}); err != nil && err != redis.Nil { // the totals have no such place
		return nil, err
	}
	for i, r := range reasons {
		n, err := books[i].Int64()
		if err != nil && err != redis.Nil {
			return nil, err
		}
		if is := sets[i].Val(); n != is {
			wrong = append(wrong, fmt.Sprintf("%d jobs are listed as parked for %s, and its books have %d", is, r, n))
		}
	}
	return wrong, nil
}

// reshelve puts the jobs of a batch into its sets as their records say, and removes what does not belong there.
func (c *batchCheck) reshelve(ctx context.Context, name string) error {
	for from := int64(0); ; from += reshelved {
		ids, err := c.g.c.LRange(ctx, c.g.keys.BatchIDs(name), from, from+reshelved-1).Result()
		if err != nil {
			return err
		}
		if err := c.put(ctx, name, ids); err != nil {
			return err
		}
		if len(ids) < reshelved {
			break
		}
	}
	for _, r := range job.Reasons() {
		put := func(ids []string) error { return c.put(ctx, name, ids) } // some may be no jobs of the batch, or no longer parked
		if err := c.g.members(ctx, c.g.keys.ParkedBatch(string(r), name), put); err != nil {
			return err
		}
	}
	return nil
}

func (c *batchCheck) put(ctx context.Context, name string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	keys, args := make([]string, len(ids)), []any{name, len(job.Reasons())}
	for _, r := range job.Reasons() {
		args = append(args, string(r))
	}
	for i, id := range ids {
		keys[i] = c.g.keys.Job(id)
		args = append(args, id)
	}
	if err := reshelveScript.Run(ctx, c.g.c, keys, args...).Err(); err != nil && err != redis.Nil {
		return err
	}
	return c.step(ctx)
}
