package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/console"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/doctor"
	"spillway/internal/httpapi"
	"spillway/internal/incarnation"
	"spillway/internal/job"
	"spillway/internal/lifecycle"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
	"spillway/internal/tracing"
)

type runFlags struct {
	gateways     []string
	listen       string
	logLevel     string
	logFormat    string
	afterRestore bool
}

// startPatience is how long run waits for Redis at its start: a machine may start both together.
const startPatience = 30 * time.Second

// tidyTime bounds the cleanup after the calls in flight have finished.
const tidyTime = 5 * time.Second

func runCommand(p *program) *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use: "run [-g GATEWAY]...", Short: "Serve gateways: workers, HTTP API, metrics and health",
		Long: `Run serves every gateway of the file, or those named with -g, until SIGTERM or SIGINT. Any number of runs,
on any number of machines, may serve the same gateways: together they keep the leak rate.

On SIGHUP it reads the configuration again and applies changes of the gateways (limits, secrets, headers and
the rest of a request, retries, admission) and of the token. It starts to serve new gateways, and stops
serving removed ones. Calls in flight finish with the old settings. A file with a fault, or without a
gateway that -g names, changes nothing. The log names changes that need a restart.

The log goes to standard error, with a line for each attempt. On a terminal, attempts are summarised once a
minute instead, unless --log-level is given.

To stop, it pulls no more jobs and lets the calls in flight finish, up to the gateway's time-out. A second
signal, 2 s or more after the first, ends it at once, without losing anything.

If Redis's data is older than what a dispatcher has seen, Redis was restored from an old snapshot: then the
gateway is not called. Check what was charged since, enqueue the files of that time again, and start one run
with --after-restore. All jobs accepted until then count as called before: they are called with the same
idempotency key while it lives, and parked as unknown_outcome otherwise. Give the flag once, never in a unit
file.`,
		Example: "  dispatcher run\n  dispatcher run -g stripe --listen 127.0.0.1:9401\n  dispatcher run --after-restore",
		Args:    cobra.NoArgs,
		Annotations: map[string]string{
			cli.SecondSignalExit: "0", // nothing is lost: other processes take over what was open
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := p.run(cmd.Context(), f, cmd.Flags().Changed("listen"))
			if cmd.Context().Err() != nil && errors.Is(err, context.Canceled) {
				return nil // stopped before it had started, for example while it waited for Redis
			}
			return err
		},
	}
	gatewaysFlag(cmd, &f.gateways, "serve this `GATEWAY` only; repeatable (default: all of the file)")
	cmd.Flags().StringVar(&f.listen, "listen", "", "`ADDRESS` of the HTTP API, metrics and health; \"\" serves nothing (default: the file's, else 127.0.0.1:9400)")
	cmd.Flags().BoolVar(&f.afterRestore, "after-restore", false, "confirm that Redis was restored from a snapshot: resume calls, and treat every job accepted before as possibly called")
	cli.Choice(cmd, &f.logLevel, "log-level", "how much to log (default: info; on a terminal without a line for each attempt)", "", "debug", "info", "warn", "error")
	cli.Choice(cmd, &f.logFormat, "log-format", "how to write the log", "text", "json")
	return cmd
}

func (p *program) run(ctx context.Context, f *runFlags, listenGiven bool) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // from the start: unhandled, the signal would end the process
	defer signal.Stop(hup)
	cfg, err := p.loadToServe()
	if err != nil {
		return err
	}
	choose := func(cfg *config.Config) ([]config.Gateway, error) { return desk.Choose(cfg, f.gateways) }
	serving, err := choose(cfg)
	if err != nil {
		return err
	}
	log := p.logger(f.logLevel, f.logFormat)
	traces, err := tracing.Open(ctx, "spillway-dispatcher", os.Getenv, log)
	if err != nil {
		return err
	}
	log = slog.New(traces.LogHandler(log.Handler()))
	takeStandardLog(log)
	db, err := dispatch.OpenTelling(ctx, cfg, startPatience, func(err error) {
		log.Warn("Redis is away: waiting for it", "for", startPatience.String(), "error", err)
	})
	if err != nil {
		return err
	}
	look := func(ctx context.Context) ([]redisdb.Finding, error) {
		return dispatch.LookForKeyless(ctx, db, serving, cfg.WaitReplicas, startPatience)
	}
	if err := dispatch.Known(ctx, db, serving, startPatience); err != nil {
		return errors.Join(err, db.Close())
	}
	if err := errors.Join(inspect(ctx, db, log), report(ctx, log, look)); err != nil {
		return errors.Join(err, db.Close())
	}
	at := address{text: cfg.Listen, given: listenGiven || cfg.ListenWritten, access: accessOf(cfg)}
	if listenGiven {
		at.text = f.listen
	}
	again := reloadable{load: p.loadToServe, choose: choose, reload: hup}
	return p.serve(ctx, served{reloadable: again, file: newInForce(cfg), door: newDoor(dispatch.Door(db.Client, cfg, apiPatience)), db: db, gateways: serving, some: len(f.gateways) > 0, at: at, log: log, traces: traces, state: stateDir(db, log), afterRestore: f.afterRestore, sums: p.sums(f.logLevel)})
}

