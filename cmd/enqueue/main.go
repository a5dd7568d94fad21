// Enqueue reads a billing file and submits its jobs for admission. It is the producer's side of the dispatcher.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/trace"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/postgres"
	"spillway/internal/producer"
	"spillway/internal/redisdb"
	"spillway/internal/roles"
	"spillway/internal/tracing"
)

func main() { os.Exit(cli.Main(name, newCommand, os.Args[1:], cli.Standard())) }

const (
	name = "enqueue"
	// patience is how long Redis may be unreachable before enqueue gives up.
	patience = 30 * time.Second
)

// newCommand returns the command line of enqueue.
func newCommand(s cli.Streams) *cobra.Command { return command(s, patience) }

func command(s cli.Streams, patience time.Duration) *cobra.Command {
	f := &flags{patience: patience}
	cmd := &cobra.Command{
		Use:     name + " -f FILE [-g GATEWAY]",
		Short:   "Enqueue the jobs of a billing file",
		Long:    long,
		Example: example,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.expectsCount, f.expectsSum, f.canaries = cmd.Flags().Changed("expect-count"), cmd.Flags().Changed("expect-sum"), cmd.Flags().Changed("canary")
			opt, err := f.understand(time.Now())
			if err != nil {
				return err
			}
			who, _ := cli.WhoAmI() // without a known user, nobody is recorded
			return run(roles.With(cmd.Context(), roles.Identity{Name: who, Proof: roles.ByRedis}), s, opt)
		},
	}
	f.AddTo(cmd)
	f.declare(cmd)
	cmd.AddCommand(cli.ManCommand(s, &f.Common))
	return cmd
}

// run enqueues one file.
//
//	file → feeder ──chunks of one gateway──→ admitter → door
//	          └──────── tally ←─────────────────┘  (counts, "line N: …", --rejects)
func run(ctx context.Context, s cli.Streams, o options) error {
	cfg, err := load(o)
	if err != nil {
		return err
	}
	o.WarnOfRedis(s)
	if err := knows(cfg, o.gateway); err != nil {
		return err
	}
	if o.replace && !o.yes && !o.dryRun && !(s.InTerminal && s.ErrTerminal) {
		o.dryRun, o.unasked = true, true
	}
	if err := o.serve(cfg); err != nil {
		return err
	}
	in, box, err := o.open(ctx, s)
	if err != nil {
		return err
	}
	o.sayZones(s)
	defer in.Close()
	rej, err := openRejects(o.rejects, in)
	if err != nil {
		return err
	}
	ctx, traces, end, err := traced(ctx, s)
	if err != nil {
		return err
	}
	defer end()
	t := &tally{s: s, opt: o, in: in, rejects: rej}
	if !o.replace { // replaced jobs keep their traces
		t.traces = traces
	}
	return enqueue(ctx, jobSource{in: in, opt: o, cfg: cfg, traces: traces, outbox: box}, t)
}

// jobSource is the input and how to read it.
type jobSource struct {
	in  *input
	opt options
	cfg *config.Config
	// traces records the jobs that are admitted again; nil: not traced.
	traces *tracing.Tracer
	// outbox marks the rows of --outbox as taken over; nil: no outbox.
	outbox *postgres.Outbox
}

// enqueue does the work and reports. It reports nothing if the command or the file could not be parsed.
func enqueue(ctx context.Context, src jobSource, t *tally) error {
	err := t.stopped(work(ctx, src, t))
	err = errors.Join(err, t.close()) // lost rejects are a failure, whatever became of their lines
	if code := job.CodeOf(err); err != nil && (code == job.CodeUsage || code == job.CodeNotFound) {
		return err
	}
	return errors.Join(err, t.verdict(), t.canaries.verdict(t.opt.batch), t.report(time.Now()))
}

func work(ctx context.Context, src jobSource, t *tally) error {
	t.begin(time.Now())
	if src.opt.count != nil || src.opt.addsUp() {
		if err := checkTotals(ctx, src, t); err != nil {
			return err
		}
	}
	if src.opt.replace && !src.opt.dryRun && !src.opt.yes {
		decision, err := askReplace(ctx, src, t)
		if err != nil || decision != cli.Go {
			t.declined = err == nil
			return err
		}
	}
	d, err := openDoor(ctx, src, t.say)
	if err != nil {
		return err
	}
	defer d.close()
	t.replacing = d.replacing
	if src.outbox != nil {
		return takeOver(ctx, src, d, t)
	}
	if err := flow(ctx, src, d, t); err != nil {
		return err
	}
	if d.canary != nil {
		t.canaries, err = d.canary.standing(ctx)
	}
	return err
}

// flow reads and admits until the file ends or an error stops it.
func flow(ctx context.Context, src jobSource, d door, t *tally) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	f := &feeder{out: make(chan chunk), tally: t, ctx: reading}
	ended := make(chan error, 1)
	go func() { ended <- f.feed(src) }()
	p := &pipe{door: d, tally: t}
	for {
		var err error
		select {
		case <-ctx.Done():
			return also(ctx.Err(), p.wait(ctx))
		case failed := <-ended:
			return also(failed, p.wait(ctx))
		case <-p.over(): // the next chunk may take long to arrive: report a failure now
			err = p.wait(ctx)
		case c := <-f.out:
			err = p.put(ctx, c)
		}
		if err != nil {
			return err
		}
	}
}

