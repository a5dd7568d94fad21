package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"spillway/internal/admission"
	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// specEnv is the environment variable that makes the test binary a doomed process.
const specEnv = "SPILLWAY_CRASH"

// spec tells a doomed process what to do, and when to die.
type spec struct {
	Flow    string
	Gateway string
	Bank    string // host:port
	Redis   string // host:port
	Base    int64  // µs; the jobs' times count from here
	How     string // "": not at all
	At      int    // at this command
	Fed     bool   // the gateway has an outcome feed
}

// config returns the configuration of a flow's one gateway.
func (s spec) config(redis string) (*config.Config, error) {
	f := flowOf(s.Flow)
	text := fmt.Sprintf("redis: redis://%s/0\ngateways:\n  %s:\n    request: {url: \"http://%s/%s/{id}\", timeout: 2s%s}\n", redis, s.Gateway, s.Bank, s.Gateway, f.request)
	for line := range strings.Lines(f.settings) {
		text += "    " + strings.TrimSpace(line) + "\n"
	}
	if s.Fed {
		text += "    outcomes: {}\n"
	}
	return config.Parse("crash.yaml", []byte(text), config.Options{Secrets: true})
}

// process is a process at work for one gateway: a doomed one, or the one that comes after it.
type process struct {
	spec
	cfg    *config.Config
	db     *redisdb.DB
	direct redis.UniversalClient // past the line, to look
	log    *slog.Logger
	says   io.Writer // gets the result of each job
	arm    func()
}

func (p *process) gateway() config.Gateway { return p.cfg.Gateways[0] }

// connect opens Redis at an address, as the programs do.
func connect(ctx context.Context, s spec, redis string, log *slog.Logger) (*process, error) {
	cfg, err := s.config(redis)
	if err != nil {
		return nil, err
	}
	p := &process{spec: s, cfg: cfg, log: log, says: io.Discard, arm: func() {}}
	if p.db, err = dispatch.Open(ctx, cfg, patience); err != nil {
		return nil, err
	}
	p.direct = p.db.Client
	return p, nil
}

// doomed runs a doomed process. It returns only if the process does not reach its crash point, or survives it.
func doomed(text string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return complain(err)
	}
	l, err := newLine(s.Redis, s.How, s.At)
	if err != nil {
		return complain(err)
	}
	p, err := connect(ctx, s, l.addr(), slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return complain(err)
	}
	p.direct = redis.NewClient(&redis.Options{Addr: s.Redis, Protocol: 2})
	p.says = os.Stdout
	f := flowOf(s.Flow)
	if p.arm = l.arm; !f.late {
		l.arm()
	}
	if err := f.act(ctx, p); err != nil && !l.hit.Load() {
		return complain(err)
	} else if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return tell(report{Commands: l.counted(), Hit: l.hit.Load()})
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// report is the last line of a process that was not killed.
type report struct {
	Commands int
	Hit      bool
}

func tell(r report) int {
	text, err := json.Marshal(r)
	if err != nil {
		return complain(err)
	}
	fmt.Println(string(text))
	return 0
}

// admit admits jobs as enqueue does, and writes the result of each.
func (p *process) admit(ctx context.Context, jobs []job.Job, mode admission.Mode) error {
	answers, err := dispatch.Door(p.db.Client, p.cfg, patience).Admit(ctx, p.Gateway, jobs, mode)
	for i, a := range answers {
		fmt.Fprintf(p.says, "%s %s\n", jobs[i].ID, a.Outcome)
	}
	return err
}

// serve starts a dispatcher.
func (p *process) serve(ctx context.Context) (*dispatch.Dispatcher, error) {
	d, err := dispatch.New(dispatch.Params{DB: p.db, Gateways: p.cfg.Gateways, Metrics: prometheus.NewRegistry(), Log: p.log, Patience: patience})
	if err != nil {
		return nil, err
	}
	return d, d.Start(ctx)
}

// dispatch serves until nothing is left to do, or nothing has changed for a while.
func (p *process) dispatch(ctx context.Context) error {
	d, err := p.serve(ctx)
	if err != nil {
		return err
	}
	p.idle(ctx, 1300*time.Millisecond) // longer than a hold
	return stop(d)
}

func stop(d *dispatch.Dispatcher) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	d.Stop(ctx)
	return ctx.Err()
}

// idle waits until nothing is left to do, or nothing has changed for the time still. It reports which.
func (p *process) idle(ctx context.Context, still time.Duration) (nothingLeft bool) {
	last, since := "", time.Now()
	for range ticks(ctx) {
		sizes, left, err := p.sizes(ctx)
		if err == nil && left == 0 {
			return true
		}
		if text := fmt.Sprint(sizes, err); text != last {
			last, since = text, time.Now()
		}
		if time.Since(since) > still {
			return false
		}
	}
	return false
}

// ticks ticks every 25 ms until ctx ends.
func ticks(ctx context.Context) <-chan time.Time {
	out := make(chan time.Time)
	go func() {
		defer close(out)
		t := time.NewTicker(25 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case at := <-t.C:
				select {
				case out <- at:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// sizes returns how many jobs and tasks are in each place, and how many of them still have work to do.
func (p *process) sizes(ctx context.Context) (sizes []int64, left int64, err error) {
	k := redisdb.NewKeys(p.Gateway)
	var cmds []*redis.IntCmd
	var done, inLanes *redis.StringCmd
	_, err = p.direct.TxPipelined(ctx, func(c redis.Pipeliner) error {
		for _, line := range append(k.Lines(), k.Active()) {
			cmds = append(cmds, c.LLen(ctx, line))
		}
		for _, set := range []string{k.Scheduled(), k.Retrying(), k.Open(), k.Asking(), k.Parked(string(job.Rejected)), k.AsynqRetry(), k.AsynqArchive()} {
			cmds = append(cmds, c.ZCard(ctx, set))
		}
		cmds = append(cmds, c.HLen(ctx, k.Shelving())) // batches that are to be put aside or taken in
		done, inLanes = c.HGet(ctx, k.Counters(), "done"), c.HGet(ctx, k.Lanes(), "tasks")
		return nil
	})
	if err != nil && err != redis.Nil { //nolint:errorlint // the pipeline's own
		return nil, 0, err
	}
	for _, c := range cmds {
		sizes, left = append(sizes, c.Val()), left+c.Val()
	}
	n, _ := done.Int64()
	laned, _ := inLanes.Int64()
	return append(sizes, n, laned), left + laned, nil
}
