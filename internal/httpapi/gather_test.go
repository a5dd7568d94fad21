package httpapi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

const startWithin = time.Minute

// slowDoor accepts one chunk at each value of nod.
type slowDoor struct {
	nod    chan error
	mu     sync.Mutex
	chunks [][]job.Job
	modes  []admission.Mode
}

func (d *slowDoor) Admit(_ context.Context, _ string, jobs []job.Job, mode admission.Mode) ([]admission.Answer, error) {
	d.mu.Lock()
	d.chunks, d.modes = append(d.chunks, jobs), append(d.modes, mode)
	d.mu.Unlock()
	err := <-d.nod
	answers := make([]admission.Answer, len(jobs))
	for i, j := range jobs {
		answers[i] = admission.Answer{Outcome: job.Enqueued, Room: &job.Room{Left: []int64{int64(len(j.ID))}}}
	}
	return answers, err
}

func (d *slowDoor) seen() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.chunks)
}

func TestACrowdGoesTogether(t *testing.T) {
	t.Parallel()
	d := &slowDoor{nod: make(chan error)}
	g := newGather(d)
	var callers sync.WaitGroup
	send := func(j job.Job, mode admission.Mode) {
		callers.Go(func() {
			if a, err := g.admit(t.Context(), j, mode); err != nil || a.Room.Left[0] != int64(len(j.ID)) {
				t.Errorf("%s: %+v, %v", j.ID, a, err)
			}
		})
	}
	waiting := func(k kind, n int) func() bool {
		return func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.lots[k] != nil && len(g.lots[k].waiting) == n
		}
	}
	plain := kind{gateway: "g", mode: admission.Fail, cost: 1}
	for i := range carriers { // the first go alone, at once
		send(job.Job{ID: "first", Gateway: "g", Cost: 1}, admission.Fail)
		testkit.Eventually(t, startWithin, "the carriers to be at the door", func() bool { return d.seen() == i+1 })
	}
	for i := range admission.ChunkJobs + 7 {
		send(job.Job{ID: fmt.Sprint(i), Gateway: "g", Cost: 1}, admission.Fail)
	}
	testkit.Eventually(t, startWithin, "the crowd to wait", waiting(plain, admission.ChunkJobs+7))
	send(job.Job{ID: "dear", Gateway: "g", Cost: 2}, admission.Fail)
	send(job.Job{ID: "park", Gateway: "g", Cost: 1}, admission.Park)
	testkit.Eventually(t, startWithin, "the others to be at the door", func() bool { return d.seen() == carriers+2 })
	for range carriers + 2 + 2 {
		d.nod <- nil
	}
	callers.Wait()
	var sizes []int
	for _, c := range d.chunks[carriers+2:] {
		sizes = append(sizes, len(c))
	}
	if len(sizes) != 2 || max(sizes[0], sizes[1]) != admission.ChunkJobs || min(sizes[0], sizes[1]) != 7 {
		t.Errorf("the crowd went in chunks of %v", sizes)
	}
	testkit.Eventually(t, startWithin, "nothing to be left behind", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return len(g.lots) == 0 })
}

func TestWhoLeavesStopsNobody(t *testing.T) {
	t.Parallel()
	d := &slowDoor{nod: make(chan error, 9)}
	g := newGather(d)
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := g.admit(gone, job.Job{ID: "a", Gateway: "g", Cost: 1}, admission.Park); !errors.Is(err, context.Canceled) {
		t.Errorf("it waited: %v", err)
	}
	testkit.Eventually(t, startWithin, "the job to be at the door nevertheless", func() bool { return d.seen() == 1 })
	d.nod <- nil
	testkit.Eventually(t, startWithin, "the carrier to be done", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return len(g.lots) == 0 })
	broken := errors.New("broken")
	d.nod <- broken
	if _, err := g.admit(t.Context(), job.Job{ID: "b", Gateway: "g", Cost: 1}, admission.Park); !errors.Is(err, broken) {
		t.Errorf("the door's error came as %v", err)
	}
}
