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

// Asking describes the look-ups of a gateway's pending jobs. All fields but Next come from a sample, which
// covers all jobs if there are few.
type Asking struct {
	Next time.Time // when the next look-up is due; zero if no job is pending
	// Oldest is the end of the call that has been in doubt longest; zero if unknown.
	Oldest time.Time
	// Failing is since when the look-ups of a job have failed, for the job for which that is longest; zero if
	// every job's last look-up was answered.
	Failing time.Time
	// FailingJob is that job. FailingWhy is the error of its last look-up, for a person.
	FailingJob, FailingWhy string
}

// askingSampled is how many pending jobs are sampled from each end: those whose look-up is due first, and those
// whose look-up is due last, which are the oldest or have failing look-ups.
const askingSampled = 100

// Asking returns the state of the look-ups. It takes two round trips.
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

// earlier reports whether at is known and either before other or other is unknown.
func earlier(at, other time.Time) bool { return !at.IsZero() && (other.IsZero() || at.Before(other)) }

func members(all []redis.Z) []string {
	ids := make([]string, len(all))
	for i, z := range all {
		ids[i], _ = z.Member.(string)
	}
	return ids
}

// mostSearched is how many pending jobs are searched for those of a batch.
const mostSearched = 1000

// NextLook returns when the next look-up of a job of a batch is due. It is zero if that would take reading more
// than mostSearched records.
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
