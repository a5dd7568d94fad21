package audit

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// batchPage is how many jobs are read at once.
const batchPage = 500

// recountTries is how often a batch is counted whose totals change meanwhile, before only its total is checked.
const recountTries = 3

// batchCheck compares the totals of every batch, and of the parked money, with the records of the jobs. It uses 8
// bytes for each job of the largest batch.
type batchCheck struct {
	g *Gateway
	// repair rewrites wrong totals.
	repair bool
	found  func(Finding)
	told   string // the last batch with a finding
	steps
}

func (c *batchCheck) run(ctx context.Context) error {
	c.stepped = time.Now()
	names, err := c.g.c.ZRange(ctx, c.g.keys.Batches(), 0, -1).Result()
	if err != nil {
		return err
	}
	for _, name := range names {
		for _, check := range []func(context.Context, string) error{c.check, c.shelves} {
			if err := check(ctx, name); err != nil {
				return fmt.Errorf("check the books of batch %q at %s: %w", name, c.g.name, err)
			}
		}
	}
	if err := c.money(ctx); err != nil {
		return fmt.Errorf("check the sums of what is parked at %s: %w", c.g.name, err)
	}
	return nil
}

// page is the totals of a batch with the number of its ids, read at one moment.
type page struct {
	fields map[string]string
	ids    int64
	record.Batch
}

func (c *batchCheck) read(ctx context.Context, name string) (p page, err error) {
	var fields *redis.MapStringStringCmd
	var ids *redis.IntCmd
	if _, err = c.g.c.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		fields, ids = tx.HGetAll(ctx, c.g.keys.Batch(name)), tx.LLen(ctx, c.g.keys.BatchIDs(name))
		return nil
	}); err != nil {
		return p, err
	}
	p.fields, p.ids = fields.Val(), ids.Val()
	p.Batch, err = record.ParseBatch(p.fields)
	return p, err
}

func (c *batchCheck) check(ctx context.Context, name string) error {
	for range recountTries {
		before, err := c.read(ctx, name)
		if err != nil {
			return err
		}
		if before.ids == 0 && len(before.fields) == 0 { // its last job was over long ago
			return c.g.c.ZRem(ctx, c.g.keys.Batches(), name).Err()
		}
		counted, err := c.recount(ctx, name, before.ids)
		if err != nil {
			return err
		}
		after, err := c.read(ctx, name)
		if err != nil {
			return err
		}
		if !maps.Equal(before.fields, after.fields) {
			continue
		}
		if wrong := after.differs(counted); wrong != "" {
			return c.wrong(ctx, name, wrong, after, counted)
		}
		return nil
	}
	last, err := c.read(ctx, name) // it is in progress: only this number is consistent
	if n := last.Sum(everywhere).Jobs; err == nil && n != last.ids {
		c.tell(name, fmt.Sprintf("its books have %d jobs, and it has %d", n, last.ids))
	}
	return err
}

func everywhere(record.Place) bool { return true }

// over reports whether a job in that place is finished: its record expires, but the totals keep it.
func over(p record.Place) bool { return p.State == job.Done || p.State == job.Discarded }

// differs says where totals and records differ; empty if they don't.
func (p page) differs(counted map[record.Place]job.Totals) string {
	if n := p.Sum(everywhere).Jobs; n != p.ids {
		return fmt.Sprintf("its books have %d jobs, and it has %d", n, p.ids)
	}
	all := map[record.Place]bool{}
	for place := range p.Places {
		all[place] = true
	}
	for place := range counted {
		all[place] = true
	}
	for place := range all {
		has, is := p.Places[place], counted[place]
		if over(place) && is.Jobs < has.Jobs || has.Equal(is) {
			continue
		}
		return fmt.Sprintf("its books have %s as %s, its records %s", totalsText(has), place.Field(), totalsText(is))
	}
	return ""
}