// also joins other to err, unless both say the same.
func also(err, other error) error {
	switch {
	case err == nil:
		return other
	case other == nil || errors.Is(other, err):
		return err
	}
	return errors.Join(err, other)
}

// feeder reads the file and cuts it into chunks while earlier ones are admitted.
type feeder struct {
	ctx   context.Context
	out   chan chunk
	tally *tally
	open  chunks
}

// feed reads to the end. Jobs read before an input error are admitted, too.
func (f *feeder) feed(src jobSource) error {
	r, err := producer.New(src.in, src.opt.read)
	if err != nil {
		return err
	}
	f.tally.header(r.Header())
	for {
		line, err := r.Next()
		if err != nil {
			if sendErr := f.send(f.open.all()); sendErr != nil {
				return sendErr
			}
			if err == io.EOF {
				return nil
			}
			return err
		}
		if line.Err != nil {
			if err := f.tally.invalidLine(line, r); err != nil {
				return err
			}
			continue
		}
		f.tally.read.Add(1)
		if src.opt.dryRun {
			f.tally.show(src, line.Job)
		}
		if err := f.send(f.open.add(line)); err != nil {
			return err
		}
	}
}

// send hands chunks to the admitter. The channel is unbuffered, so nothing is left in it when feed ends.
func (f *feeder) send(ready []chunk) error {
	for _, c := range ready {
		select {
		case f.out <- c:
		case <-f.ctx.Done():
			return f.ctx.Err()
		}
	}
	return nil
}

// load reads the configuration. Enqueue does not need a gateway's secrets. It needs the keys that seal
// payloads, if payloads are admitted.
func load(o options) (*config.Config, error) {
	cfg, err := config.Load(o.Config, config.Options{Payloads: !o.dryRun || o.replace})
	if err != nil {
		return nil, cli.CodeEach(job.CodeUsage, "", err)
	}
	if o.Redis != "" {
		cfg.Redis, cfg.RedisAt = config.Secret(o.Redis), config.Position{}
	}
	if cfg.Redis == redisdb.Embedded {
		return nil, cli.Usage("name a Redis server: --redis redis://127.0.0.1:6379/0",
			"the embedded Redis lives in the dispatcher's process and is gone with it: enqueue can't reach it")
	}
	return cfg, nil
}

// serve gives the producer the gateways. If there is only one, lines that name no gateway belong to it.
func (o *options) serve(cfg *config.Config) error {
	o.read.Gateways, o.read.Amount, o.read.Key, o.read.Open, o.read.Map = known(cfg), amounts(cfg, !o.withoutAmount), keys(cfg), opener(cfg), mapsOf(cfg)
	o.read.RouteOf, o.read.ClassOf, o.read.Lanes, o.read.Cards = routes(cfg), classes(cfg), lanes(cfg), cards(cfg)
	if o.gateway == "" && len(cfg.Gateways) == 1 {
		o.read.Gateway = cfg.Gateways[0].Name
	}
	if o.decimal != "" && o.read.Map == nil {
		return cli.Usage("add a map to the gateway (docs/configuration.md, Billing files), or leave it out",
			"--decimal is for numbers that a gateway's map reads, and no gateway in %s has one", cfg.File)
	}
	return nil
}

// sayZones prints how times without a zone were interpreted.
func (o *options) sayZones(s cli.Streams) {
	now := time.Now()
	for _, taken := range []string{producer.ZoneTaken("--at", o.at, now), producer.ZoneTaken("--expires", o.expires, now)} {
		if taken != "" && !o.Quiet {
			fmt.Fprintln(s.Say(), taken)
		}
	}
}

// knows refuses a -g gateway whose name is valid but not configured.
func knows(cfg *config.Config, gateway string) error {
	if _, ok := cfg.Gateway(gateway); ok || job.CheckGateway(gateway) != nil {
		return nil
	}
	return dispatch.NoGateway(cfg, gateway)
}

// flushTime bounds the sending of the remaining traces at the end.
const flushTime = 5 * time.Second

// traced opens the tracing that the environment configures and starts the span of this run, as a child of the
// one in TRACEPARENT. The returned function ends both.
func traced(ctx context.Context, s cli.Streams) (context.Context, *tracing.Tracer, func(), error) {
	traces, err := tracing.Open(ctx, "spillway-enqueue", os.Getenv, slog.New(slog.NewTextHandler(s.Err, nil)))
	if err != nil || traces == nil {
		return ctx, nil, func() {}, err
	}
	ctx, span := traces.Begin(tracing.Within(ctx, os.Getenv("TRACEPARENT")), "enqueue file", trace.SpanKindInternal)
	return ctx, traces, func() {
		span.End()
		flushing, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		_ = traces.Close(flushing) // the error handler has reported it
	}, nil
}
