package audit

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Each step of a survey is short, because a script blocks Redis.
const (
	scanStep   = 500 // keys
	recordStep = 100 // records
	taskStep   = 200 // tasks, or members of a set
	// nameStep is how many entries of a list are read at once if they are only noted. Each read makes Redis walk
	// the list from its nearer end.
	nameStep = 10_000
	// awayMost is how long a read is repeated while Redis does not answer.
	awayMost = 30 * time.Second
)

// survey reads everything that a gateway has in Redis, while others use it, in bounded memory, and reports what
// looks wrong:
//
//	the queue → index of its tasks ─┐
//	                                ├─→ suspects → checked again, each by one atomic script
//	records, 100 at a time ─────────┘
//	members of the sets → those without a record
//	tasks in active and in asynq's own sets
//
// A record and the sets that may contain it are read in one script, so what looks wrong is wrong. Only the queue is
// read before the records: a queued job is a suspect if its task is not in the index and says that it was enqueued
// before the survey.
type survey struct {
	g     *Gateway
	found func(Finding) error
	steps
	seen    func(state job.State) // called for each record; nil: not called
	indexed int64                 // tasks of the queue remembered at once; zero: mostIndexed
	since   int64                 // its start, on Redis's clock in µs
	papers  int64                 // stale tasks in the queue
}

// steps are short reads from Redis, one after the other.
type steps struct {
	rest    func(ctx context.Context, worked time.Duration) error // pause between steps; nil: none
	stepped time.Time
}

func (s *survey) run(ctx context.Context) error {
	look, err := patiently(ctx, s.g.books.Look)
	if err != nil {
		return err
	}
	s.since, s.stepped = look.Now.UnixMicro(), time.Now()
	x := newIndex(look.Queued, s.indexed)
	for part := range x.parts {
		if err := s.queue(ctx, x, part); err != nil {
			return err
		}
		if err := s.records(ctx, x); err != nil {
			return err
		}
	}
	if err := s.sets(ctx); err != nil {
		return err
	}
	return s.asynq(ctx)
}

// patiently reads again for awayMost while Redis is away, since one reply that is late must not end an audit of hours.
// The read must be repeatable, as all reads and repairs here are.
func patiently[T any](ctx context.Context, read func(context.Context) (T, error)) (got T, err error) {
	err = redisdb.Patiently(ctx, awayMost, func(ctx context.Context) (err error) {
		got, err = read(ctx)
		return err
	})
	return got, err
}

// step is called after each read.
func (s *steps) step(ctx context.Context) error {
	if s.rest == nil {
		return ctx.Err()
	}
	err := s.rest(ctx, time.Since(s.stepped))
	s.stepped = time.Now()
	return err
}

// queue makes the index. It reads from tail to head, so that tasks pulled or added meanwhile may be seen twice, but
// none that is there all the time is missed. The tasks themselves are checked with the first part.
func (s *survey) queue(ctx context.Context, x *index, part uint64) error {
	x.begin(part)
	defer x.close()
	if part > 0 {
		return s.noted(ctx, x)
	}
	s.papers = 0
	return s.queued(ctx, func(task string, what Wrong, line string) error {
		x.add(task)
		s.paper(what)
		return s.task(task, what, line)
	})
}

// noted adds each task in the lines of the queue to the index, whatever it is.
func (s *survey) noted(ctx context.Context, x *index) error {
	lines, err := s.g.lines(ctx)
	if err != nil {
		return s.failed("its classes", err)
	}
	for _, line := range lines {
		err := s.names(ctx, s.g.c, line.key, func(tasks []string) {
			for _, task := range tasks {
				x.add(task)
			}
		})
		if err != nil {
			return s.failed("its tasks", err)
		}
	}
	return nil
}

// names passes the entries of a list to tell, nameStep at a time.
func (s *steps) names(ctx context.Context, c redis.UniversalClient, list string, tell func(some []string)) error {
	for from := int64(0); ; from += nameStep {
		some, err := patiently(ctx, func(ctx context.Context) ([]string, error) {
			return c.LRange(ctx, list, from, from+nameStep-1).Result()
		})
		if err != nil {
			return err
		}
		if tell(some); len(some) < nameStep {
			return nil
		}
		if err := s.step(ctx); err != nil {
			return err
		}
	}
}