func totalsText(s job.Totals) string {
	text := fmt.Sprintf("%d jobs", s.Jobs)
	for _, currency := range slices.Sorted(maps.Keys(s.Amount)) {
		text += fmt.Sprintf(", %s %s", currency, s.Amount[currency])
	}
	if s.NoAmount > 0 {
		text += fmt.Sprintf(", %d without an amount", s.NoAmount)
	}
	if s.Bytes != 0 {
		text += fmt.Sprintf(", %d bytes", s.Bytes)
	}
	return text
}

func (c *batchCheck) wrong(ctx context.Context, name, what string, p page, counted map[record.Place]job.Totals) error {
	if c.repair {
		written, err := c.rebook(ctx, name, p, counted)
		if err != nil || written {
			return err
		}
	}
	c.tell(name, what)
	return nil
}

func (c *batchCheck) tell(name, what string) {
	c.told = name
	c.found(Finding{What: BatchBooks, Where: name, Text: fmt.Sprintf("batch %q: %s", name, what)})
}

// recount counts the records of a batch that had ids ids a moment ago. An id accepted again after its dedupe window is
// in the batch twice, but has only one record.
func (c *batchCheck) recount(ctx context.Context, name string, ids int64) (map[record.Place]job.Totals, error) {
	seed := maphash.MakeSeed()
	twice, err := c.twice(ctx, name, ids, seed)
	if err != nil {
		return nil, err
	}
	counted, read := map[record.Place]job.Totals{}, 0
	for r, err := range c.g.books.BatchJobs(ctx, name) {
		if err != nil {
			return nil, err
		}
		if read++; read%batchPage == 0 {
			if err := c.step(ctx); err != nil {
				return nil, err
			}
		}
		hash := maphash.String(seed, r.Job.ID)
		if r.State == "" || twice[hash] == 2 {
			continue
		}
		if twice[hash] == 1 {
			twice[hash] = 2
		}
		place := record.Place{State: r.State}
		if r.State == job.Parked {
			place.Reason = r.Reason
		}
		s := counted[place]
		s.AddMoney(r.Money)
		counted[place] = s
	}
	return counted, nil
}

// twice returns the hashes of ids that are in a batch more than once, each with 1. The batch has about ids ids.
func (c *batchCheck) twice(ctx context.Context, name string, ids int64, seed maphash.Seed) (map[uint64]int, error) {
	all := make([]uint64, 0, ids)
	err := c.names(ctx, c.g.c, c.g.keys.BatchIDs(name), func(ids []string) {
		for _, id := range ids {
			all = append(all, maphash.String(seed, id))
		}
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(all)
	twice := map[uint64]int{}
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] {
			twice[all[i]] = 1
		}
	}
	return twice, nil
}

// rebook rewrites the totals from the count. Finished jobs whose records are gone are known only from the totals;
// any that are missing there are assumed to be done.
func (c *batchCheck) rebook(ctx context.Context, name string, p page, counted map[record.Place]job.Totals) (bool, error) {
	return c.write(ctx, c.g.keys.Batch(name), c.g.keys.BatchIDs(name), p.fields, true, fieldsOf(p, counted))
}

// write writes fields if the totals are still as read, and reports whether they were. all says that there are no
// other fields.
func (c *batchCheck) write(ctx context.Context, books, stays string, read map[string]string, all bool, fields map[string]int64) (bool, error) {
	args := []any{len(read), redisdb.Flag(all)}
	for field, value := range read {
		args = append(args, field, value)
	}
	for field, n := range fields {
		args = append(args, field, n)
	}
	return rebookScript.Run(ctx, c.g.c, []string{books, stays}, args...).Bool()
}

func fieldsOf(p page, counted map[record.Place]job.Totals) map[string]int64 {
	fields := map[string]int64{}
	var live, ended, known int64
	for _, s := range counted {
		known += s.Jobs
	}
	for place, s := range p.Places {
		if known < p.ids && over(place) && counted[place].Jobs < s.Jobs {
			counted[place] = s
		}
	}
	for place, s := range counted {
		if over(place) {
			ended += s.Jobs
		} else {
			live += s.Jobs
		}
		record.LayOut(s, place, fields)
	}
	fields["n:"+string(job.Done)] += p.ids - live - ended
	fields["live"] = live
	return fields
}
