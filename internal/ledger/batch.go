package ledger

import (
	"context"
	"fmt"
	"iter"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
)

// Place is where a job of a batch stands: a state, and of parked jobs the reason.
type Place struct {
	State  job.State
	Reason job.Reason // only with job.Parked
}

func (p Place) field() string {
	if p.State == job.Parked {
		return string(job.Parked) + ":" + string(p.Reason)
	}
	return string(p.State)
}

func placeOf(text string) Place {
	state, reason, _ := strings.Cut(text, ":")
	return Place{job.State(state), job.Reason(reason)}
}

// Batch is one gateway's books of one batch, all of one moment. Places without jobs are left out.
type Batch struct {
	Places map[Place]job.Totals
	// Paused is since when nobody calls its jobs; zero if the batch is not paused.
	Paused time.Time
	// Cancelled is since when what comes of it is parked; zero if the batch is not cancelled. It is not paused then.
	Cancelled time.Time
	Why       string // it is paused or cancelled
	Who       string // paused or cancelled it
}

// Sum adds up the places that want says.
func (b Batch) Sum(want func(Place) bool) (s job.Totals) {
	for p, one := range b.Places {
		if want(p) {
			s.Add(one)
		}
	}
	return s
}

// Batch returns the books of a batch; ok is false if the gateway knows none of that name, or none any more. It costs the same
// however many jobs there are.
func (b *Books) Batch(ctx context.Context, name string) (batch Batch, ok bool, err error) {
	h, err := b.c.HGetAll(ctx, b.keys.Batch(name)).Result()
	if err != nil || len(h) == 0 {
		return Batch{}, false, err
	}
	batch, err = parseBatch(h)
	if err != nil {
		return Batch{}, false, fmt.Errorf("the books of batch %q at %s: %w", name, b.cfg.Gateway, err)
	}
	return batch, true, nil
}

// ParkedMoney returns the money of all parked jobs by reason, of batches and of none, and how many have an amount that can't be
// read; Jobs stays zero. It is empty where the gateway's jobs have no money.
func (b *Books) ParkedMoney(ctx context.Context) (map[job.Reason]job.Totals, error) {
	h, err := b.c.HGetAll(ctx, b.keys.Money()).Result()
	if err != nil {
		return nil, err
	}
	batch, err := parseBatch(h)
	if err != nil {
		return nil, fmt.Errorf("the sums of what is parked at %s: %w", b.cfg.Gateway, err)
	}
	sums := make(map[job.Reason]job.Totals, len(batch.Places))
	for p, s := range batch.Places {
		sums[p.Reason] = s
	}
	return sums, nil
}

// LastDue returns the latest moment for which a job of the gateway waits in one of these states, Scheduled or Retrying; zero if none does.
func (b *Books) LastDue(ctx context.Context, states ...job.State) (last time.Time, err error) {
	sets := map[job.State]string{job.Scheduled: b.keys.Scheduled(), job.Retrying: b.keys.Retrying()}
	for _, state := range states {
		set := sets[state]
		found, err := b.c.ZRevRangeWithScores(ctx, set, 0, 0).Result()
		if err != nil {
			return last, err
		}
		for _, z := range found {
			if at := moment(int64(z.Score)); at.After(last) {
				last = at
			}
		}
	}
	return last, nil
}

// parseBatch reads books as batch.lua lays them out.
func parseBatch(h map[string]string) (Batch, error) {
	b := Batch{Places: map[Place]job.Totals{}, Why: h["why"], Who: h["who"]}
	for field, value := range h {
		kind, rest, ok := strings.Cut(field, ":")
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return Batch{}, fmt.Errorf("the field %s holds no number", field)
		}
		if n != 0 {
			b.enter(kind, rest, n)
		}
	}
	if us, err := strconv.ParseInt(h["paused"], 10, 64); err == nil {
		b.Paused = moment(us)
	}
	if us, err := strconv.ParseInt(h["cancelled"], 10, 64); err == nil {
		b.Cancelled = moment(us)
	}
	for p, s := range b.Places {
		for currency, minor := range s.Amount {
			if minor.Sign() == 0 {
				delete(s.Amount, currency)
			}
		}
		if s.Jobs == 0 && s.NoAmount == 0 && len(s.Amount) == 0 {
			delete(b.Places, p)
		}
	}
	return b, nil
}

// highMoney is what one unit of a field M stands for.
var highMoney = big.NewInt(1_000_000_000)

func (b Batch) enter(kind, rest string, n int64) {
	place, currency := rest, ""
	if at := strings.LastIndexByte(rest, ':'); kind == "m" || kind == "M" {
		place, currency = rest[:at], rest[at+1:]
	}
	s := b.Places[placeOf(place)]
	switch kind {
	case "n":
		s.Jobs = n
	case "u":
		s.NoAmount = n
	case "m":
		s.Amount.Add(job.Money{Minor: big.NewInt(n), Currency: currency})
	case "M":
		s.Amount.Add(job.Money{Minor: new(big.Int).Mul(big.NewInt(n), highMoney), Currency: currency})
	}
	b.Places[placeOf(place)] = s
}

func (b *Books) money(payload []byte) string {
	if b.cfg.Money == nil {
		return ""
	}
	return b.cfg.Money(payload)
}

// batchPage is how many jobs of a batch are read at once.
const batchPage = 500

// BatchJobs yields the jobs of a batch in the order of acceptance, without payloads, and without a state those whose records are gone.
// It reads page by page; jobs that are accepted meanwhile come last.
func (b *Books) BatchJobs(ctx context.Context, name string) iter.Seq2[job.Record, error] {
	return func(yield func(job.Record, error) bool) {
		for from := int64(0); ; from += batchPage {
			ids, err := b.c.LRange(ctx, b.keys.BatchIDs(name), from, from+batchPage-1).Result()
			var found []job.Record
			if err == nil {
				found, err = b.batchRecords(ctx, name, ids)
			}
			if err != nil {
				yield(job.Record{}, fmt.Errorf("read batch %q of %s: %w", name, b.cfg.Gateway, err))
				return
			}
			for _, r := range found {
				if !yield(r, nil) {
					return
				}
			}
			if len(ids) < batchPage {
				return
			}
		}
	}
}

func (b *Books) batchRecords(ctx context.Context, name string, ids []string) ([]job.Record, error) {
	cmds, fields := make([]*redis.SliceCmd, len(ids)), record.Fields()
	if _, err := b.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			cmds[i] = p.HMGet(ctx, b.keys.Job(id), fields...)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	found := make([]job.Record, len(ids))
	for i, cmd := range cmds {
		h := make(map[string]string, len(fields))
		for j, v := range cmd.Val() {
			if text, ok := v.(string); ok {
				h[fields[j]] = text
			}
		}
		if h["b"] != name { // gone, or in another life
			h = nil
		}
		found[i] = record.Parse(b.cfg.Gateway, ids[i], h)
		if h == nil {
			found[i].Job.Batch = name
		}
	}
	return found, nil
}
