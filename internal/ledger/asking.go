package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
)

// Asking is what is known of the look-ups of a gateway's pending jobs. All but Next is of a sample: of all jobs, if there are few.
type Asking struct {
	Next time.Time // when the next look-up is due; zero without pending jobs
	// Oldest is the end of the call that is in doubt for longest; zero if nobody knows.
	Oldest time.Time
	// Failing is since when the look-ups of a job fail, of the one for which they do so for longest; zero if the last look-up of each job was answered.
	Failing time.Time
	// FailingJob is that job, and FailingWhy what its last look-up met, for a person.
	FailingJob, FailingWhy string
}

// askingSampled is how many pending jobs are looked at from either end: those that are asked for next, and those that are asked for last, which are the oldest or have
// look-ups that fail.
const askingSampled = 100

// Asking returns what is known of the look-ups. It takes two round trips.
func (b *Books) Asking(ctx context.Context) (a Asking, err error) {
	var first, last *redis.ZSliceCmd
	if _, err := b.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		first = p.ZRangeWithScores(ctx, b.keys.Asking(), 0, askingSampled-1)
		last = p.ZRevRangeWithScores(ctx, b.keys.Asking(), 0, askingSampled-1)
		return nil
	}); err != nil {
		return a, fmt.Errorf("read which jobs of %s are pending: %w", b.cfg.Gateway, err)
	}
	if len(first.Val()) == 0 {
		return a, nil
	}
	a.Next = record.Moment(int64(first.Val()[0].Score))
	ids := members(slices.Concat(first.Val(), last.Val()))
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var failed error
	fields := []string{"state", "call_ended_at", "ask_failing", "seen"}
	record.Reader{C: b.c, Keys: b.keys, Fields: fields}.Read(ctx, ids, func(i int, h map[string]string, err error) {
		failed = cmp.Or(failed, err)
		if r := record.Parse(b.cfg.Gateway, ids[i], h); r.State == job.Pending {
			a.see(r)
		}
	})
	return a, failed
}

func (a *Asking) see(r job.Record) {
	if earlier(r.CallEnded, a.Oldest) {
		a.Oldest = r.CallEnded
	}
	if earlier(r.LookFailing, a.Failing) {
		a.Failing, a.FailingJob, a.FailingWhy = r.LookFailing, r.Job.ID, r.LastSeen
	}
}

// earlier says that a moment is known and before another one, or that the other is not known.
func earlier(at, other time.Time) bool { return !at.IsZero() && (other.IsZero() || at.Before(other)) }

func members(all []redis.Z) []string {
	ids := make([]string, len(all))
	for i, z := range all {
		ids[i], _ = z.Member.(string)
	}
	return ids
}

// mostSearched is how many pending jobs are searched for those of one batch.
const mostSearched = 1000

// NextLook returns when the outcome of a job of a batch is asked for next; zero if nobody can say without reading more than mostSearched records.
func (b *Books) NextLook(ctx context.Context, batch string) (at time.Time, err error) {
	for from := int64(0); from < mostSearched; from += batchPage {
		some, err := b.c.ZRangeWithScores(ctx, b.keys.Asking(), from, from+batchPage-1).Result()
		if err != nil {
			return at, fmt.Errorf("read which jobs of %s are pending: %w", b.cfg.Gateway, err)
		}
		var failed error
		record.Reader{C: b.c, Keys: b.keys, Fields: []string{"batch"}}.Read(ctx, members(some), func(i int, h map[string]string, err error) {
			failed = cmp.Or(failed, err)
			if at.IsZero() && h["batch"] == batch {
				at = record.Moment(int64(some[i].Score))
			}
		})
		if failed != nil || !at.IsZero() || len(some) < batchPage {
			return at, failed
		}
	}
	return at, nil
}
