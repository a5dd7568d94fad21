package audit

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/clock"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// CalmLook is the time between two checks of a gateway's totals while they add up.
const CalmLook = 30 * time.Second

const (
	oddLook  = 2 * time.Second  // while they don't add up
	oddLooks = 3                // after this many in a row, all records are read
	mendHeld = time.Minute      // how long a process that reads all records may give no sign of life
	mendRest = 15 * time.Minute // until all records are read again if nothing was found to repair
)

// Mended counts repairs.
type Mended struct {
	Requeued int // queued jobs whose task was gone
	Placed   int // jobs that were not where their record said, or were elsewhere as well
	Removed  int // entries without a record
}

// Mender watches one gateway's totals and repairs what foreign writes, evictions and lost writes have corrupted. It
// is not safe for concurrent use; any number of processes may have one.
type Mender struct {
	g   *Gateway
	odd int // checks in a row with wrong totals
}

// Mender returns a Mender of this gateway.
func (g *Gateway) Mender() *Mender { return &Mender{g: g} }

// Look checks the totals with one short script. If they did not add up several times in a row, it reads all
// records, in short steps with pauses, unless another process does. next is when to call it again.
func (m *Mender) Look(ctx context.Context) (did Mended, next time.Duration, err error) {
	s, err := m.g.books.Look(ctx)
	if err != nil {
		return did, oddLook, err
	}
	if s.Missing() == 0 {
		m.odd = 0
		return did, CalmLook, nil
	}
	if m.odd++; m.odd < oddLooks {
		return did, oddLook, nil
	}
	m.odd = 0
	mine, err := m.g.c.SetNX(ctx, m.g.keys.Mend(), "1", mendHeld).Result()
	if err != nil || !mine {
		return did, CalmLook, err
	}
	did, err = m.mend(ctx)
	rest := mendRest
	if err != nil || did != (Mended{}) {
		rest = CalmLook
	}
	if err == nil {
		err = m.g.c.PExpire(ctx, m.g.keys.Mend(), rest).Err()
	}
	return did, CalmLook, err
}

// mend reads all records.
func (m *Mender) mend(ctx context.Context) (did Mended, err error) {
	if _, err := m.g.relist(ctx, true); err != nil { // otherwise each job of these lanes is searched for
		return did, err
	}
	s := &survey{g: m.g, steps: steps{rest: m.rest}}
	s.found = func(f Finding) error {
		if !f.Fault() || f.ID == "" {
			return nil
		}
		var missed int64
		if f.What == NoTask {
			missed = s.since
		}
		if f.What == NoTask {
			still, err := m.g.still(ctx, f)
			if err != nil || still.What == "" {
				return err
			}
			if f = still; f.What == NoLane {
				did.Placed++
				return m.g.findLane(ctx, f.ID)
			}
		}
		what, err := m.g.mendOne(ctx, f.ID, missed)
		switch what {
		case "queued":
			did.Requeued++
		case "placed":
			did.Placed++
		case "removed":
			did.Removed++
		}
		return err
	}
	if err := s.run(ctx); err != nil {
		return did, err
	}
	if err := (&laneCheck{g: m.g, repair: true, found: func(Finding) {}, steps: steps{rest: m.rest}}).run(ctx); err != nil {
		return did, err
	}
	return did, (&batchCheck{g: m.g, repair: true, found: func(Finding) {}, steps: steps{rest: m.rest}}).run(ctx)
}

// rest pauses for as long as the last step took, so that others get their turn, and extends this process's lock.
func (m *Mender) rest(ctx context.Context, worked time.Duration) error {
	if err := clock.Wait(ctx, worked); err != nil {
		return err
	}
	return m.g.c.Expire(ctx, m.g.keys.Mend(), mendHeld).Err()
}

// mendOne repairs one job. missed is the time before which its task would have been seen in the queue, on Redis's
// clock in µs; zero if the queue was not searched.
func (g *Gateway) mendOne(ctx context.Context, id string, missed int64) (string, error) {
	k := g.keys
	generation, err := g.c.HGet(ctx, k.Job(id), record.Short("generation")).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", err
	}
	newID, newKey, msg, err := g.books.Task(id, generation+1)
	if err != nil {
		return "", err
	}
	old := job.TaskID(id, generation)
	keys := []string{k.Job(id), k.Due(), k.Active(), k.Costs(), k.Task(old), newKey, k.Scheduled(), k.Retrying(), k.Open(), k.Asking(), k.Retries()}
	keys = append(append(keys, g.keys.AsynqSets()...), g.keys.AllParked()...)
	args := []any{g.NowMicros.Now(), id, generation, old, newID, msg, missed, g.name, redisdb.Wake, len(g.keys.AsynqSets())}
	for _, r := range job.Reasons() {
		args = append(args, string(r))
	}
	return mendScript.Run(ctx, g.c, keys, args...).Text()
}
