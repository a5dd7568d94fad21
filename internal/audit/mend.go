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

// CalmLook is the time between two looks at the totals of a gateway where they add up.
const CalmLook = 30 * time.Second

const (
	oddLook  = 2 * time.Second  // and when they don't add up
	oddLooks = 3                // so often in a row, and the records are gone through
	mendHeld = time.Minute      // how long a process that goes through them may say nothing to the others
	mendRest = 15 * time.Minute // until somebody goes through them again after nothing was found to mend
)

// Mended counts what was put right.
type Mended struct {
	Requeued int // queued jobs whose task had gone
	Placed   int // jobs that did not stand where their record said, or stood somewhere else too
	Removed  int // entries without a record
}

// Mender watches one gateway's totals and puts right what writes behind our back, evictions and lost writes have put out of place. Not
// safe for concurrent use; any number of processes may have one.
type Mender struct {
	g   *Gateway
	odd int // looks in a row at which the totals did not add up
}

// Mender returns a mender of this gateway.
func (g *Gateway) Mender() *Mender { return &Mender{g: g} }

// Look looks at the totals, at the price of one short script. When they did not add up several times in a row it goes through all records,
// in short steps and resting in between, unless another process does. next is when to look again.
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

// mend goes through the records.
func (m *Mender) mend(ctx context.Context) (did Mended, err error) {
	if _, err := m.g.relist(ctx, true); err != nil { // else each job of these lanes is looked for
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

// rest waits as long as the last step took, so that others get their turn, and keeps the records to this process.
func (m *Mender) rest(ctx context.Context, worked time.Duration) error {
	if err := clock.Wait(ctx, worked); err != nil {
		return err
	}
	return m.g.c.Expire(ctx, m.g.keys.Mend(), mendHeld).Err()
}

// mendOne puts one job right. missed is the moment before which a task of it would have been seen in the queue, on Redis's clock in µs;
// zero if nobody looked for one there.
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