// loadToServe reads the configuration, and refuses what the embedded Redis can't run: its Lua does not accept
// scripts as long as those for lanes.
func (p *program) loadToServe() (*config.Config, error) {
	cfg, err := p.load(true)
	if err != nil || cfg.Redis != redisdb.Embedded {
		return cfg, err
	}
	if i := slices.IndexFunc(cfg.Gateways, dispatch.Laned); i >= 0 {
		return nil, cli.Usage("name a Redis server, like redis: redis://127.0.0.1:6379/0, or take its lanes and what its routes have of their own out",
			"gateway %s has lanes or routes with limits, which the embedded Redis can't run", cfg.Gateways[i].Name)
	}
	return cfg, nil
}

type served struct {
	reloadable
	file         *inForce
	door         *door
	db           *redisdb.DB
	gateways     []config.Gateway
	some         bool // it serves the gateways of -g
	at           address
	log          *slog.Logger
	traces       *tracing.Tracer
	state        string // directory; empty: nothing is saved on this machine
	afterRestore bool
	sums         bool // the log is for a person
}

// stateDir returns where this machine saves what it has seen of Redis's data; empty for the embedded Redis,
// which ends with the process.
func stateDir(db *redisdb.DB, log *slog.Logger) string {
	if db.Embedded {
		return ""
	}
	dir, err := incarnation.StateDir(os.Getenv)
	if err != nil {
		log.Warn(incarnation.InMemoryAlone, "error", err)
	}
	return dir
}

// serve runs until ctx ends. It then returns nil, because that is the normal way to stop.
//
//	start: HTTP → workers        stop: accepting jobs → workers (calls in flight finish) → HTTP → Redis
func (p *program) serve(ctx context.Context, s served) error {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.db.Instrument(reg)
	gauges := dispatch.NewGauges(s.db.Client, s.gateways)
	all := prometheus.NewRegistry() // a single registry: gathering two means to sort and check twice, which is slow with thousands of gateways
	all.MustRegister(reg, gauges)
	w := &web{failed: make(chan error, 1)}
	d, err := dispatch.New(dispatch.Params{DB: s.db, Gateways: s.gateways, Metrics: reg, Log: s.log, Traces: s.traces,
		Version: cli.Version(), Listen: w.address, Chosen: s.some,
		State: s.state, AfterRestore: s.afterRestore, Patience: startPatience})
	if err != nil {
		return errors.Join(err, s.db.Close())
	}
	examiner := s.examiner()
	guard, meters := httpapi.NewGuard(""), httpapi.NewMetrics(reg, s.operations(examiner)...)
	guard.Use(s.at.access)
	guard.Keep(sessions{redisdb.NewOnce(s.db.Client)})
	guard.Tell(s.log, meters)
	page := console.New(console.Config{Redis: s.db.Client, Gateways: s.gateways, Listed: func() []string { return s.file.Load().Names() }, Guard: guard, Log: s.log, Queues: true, Traces: s.traces, Examiner: examiner})
	var parts lifecycle.Group
	parts.Add(lifecycle.Step{Name: "traces", Stop: s.traces.Close})
	parts.Add(lifecycle.Step{Name: "the connection to Redis", Stop: func(context.Context) error { return s.db.Close() }})
	parts.Add(lifecycle.Step{Name: "what was begun at the console", Stop: page.Stop})
	api := s.api(httpapi.Config{Guard: guard, Ready: s.ready(d), Console: page, Login: page.Login(), Queues: page.Protect(queue.Monitor(s.db.Client, "/queues/")),
		Metrics: promhttp.HandlerFor(all, promhttp.HandlerOpts{}), Requests: meters, Traces: s.traces}, examiner)
	parts.Add(lifecycle.Step{Name: "HTTP", Stop: w.stop,
		Start: func(ctx context.Context) error {
			go guard.Reach(context.WithoutCancel(ctx))
			return w.start(s.at, api, meters, s.log)
		}})
	if s.sums {
		parts.Add(lifecycle.Background("the summary of attempts", (&summary{worked: reg, log: s.log}).run))
	}
	parts.Add(lifecycle.Step{Name: "the workers", Within: longestCall(s.gateways) + tidyTime,
		Start: d.Start, Stop: func(ctx context.Context) error {
			s.log.Info("stopping: calls in flight finish, no new calls start")
			d.Stop(ctx)
			return nil
		}})
	again := &reloader{s: s, d: d, api: api, guard: guard, console: page, gauges: gauges, meters: newReloadMetrics(reg)}
	parts.Add(lifecycle.Background("reloading the configuration", again.run))
	parts.Add(lifecycle.Every("naming what the file does not have", unlistedEvery, s.nameUnlisted))
	parts.Add(lifecycle.Every("going on with what was approved", approvedEvery, s.goOn))
	parts.Add(lifecycle.Step{Name: "taking jobs in", Stop: func(context.Context) error { api.Stopping(); return nil }})
	parts.Add(lifecycle.Step{Name: "the greeting", Start: func(context.Context) error { s.greet(w.address()); return nil }})
	switch err := parts.Run(ctx, context.Background(), w.failed); {
	case err == nil:
	case ctx.Err() == nil:
		return err
	case errors.Is(err, ctx.Err()):
		s.log.Info("stopped while it was starting")
		return nil
	default:
		s.log.Warn("not everything ended in time; nothing is lost", "error", err)
	}
	s.log.Info("stopped")
	return nil
}

