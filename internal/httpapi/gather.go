package httpapi

import (
	"context"
	"sync"
	"time"

	"spillway/internal/admission"
	"spillway/internal/job"
	"spillway/internal/roles"
)

// gather combines single jobs for admission: jobs that arrive while others are being admitted go together. Many
// callers thus cost Redis few scripts, and the workers' connections stay free. No job waits for others to
// arrive.
type gather struct {
	door Door

	mu   sync.Mutex
	lots map[kind]*lot
}

// kind is what jobs must have in common to go together. They have the same cost: if the first finds no room, no
// other would.
type kind struct {
	gateway string
	mode    admission.Mode
	cost    int64
	// name, person and proof identify the sender, who may have to be recorded.
	name, person string
	proof        roles.Proof
}

// lot is the waiting jobs of one kind, and how many goroutines admit them.
type lot struct {
	waiting  []*single
	carriers int
}

// single is one job being admitted.
type single struct {
	job    job.Job
	answer admission.Answer
	err    error
	done   chan struct{}
}

const (
	carriers  = 2 // one at Redis, one on its way
	carryTime = 15 * time.Second
)

func newGather(door Door) *gather { return &gather{door: door, lots: map[kind]*lot{}} }

// admit admits one job. If the caller leaves before the answer, the job is admitted all the same.
func (g *gather) admit(ctx context.Context, j job.Job, mode admission.Mode) (admission.Answer, error) {
	s := &single{job: j, done: make(chan struct{})}
	who, _ := roles.Of(ctx)
	g.join(kind{j.Gateway, mode, j.Cost, who.Name, who.Person, who.Proof}, s)
	select {
	case <-s.done:
		return s.answer, s.err
	case <-ctx.Done():
		return admission.Answer{}, ctx.Err()
	}
}

func (g *gather) join(k kind, s *single) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lots[k]
	if l == nil {
		l = &lot{}
		g.lots[k] = l
	}
	l.waiting = append(l.waiting, s)
	if l.carriers < carriers {
		l.carriers++
		go g.carry(k, l)
	}
}

// carry admits waiting jobs until there are none.
func (g *gather) carry(k kind, l *lot) {
	for {
		together := g.next(k, l)
		if len(together) == 0 {
			return
		}
		g.offer(k, together)
	}
}

// next takes the waiting jobs that may go together. If there are none, the goroutine ends, and with the last
// one the lot.
func (g *gather) next(k kind, l *lot) []*single {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(l.waiting) == 0 {
		if l.carriers--; l.carriers == 0 {
			delete(g.lots, k)
		}
		return nil
	}
	n, bytes := 0, 0
	for n < min(len(l.waiting), admission.ChunkJobs) && (n == 0 || bytes+len(l.waiting[n].job.Payload) <= admission.ChunkBytes) {
		bytes += len(l.waiting[n].job.Payload)
		n++
	}
	together := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	return together
}

func (g *gather) offer(k kind, together []*single) {
	jobs := make([]job.Job, len(together))
	for i, s := range together {
		jobs[i] = s.job
	}
	ctx, cancel := context.WithTimeout(roles.With(context.Background(), roles.Identity{Name: k.name, Person: k.person, Proof: k.proof}), carryTime)
	defer cancel()
	answers, err := g.door.Admit(ctx, k.gateway, jobs, k.mode)
	for i, s := range together {
		s.err = err
		if err == nil {
			s.answer = answers[i]
		}
		close(s.done)
	}
}
