package ledger_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// The look skips what is missing altogether. Each line and each set counts even if it is the only one.
func TestALookSeesWhatIsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	line := func(key string) func() { return func() { b.must(b.c.LPush(b.ctx, key, "j~1").Err()) } }
	set := func(key string) func() {
		return func() { b.must(b.c.ZAdd(b.ctx, key, redis.Z{Score: 1, Member: "j"}).Err()) }
	}
	for what, of := range map[string]struct {
		put  func()
		want [5]int64 // queued, scheduled, retrying, pending, parked
	}{
		"nothing":   {func() {}, [5]int64{}},
		"waiting":   {line(b.keys.Pending()), [5]int64{0: 1}},
		"retries":   {line(b.keys.Retries()), [5]int64{0: 1}},
		"replays":   {line(b.keys.Replays()), [5]int64{0: 1}},
		"due":       {line(b.keys.Due()), [5]int64{0: 1}},
		"scheduled": {set(b.keys.Scheduled()), [5]int64{1: 1}},
		"retrying":  {set(b.keys.Retrying()), [5]int64{2: 1}},
		"asking":    {set(b.keys.Asking()), [5]int64{3: 1}},
		"parked":    {set(b.keys.Parked(string(job.Reasons()[len(job.Reasons())-1]))), [5]int64{4: 1}},
		"class": {func() {
			b.must(b.c.HSet(b.ctx, b.keys.Classes(), "high", 1).Err())
			line(b.keys.First("high"))()
		}, [5]int64{0: 1}},
	} {
		b.must(b.c.Del(b.ctx, b.keys.Pending(), b.keys.Retries(), b.keys.Replays(), b.keys.Due(), b.keys.Scheduled(), b.keys.Retrying(), b.keys.Asking(), b.keys.Classes(),
			b.keys.First("high")).Err())
		b.must(b.c.Del(b.ctx, b.keys.AllParked()...).Err())
		of.put()
		s, err := b.books.Look(b.ctx)
		var parked int64
		for _, n := range s.Parked {
			parked += n
		}
		if got := [5]int64{s.Queued, s.Scheduled, s.Retrying, s.Pending, parked}; err != nil || got != of.want {
			t.Errorf("%s: %v, %v; want %v", what, got, err, of.want)
		}
	}
}

// The rate is that of the last minute by Redis's clock. Calls before it, and calls by a clock that was ahead, are not in it.
func TestTheRateIsOfTheLastMinute(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	span := b.now / 5_000_000
	for _, at := range []int64{span - 12, span + 1} {
		b.must(b.c.HSet(b.ctx, b.keys.Rate(), at, 1000).Err())
	}
	if s, err := b.books.Look(b.ctx); err != nil || s.Rate != 0 {
		t.Errorf("%v/s, %v; want 0", s.Rate, err)
	}
	for at := span - 11; at <= span; at++ {
		b.must(b.c.HSet(b.ctx, b.keys.Rate(), at, 50).Err())
	}
	b.now += 5_000_000 - 1 - b.now%5_000_000
	if s, err := b.books.Look(b.ctx); err != nil || s.Rate < 9.99 || s.Rate > 10.01 || s.Steady != 10 {
		t.Errorf("%v/s, steady %v/s, %v; want 10/s", s.Rate, s.Steady, err)
	}
}
