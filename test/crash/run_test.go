package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/admission"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// run is one crash: a process that dies, another one that continues, and the checks.
type run struct {
	spec
	flow flow
	bank *bank
	till *till
	c    redis.UniversalClient
	keys redisdb.Keys
	ctx  context.Context

	early  bool // the dead worker's deadlines pass before the next process starts, instead of while it works
	told   map[string]string
	paper  paper
	log    bytes.Buffer // of the doomed process
	faults []string
}

// giveUp is the panic that ends a run early.
type giveUp struct{}

func (r *run) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

func (r *run) must(err error) {
	if err != nil {
		r.fault("%v", err)
		panic(giveUp{})
	}
}

// patience bounds the wait for anything that should happen soon. Many runs share the machine.
const patience = time.Minute

// await waits until cond holds.
func (r *run) await(what string, cond func() bool) {
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	for range ticks(ctx) {
		if cond() {
			return
		}
	}
	r.must(fmt.Errorf("waited in vain for %s", what))
}

// do plays the run and reports whether the process reached its crash point.
func (r *run) do() (hit bool) {
	defer r.bank.shut(r.Gateway)
	defer func() {
		if p := recover(); p != nil && p != (giveUp{}) { //nolint:errorlint // not an error
			panic(p)
		}
	}()
	r.till = r.bank.open(r.Gateway)
	if r.flow.prepare == nil {
		r.enqueue()
	} else {
		r.flow.prepare(r)
	}
	hit = r.crash()
	r.snapshot()
	r.midway(hit)
	r.goOn()
	r.reckon()
	if len(r.faults) == 0 {
		r.clear()
	}
	return hit
}