// ready returns a check that Redis accepts jobs, every gateway may be called, and this machine can call them.
func (s served) ready(d *dispatch.Dispatcher) func(context.Context) error {
	return func(ctx context.Context) error {
		switch err := d.Ready(); {
		case errors.Is(err, redisdb.ErrNewer):
			return err
		case err != nil:
			return &job.Error{Code: job.CodeFailed, Message: "Redis's data is older than what was seen of it, so nothing is called: the log says more"}
		}
		if err := d.Fit(); err != nil {
			return err
		}
		return s.takesJobs(ctx)
	}
}

// takesJobs checks that Redis answers and accepts writes for the configured gateways.
func (s served) takesJobs(ctx context.Context) error {
	return dispatch.TakesJobs(ctx, s.db, s.file.Load().Names())
}

// greeted is the most gateways that the log names at the start.
const greeted = 20

func (s served) greet(listen string) {
	for i, g := range s.gateways {
		if i == greeted {
			s.log.Info("serving more gateways", "gateways", len(s.gateways)-greeted, "hint", "dispatcher gateway list names all")
			return
		}
		s.log.Info("serving", "gateway", g.Name, "limits", fmt.Sprint(g.Leak.Limits), "listen", listen)
	}
}

// longestCall bounds how long the calls in flight may take.
func longestCall(gateways []config.Gateway) time.Duration {
	var most time.Duration
	for _, g := range gateways {
		most = max(most, g.Request.Timeout)
	}
	return most + tidyTime
}

// inspect refuses a Redis that would lose jobs, and warns of one that may.
func inspect(ctx context.Context, db *redisdb.DB, log *slog.Logger) error {
	return report(ctx, log, func(ctx context.Context) ([]redisdb.Finding, error) { return dispatch.Inspect(ctx, db, startPatience) })
}

// report logs what a check of Redis has found.
func report(ctx context.Context, log *slog.Logger, look func(context.Context) ([]redisdb.Finding, error)) error {
	findings, err := look(ctx)
	for _, f := range findings {
		level := slog.LevelInfo
		if f.Severity == redisdb.Warn {
			level = slog.LevelWarn
		}
		log.Log(ctx, level, f.Message, "hint", f.Hint)
	}
	return err
}

// examiner returns the checks of the gateways that this process serves, from where it runs.
func (s served) examiner() *doctor.Examiner {
	return doctor.NewExaminer(func() doctor.Params {
		cfg := s.file.Load()
		chosen := cfg.Gateways
		if s.some {
			chosen = slices.DeleteFunc(slices.Clone(chosen), func(g config.Gateway) bool {
				return !slices.ContainsFunc(s.gateways, func(one config.Gateway) bool { return one.Name == g.Name })
			})
		}
		return doctor.Params{Config: cfg, Gateways: chosen, DB: s.db}
	})
}
