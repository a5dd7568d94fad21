package dispatch

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/config"
	"spillway/internal/gateway"
	"spillway/internal/job"
	"spillway/internal/worker"
)

// upsetProcess is one dispatcher: the real pacer, pulse and worker. The queue and the books are left out: each slot has a job, and
// pulling and opening it take a round trip to Redis each.
type upsetProcess struct {
	t     *upsetTrial
	n     int
	w     *wire
	d     *Dispatcher
	calls sync.WaitGroup
	work  *worker.Worker
	heard chan string
	files chan struct{} // a nudge: there is a new file
	file  string        // the limits of the file that it has read last
	since time.Time     // it serves since then; zero: not yet. Trial.mu guards it
}

func (t *upsetTrial) process() *upsetProcess {
	t.born++
	p := &upsetProcess{t: t, n: t.born, w: t.r.wire(t.s.far+time.Duration(t.born)*37*time.Microsecond, t.s.seed*100+uint64(t.born)),
		heard: make(chan string, 1000), files: make(chan struct{}, 1), file: t.file}
	var err error
	p.d, err = New(Params{DB: p.w.db, Gateways: []config.Gateway{t.gateway(t.file)}, Metrics: prometheus.NewRegistry(),
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	t.r.must(err)
	u := p.d.units()[0]
	set := u.now()
	judge, err := table(set.cfg)
	t.r.must(err)
	how := u.working(set, Store(u.calls, set.cfg), judge)
	how.Ledger, how.Sender = p, p
	p.work = worker.New(how)
	return p
}

// serve begins to work as soon as Redis can be reached.
func (p *upsetProcess) serve() {
	p.d.run(func(ctx context.Context) {
		for p.d.meet(ctx) != nil || p.d.lookAtAll(ctx) != nil {
			if !await(ctx, time.Second) {
				return
			}
		}
		if !p.begins(ctx) {
			return
		}
		p.d.run(p.pulse)
		p.d.run(p.listen)
		p.d.run(p.pull)
	})
}

// begins records that it serves now, unless it has ended.
func (p *upsetProcess) begins(ctx context.Context) bool {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	p.since = time.Now()
	p.t.listen()
	return true
}

// pulse is the dispatcher's pulse, and reads a new file in between. Both use Redis while they hold a mutex, and virtual time stands still while
// a goroutine waits for one.
func (p *upsetProcess) pulse(ctx context.Context) {
	for at := time.Now().Add(pulseEvery); ; {
		select {
		case <-time.After(max(time.Until(at), 0)):
		case <-p.files:
		case <-ctx.Done():
			return
		}
		if time.Now().Before(at) {
			p.reload()
			continue
		}
		if at = time.Now().Add(pulseEvery); p.d.pulseOnce(ctx) != nil {
			at = at.Add(loopBackoff)
		}
	}
}

func (p *upsetProcess) listen(ctx context.Context) {
	for {
		select {
		case channel := <-p.heard:
			p.w.awake()
			p.d.hear(channel, p.t.r.gateway)
		case <-ctx.Done():
			return
		}
	}
}

// pull passes each slot to a worker, as the queue does.
func (p *upsetProcess) pull(ctx context.Context) {
	u := p.d.units()[0]
	g := queuePacer{u.pacer, u.data, u.machine, u.tokens, &u.feedHold}
	for {
		s, err := g.Next(ctx)
		if err != nil {
			return
		}
		for _, s := range append([]job.Slot{s}, g.More(16)...) {
			p.calls.Add(1)
			go func() {
				defer p.calls.Done()
				p.handle(g, s)
			}()
		}
	}
}

func (p *upsetProcess) handle(g queuePacer, s job.Slot) {
	ctx := context.Background()
	if p.ask(ctx) != nil { // the pull
		g.Empty(ctx, s)
		return
	}
	if g.Passed(s) {
		_ = g.Release(ctx, s)
		return
	}
	_ = p.work.Handle(ctx, job.Delivery{JobID: "j0000", Generation: 1, Slot: s})
}

// ask is a command to Redis of which only the duration matters.
func (p *upsetProcess) ask(ctx context.Context) error {
	return p.w.pass(ctx, "ask", func() error { return p.w.reached(func() {}) }, func() {}, func() {})
}

// Open is the ledger's.
func (p *upsetProcess) Open(ctx context.Context, id string, generation int64, owner string, _ time.Duration) (job.Attempt, job.Opening, error) {
	err := p.ask(ctx)
	return job.Attempt{Job: job.Job{ID: id, Gateway: p.t.r.gateway, Cost: 1}, Generation: generation, Owner: owner}, job.OpenGo, err
}

// Done is the ledger's.
func (p *upsetProcess) Done(context.Context, job.Attempt, job.Ending) error { return nil }

// Back is the ledger's.
func (p *upsetProcess) Back(context.Context, job.Attempt, job.Ending, time.Duration) error {
	return nil
}

// Send writes the call at its slot, as the gateway's client does: it waits for the slot, reads the clock again, writes and reports the write.
func (p *upsetProcess) Send(_ context.Context, c job.Request) job.Result {
	select {
	case <-time.After(time.Until(c.Due.Add(p.late()))):
	case <-p.w.gone:
	}
	p.w.awake()
	now := time.Now()
	switch {
	case p.w.over():
		return job.Result{Stage: job.NotSent, Err: job.ErrLocal}
	case c.TooLate(now):
		return job.Result{Stage: job.NotSent, Late: true, Err: gateway.ErrTooLate}
	}
	now = time.Now()
	p.t.called(p.n, now)
	c.Wrote(now)
	<-time.After(20 * time.Millisecond)
	return answered(200).Result
}

// late returns how late a call is for reasons of its own.
func (p *upsetProcess) late() time.Duration {
	c := chance(p.w.seed, "late")
	if int(c%100) >= p.t.s.late {
		return 0
	}
	return c.within(300 * time.Millisecond)
}

// end stops the process, regularly or like a kill.
func (p *upsetProcess) end(killed bool) {
	if killed {
		p.w.end()
	}
	p.t.mu.Lock()
	p.d.halt()
	p.since = time.Time{}
	p.t.listen()
	p.t.mu.Unlock()
	go func() {
		u := p.d.units()[0]
		p.d.loops.Wait()
		u.stop()
		p.calls.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		u.pacer.Close(ctx)
		p.w.end()
		u.now().client.Close()
	}()
}

// reload makes the process read the newest file.
func (p *upsetProcess) reload() {
	p.w.awake()
	p.t.mu.Lock()
	file := p.t.file
	p.t.mu.Unlock()
	_, err := p.d.Reload(context.Background(), []config.Gateway{p.t.gateway(file)})
	p.t.r.must(err)
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	p.file = file
}

// knows reports whether the process knows the gateway's calls and can report them. The caller holds the trial's mu.
func (p *upsetProcess) knows() bool {
	return !p.since.IsZero() && time.Since(p.since) > 2*time.Second && p.w.able()
}