// spawn starts a process of this test's binary.
func (r *run) spawn(s spec) (cmd *exec.Cmd, out *bytes.Buffer) {
	text, err := json.Marshal(s)
	r.must(err)
	self, err := os.Executable()
	r.must(err)
	cmd, out = exec.Command(self), &bytes.Buffer{}
	// The race detector keeps a process for a second at its end.
	cmd.Env = append(os.Environ(), specEnv+"="+string(text), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"), "GOGC=off")
	if !*full { // half the work
		cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
	}
	cmd.Stdout, cmd.Stderr = out, &r.log
	r.must(testkit.Start(cmd))
	return cmd, out
}

// crash runs the doomed process to its end.
func (r *run) crash() (hit bool) {
	cmd, out := r.spawn(r.spec)
	err := cmd.Wait()
	r.told = map[string]string{}
	var last string
	for line := range strings.Lines(out.String()) {
		last = line
		if id, outcome, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			r.told[id] = outcome
		}
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	var end report
	r.must(errors.Join(err, json.Unmarshal([]byte(last), &end)))
	return end.Hit
}

// next returns the process that comes after the dead one, in this very process.
func (r *run) next() *process {
	p, err := connect(r.ctx, r.spec, r.Redis, slog.New(slog.NewTextHandler(io.Discard, nil)))
	r.must(err)
	return p
}

// goOn starts the next process and runs everything to its end.
func (r *run) goOn() {
	p := r.next()
	defer func() { _ = p.db.Close() }()
	if r.early {
		r.age()
		r.repeat(p)
	}
	d, err := p.serve(r.ctx)
	r.must(err)
	defer func() { r.must(stop(d)) }()
	if !r.early {
		r.repeat(p)
		p.idle(r.ctx, 200*time.Millisecond)
		r.age()
		_, err := dispatch.Books(r.c, r.gateway()).Sweep(r.ctx)
		r.must(err)
	}
	if !p.idle(r.ctx, patience) {
		sizes, _, err := p.sizes(r.ctx)
		r.fault("not at an end, and nothing moves: %v %v", sizes, err)
	}
}

// repeat does the act again, by two people at the same time.
func (r *run) repeat(p *process) {
	if r.flow.again == nil {
		return
	}
	other := make(chan error, 1)
	go func() { other <- r.flow.again(r.ctx, p) }()
	r.must(errors.Join(r.flow.again(r.ctx, p), <-other))
}

// enqueue admits the flow's jobs.
func (r *run) enqueue() { r.enqueueIn(admission.Park) }

func (r *run) enqueueIn(mode admission.Mode) {
	p := r.next()
	defer func() { _ = p.db.Close() }()
	answers, err := dispatch.Door(p.db.Client, p.cfg, 0).Admit(r.ctx, r.Gateway, r.make(r.flow.jobs...), mode)
	r.must(err)
	for i, a := range answers {
		r.must(a.Err)
		if a.Outcome != job.Enqueued && a.Outcome != job.ParkedNow {
			r.must(fmt.Errorf("%s: %s", r.flow.jobs[i], a.Outcome))
		}
	}
}

// park parks a job as if it had been called once.
func (r *run) park(id string, end job.Ending, reason job.Reason) {
	books := dispatch.Books(r.c, r.gateway())
	a, opening, err := books.Open(r.ctx, id, 1, "prepared", time.Second)
	r.must(err)
	if opening != job.OpenGo {
		r.must(fmt.Errorf("%s: %s", id, opening))
	}
	store := deadletter.New(r.c, r.Gateway) // which asks nobody
	store.Feed = r.Fed
	r.must(store.Park(r.ctx, a, end, reason))
	task := job.TaskID(id, 1)
	r.must(r.c.LRem(r.ctx, r.keys.Pending(), 0, task).Err())
	r.must(r.c.Del(r.ctx, r.keys.Task(task)).Err())
}

// paper is what a dead process has left in Redis.
type paper struct {
	owners map[string]string // of open attempts, by job
	active []string
	flight []string
	probe  string            // slot of the call sent ahead after a hold
	looks  map[string]string // owners of claimed look-ups, by job
}

// snapshot records what the dead process has left. No other process is at work.
func (r *run) snapshot() {
	p := paper{owners: map[string]string{}}
	open, err := r.c.ZRange(r.ctx, r.keys.Open(), 0, -1).Result()
	r.must(err)
	for _, id := range open {
		p.owners[id] = r.c.HGet(r.ctx, r.keys.Job(id), "o").Val()
	}
	p.active, err = r.c.LRange(r.ctx, r.keys.Active(), 0, -1).Result()
	r.must(err)
	p.flight, err = r.c.ZRange(r.ctx, r.keys.Flight(), 0, -1).Result()
	r.must(err)
	asked, err := r.c.ZRange(r.ctx, r.keys.Asking(), 0, -1).Result()
	r.must(err)
	p.looks = map[string]string{}
	for _, id := range asked {
		if owner := r.c.HGet(r.ctx, r.keys.Job(id), record.Short("ask_owner")).Val(); owner != "" {
			p.looks[id] = owner
		}
	}
	p.probe = r.c.HGet(r.ctx, r.keys.Hold(), "slot").Val()
	r.paper = p
}

// age makes everything that the dead process has left a minute older, so that its deadlines and leases are over.
func (r *run) age() {
	const minute = 60
	for id, owner := range r.paper.owners {
		if r.c.HGet(r.ctx, r.keys.Job(id), "o").Val() == owner {
			r.must(r.c.HIncrBy(r.ctx, r.keys.Job(id), "od", -minute*1e6).Err())
			r.older(r.keys.Open(), id, minute*1e6)
		}
	}
	for id, owner := range r.paper.looks {
		if r.c.HGet(r.ctx, r.keys.Job(id), record.Short("ask_owner")).Val() == owner {
			r.must(r.c.HIncrBy(r.ctx, r.keys.Job(id), record.Short("ask_at"), -minute*1e6).Err())
			r.older(r.keys.Asking(), id, minute*1e6)
		}
	}
	for _, task := range r.paper.active {
		r.older(r.keys.Lease(), task, minute)
	}
	for _, lease := range r.paper.flight {
		r.older(r.keys.Flight(), lease, minute*1e6)
	}
	if p := r.paper.probe; p != "" && r.c.HGet(r.ctx, r.keys.Hold(), "slot").Val() == p {
		r.must(r.c.HIncrBy(r.ctx, r.keys.Hold(), "probe", -minute*1e6).Err())
	}
}

// older moves a member of a sorted set back, if it is still there.
func (r *run) older(set, member string, by float64) {
	at, err := r.c.ZScore(r.ctx, set, member).Result()
	if errors.Is(err, redis.Nil) {
		return
	}
	r.must(err)
	r.must(r.c.ZAddXX(r.ctx, set, redis.Z{Score: at - by, Member: member}).Err())
}