// queued reports for each task in the queue's lines what is wrong with it.
func (s *survey) queued(ctx context.Context, tell func(task string, what Wrong, line string) error) error {
	lines, err := s.g.lines(ctx)
	if err != nil {
		return s.failed("its classes", err)
	}
	for _, line := range lines {
		if err := s.tasks(ctx, line, func(task string, what Wrong) error { return tell(task, what, line.name) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *survey) paper(what Wrong) {
	if what == OldTask || what == ForeignTask {
		s.papers++
	}
}

// count counts the stale tasks again.
func (s *survey) count(ctx context.Context) error {
	s.papers = 0
	return s.queued(ctx, func(_ string, what Wrong, _ string) error { s.paper(what); return nil })
}

// records checks every record of the current part.
func (s *survey) records(ctx context.Context, x *index) error {
	return s.scan(ctx, func(ids []string) error {
		ids = slices.DeleteFunc(ids, func(id string) bool { return !x.mine(id) })
		for some := range slices.Chunk(ids, recordStep) {
			if err := s.look(ctx, x, some); err != nil {
				return err
			}
		}
		return nil
	})
}

// scan finds the ids of all records, some of them perhaps twice.
func (s *survey) scan(ctx context.Context, tell func(ids []string) error) error {
	prefix := s.g.keys.JobPrefix()
	node, err := redisdb.Node(ctx, s.g.c, prefix)
	if err != nil {
		return s.failed("its records", err)
	}
	for cursor := uint64(0); ; {
		keys, err := patiently(ctx, func(ctx context.Context) (some []string, err error) {
			some, next, err := node.Scan(ctx, cursor, prefix+"*", scanStep).Result()
			if err == nil {
				cursor = next
			}
			return some, err
		})
		if err != nil {
			return s.failed("its records", err)
		}
		for i := range keys {
			keys[i] = keys[i][len(prefix):]
		}
		if err := tell(keys); err != nil {
			return err
		}
		if cursor == 0 {
			return nil
		}
		if err := s.step(ctx); err != nil {
			return err
		}
	}
}

func (s *survey) look(ctx context.Context, x *index, ids []string) error {
	found, err := s.g.places(ctx, ids, false)
	if err != nil {
		return err
	}
	for _, p := range found {
		if s.seen != nil {
			s.seen(p.State)
		}
		if p.What == "" && p.State == job.Queued && p.queuedAt > 0 && p.queuedAt < s.since && !x.has(job.TaskID(p.ID, p.generation)) {
			p.What = NoTask
		}
		if p.What == "" {
			continue
		}
		if err := s.found(p.Finding); err != nil {
			return err
		}
	}
	return nil
}

// distinct counts the records of finished jobs in one state, each once.
func (s *survey) distinct(ctx context.Context, state job.State) (int64, error) {
	x := newIndex(0, 0)
	err := s.scan(ctx, func(ids []string) error {
		for some := range slices.Chunk(ids, recordStep) {
			found, err := s.g.places(ctx, some, false)
			if err != nil {
				return err
			}
			for _, p := range found {
				if p.State == state {
					x.add(job.TaskID(p.ID, 1))
				}
			}
		}
		return nil
	})
	x.close()
	return int64(len(slices.Compact(x.tasks))), err
}

func (s *survey) failed(what string, err error) error {
	return fmt.Errorf("audit gateway %s: %s: %w", s.g.name, what, err)
}

// index knows which tasks are in the queue, by their hashes, in 8 bytes each. A lost task is missed if another has
// the same hash: with a million in the queue, once in 2^44. With several parts, it contains the tasks of one part
// of the jobs.
type index struct {
	seed        maphash.Seed
	part, parts uint64
	tasks       []uint64
}

// mostIndexed is how many tasks an index holds; a longer queue is checked in parts.
const mostIndexed = 4_000_000

func newIndex(queued, most int64) *index {
	if most <= 0 {
		most = mostIndexed
	}
	x := &index{seed: maphash.MakeSeed(), parts: uint64(queued/most) + 1}
	x.tasks = make([]uint64, 0, uint64(max(queued, 0))/x.parts*17/16) // parts are hardly ever larger
	return x
}

// begin empties it for a part.
func (x *index) begin(part uint64) { x.part, x.tasks = part, x.tasks[:0] }

// mine reports whether a job belongs to the current part.
func (x *index) mine(id string) bool {
	return x.parts == 1 || maphash.String(x.seed, id)%x.parts == x.part
}

func (x *index) add(task string) {
	if id, _, ok := job.ParseTaskID(task); ok && x.mine(id) {
		x.tasks = append(x.tasks, maphash.String(x.seed, task))
	}
}

// close ends adding; only then may has be called.
func (x *index) close() { slices.Sort(x.tasks) }

func (x *index) has(task string) bool {
	_, ok := slices.BinarySearch(x.tasks, maphash.String(x.seed, task))
	return ok
}
