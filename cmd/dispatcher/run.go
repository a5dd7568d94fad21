package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/lifecycle"
	"spillway/internal/redisdb"
)

type runFlags struct {
	gateways []string
	listen   string
	logLevel string
}

// startPatience is how long run waits for Redis at its start: a machine may bring both up together.
const startPatience = 30 * time.Second

// tidyTime bounds what is left to do at the end when the calls under way have finished.
const tidyTime = 5 * time.Second

func runCommand(p *program) *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use: "run [-g GATEWAY]...", Short: "Serve gateways: workers, metrics and health",
		Long: `Run serves every gateway of the file, or those named, until SIGTERM or SIGINT. Any number of runs,
on any number of machines, may serve the same gateways: together they keep the leak rate.

It stops by pulling no more jobs and letting the calls under way finish, up to the gateway's time-out.
A second signal ends it at once; nothing is lost then either.`,
		Example: "  dispatcher run\n  dispatcher run -g stripe --listen 127.0.0.1:9401",
		Args:    cobra.NoArgs,
		Annotations: map[string]string{
			cli.SecondSignalExit: "0", // nothing is lost: what was open is taken up by others
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.run(cmd.Context(), f, cmd.Flags().Changed("listen"))
		},
	}
	gatewaysFlag(cmd, &f.gateways, "serve this `GATEWAY` only; repeatable (default: all of the file)")
	cmd.Flags().StringVar(&f.listen, "listen", "", "`ADDRESS` of metrics and health; \"\" serves nothing (default: the file's, else 127.0.0.1:9400)")
	cli.Choice(cmd, &f.logLevel, "log-level", "how much to log", "info", "debug", "warn", "error")
	return cmd
}

func (p *program) run(ctx context.Context, f *runFlags, listenGiven bool) error {
	cfg, err := p.load(true)
	if err != nil {
		return err
	}
	serving, err := gateways(cfg, f.gateways)
	if err != nil {
		return err
	}
	log := p.logger(f.logLevel)
	db, err := dispatch.Open(ctx, cfg, startPatience)
	if err != nil {
		return err
	}
	if err := inspect(ctx, db, log); err != nil {
		return errors.Join(err, db.Close())
	}
	at := address{text: cfg.Listen, given: listenGiven || cfg.ListenWritten, token: cfg.Token.Reveal()}
	if listenGiven {
		at.text = f.listen
	}
	return p.serve(ctx, served{db: db, gateways: serving, at: at, log: log})
}

type served struct {
	db       *redisdb.DB
	gateways []config.Gateway
	at       address
	log      *slog.Logger
}

// serve runs until ctx ends. It returns nil then: to be stopped is how run ends.
//
//	start: metrics and health → workers        stop: workers (calls under way finish) → metrics and health → Redis
func (p *program) serve(ctx context.Context, s served) error {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	d, err := dispatch.New(dispatch.Params{DB: s.db, Gateways: s.gateways, Metrics: reg, Log: s.log})
	if err != nil {
		return errors.Join(err, s.db.Close())
	}
	w := &web{failed: make(chan error, 1)}
	var parts lifecycle.Group
	parts.Add(lifecycle.Step{Name: "the connection to Redis", Stop: func(context.Context) error { return s.db.Close() }})
	parts.Add(lifecycle.Step{Name: "metrics and health", Stop: w.stop,
		Start: func(context.Context) error { return w.start(s.at, reg, s.db, s.log) }})
	parts.Add(lifecycle.Step{Name: "the workers", Within: longestCall(s.gateways) + tidyTime,
		Start: func(ctx context.Context) error { return dispatch.Coded(d.Start(ctx)) },
		Stop: func(ctx context.Context) error {
			s.log.Info("stopping: calls under way finish, nothing new is called")
			d.Stop(ctx)
			return nil
		}})
	parts.Add(lifecycle.Step{Name: "the greeting", Start: func(context.Context) error { s.greet(w.address()); return nil }})
	if err := parts.Run(ctx, context.Background(), w.failed); err != nil && ctx.Err() == nil {
		return err
	} else if err != nil {
		s.log.Warn("not everything ended in time; nothing is lost", "error", err)
	}
	s.log.Info("stopped")
	return nil
}

func (s served) greet(listen string) {
	for _, g := range s.gateways {
		s.log.Info("serving", "gateway", g.Name, "limits", fmt.Sprint(g.Leak.Limits), "listen", listen)
	}
}

// longestCall bounds how long the calls under way may take to finish.
func longestCall(gateways []config.Gateway) time.Duration {
	var most time.Duration
	for _, g := range gateways {
		most = max(most, g.Request.Timeout)
	}
	return most + tidyTime
}

// inspect refuses a Redis that would lose jobs and says loudly what may.
func inspect(ctx context.Context, db *redisdb.DB, log *slog.Logger) error {
	findings, err := dispatch.Inspect(ctx, db)
	for _, f := range findings {
		level := slog.LevelInfo
		if f.Severity == redisdb.Warn {
			level = slog.LevelWarn
		}
		log.Log(ctx, level, f.Message, "hint", f.Hint)
	}
	return err
}

func (p *program) logger(level string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo
	}
	if p.Quiet {
		l = max(l, slog.LevelWarn)
	}
	return slog.New(slog.NewTextHandler(p.Err, &slog.HandlerOptions{Level: l}))
}
