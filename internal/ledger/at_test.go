package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"spillway/internal/job"
)

// file is n jobs of one moment, whose names are in another order than they are.
func file(name string, n int, at time.Time) (jobs []job.Job) {
	for i := range n {
		jobs = append(jobs, job.Job{ID: fmt.Sprintf("%s-%d", name, i*617%n), At: at, Payload: []byte("{}")})
	}
	return jobs
}

func idsOf(jobs []job.Job) (ids []string) {
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

// Two files, each with a moment of its own, come in at once and in many chunks; workers pull while the mover is still at it. Each is called in
// its order, the first due first, and before what waits already.
func TestAFileOfOneMomentIsCalledInItsOrder(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]func(*bench){"a server": func(*bench) {}, "the Redis inside": (*bench).inside} {
		for _, n := range []int{5, 90, 1000} {
			t.Run(fmt.Sprintf("%s, %d jobs", name, n), func(t *testing.T) {
				t.Parallel()
				b := setup(t, 5000, nil)
				on(b)
				moment := time.UnixMicro(b.now + 3e6)
				one, other := file("one", n, moment), file("other", n, moment.Add(-time.Second))
				for from := 0; from < n; from += 150 {
					b.accept("park", one[from:min(from+150, n)]...)
					b.accept("park", other[from:min(from+150, n)]...)
				}
				b.accept("park", numbered(1, 2500)...)
				var calledOne, calledOther, between []string
				pull := func(most int) {
					for range min(most, len(b.waiting())) {
						switch id, _ := b.pull(); id[:2] {
						case "on":
							calledOne = append(calledOne, id)
						case "ot":
							calledOther = append(calledOther, id)
						default:
							if b.now > moment.UnixMicro()+1e6 && len(calledOne) < n {
								between = append(between, id)
							}
						}
					}
				}
				for step := range 200 {
					if b.now += 10_000; step < 100 { // the movers are not asked at every moment
						b.now += 40_000
					}
					_, _, err := b.books.MoveDue(b.ctx)
					b.must(err)
					pull(step * 7 % 60)
				}
				pull(5000)
				if !slices.Equal(calledOne, idsOf(one)) || !slices.Equal(calledOther, idsOf(other)) {
					t.Errorf("called are %.300v and %.300v", calledOne, calledOther)
				}
				if len(between) > 0 {
					t.Errorf("%d others were called first, %.100v", len(between), between)
				}
				if left := b.c.Exists(b.ctx, b.keys.Moments()).Val(); left != 0 {
					t.Error("the places of the moments are left")
				}
			})
		}
	}
}

// What is taken out before its moment leaves nothing for long.
func TestPlacesOfAMomentGoWithIt(t *testing.T) {
	t.Parallel()
	b := setup(t, 50, nil)
	moment := time.UnixMicro(b.now + 3600e6)
	b.accept("park", file("f", 3, moment)...)
	b.accept("park", file("g", 3, moment.Add(-time.Minute))...)
	b.took(b.books.Withdraw(b.ctx, b.back(idsOf(file("f", 3, moment))...), "x"))
	if ttl := b.c.PTTL(b.ctx, b.keys.Moments()).Val(); ttl <= time.Hour-time.Minute || ttl > 3*time.Hour {
		t.Errorf("the places stay for %v", ttl)
	}
}
