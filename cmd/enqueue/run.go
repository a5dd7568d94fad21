package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"spillway/internal/admission"
	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/postgres"
	"spillway/internal/producer"
	"spillway/internal/redisdb"
	"spillway/internal/seal"
	"spillway/internal/tracing"
)

// door is what the jobs go through, as admission.Line. If it answers before Begin returns, the answers are counted before the next chunk begins.
type door interface {
	Begin(ctx context.Context, gateway string, jobs []job.Job, mode admission.Mode) *admission.Passage
}

// run does one file.
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
	if !o.replace { // there, jobs go on with the traces they have
		t.traces = traces
	}
	return enqueue(ctx, jobSource{in: in, opt: o, cfg: cfg, traces: traces, outbox: box}, t)
}

// sayZones says which moments times without a zone were taken for.
func (o *options) sayZones(s cli.Streams) {
	now := time.Now()
	for _, taken := range []string{producer.ZoneTaken("--at", o.at, now), producer.ZoneTaken("--expires", o.expires, now)} {
		if taken != "" && !o.Quiet {
			fmt.Fprintln(s.Say(), taken)
		}
	}
}

// serve tells the producer of the gateways. Where there is one alone, lines that name none are its own.
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

// jobSource is what enqueue reads, and how.
type jobSource struct {
	in  *input
	opt options
	cfg *config.Config
	// traces hears of the jobs taken in again; nil: nobody does.
	traces *tracing.Tracer
	// outbox is where the rows of --outbox are taken over; nil: nowhere.
	outbox *postgres.Outbox
}

// enqueue works and reports. Nothing is reported where the command or the file was not understood.
func enqueue(ctx context.Context, src jobSource, t *tally) error {
	err := t.stopped(work(ctx, src, t))
	err = errors.Join(err, t.close()) // rejects that are lost are a failure, whatever else is said of their lines
	if code := job.CodeOf(err); err != nil && (code == job.CodeUsage || code == job.CodeNotFound) {
		return err
	}
	return errors.Join(err, t.verdict(), t.canaries.verdict(t.opt.batch), t.report(time.Now()))
}

func work(ctx context.Context, src jobSource, t *tally) error {
	t.begin(time.Now())
	if err := checkTotals(ctx, src, t); err != nil {
		return err
	}
	if src.opt.replace && !src.opt.dryRun && !src.opt.yes {
		decision, err := askReplace(ctx, src, t)
		if err != nil || decision != cli.Go {
			t.declined = err == nil
			return err
		}
	}
	d, closeDoor, err := openDoor(ctx, src, t.say)
	if err != nil {
		return err
	}
	defer closeDoor()
	if r, ok := d.(replaceDoor); ok {
		t.replacing = r.Replacement
	}
	if src.outbox != nil {
		return takeOver(ctx, src, d, t)
	}
	if err := flow(ctx, src, d, t); err != nil {
		return err
	}
	if c, ok := d.(*canaryDoor); ok {
		t.canaries, err = c.standing(ctx)
	}
	return err
}

// flow reads and admits until the file ends or something stops it.
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
		case <-p.over(): // the next chunk may be long in coming: what has failed is said now
			err = p.wait(ctx)
		case c := <-f.out:
			err = p.put(ctx, c)
		}
		if err != nil {
			return err
		}
	}
}

// also adds another error to one, unless it says the same.
func also(err, other error) error {
	switch {
	case err == nil:
		return other
	case other == nil || errors.Is(other, err):
		return err
	}
	return errors.Join(err, other)
}

// feeder reads the file and cuts it into chunks, while those before are admitted.
type feeder struct {
	ctx   context.Context
	out   chan chunk
	tally *tally
	open  chunks
}

// feed reads to the end. What was read before the input broke goes in too.
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
		f.tally.seen(src, line.Job)
		if err := f.send(f.open.add(line)); err != nil {
			return err
		}
	}
}

// send hands chunks to the admitter. The channel has no buffer, so that nothing is left in it when feed ends.
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

// load reads the configuration. Secrets of a gateway are not needed to enqueue; keys that seal payloads are, where payloads go in.
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

// opener opens payloads that dlq export has sealed.
func opener(cfg *config.Config) func(gateway, id string, sealed []byte) ([]byte, error) {
	boxes := map[string]*seal.Box{}
	for _, g := range cfg.Gateways {
		boxes[g.Name] = dispatch.Box(g)
	}
	return func(gateway, id string, sealed []byte) ([]byte, error) { return boxes[gateway].Open(id, sealed) }
}

// knows refuses a gateway of -g that is well named and not configured.
func knows(cfg *config.Config, gateway string) error {
	if _, ok := cfg.Gateway(gateway); ok || job.CheckGateway(gateway) != nil {
		return nil
	}
	return dispatch.NoGateway(cfg, gateway)
}

// amounts tells the producer where a gateway's payloads have their money, and whether they must have some, where the configuration says so.
func amounts(cfg *config.Config, required bool) func(string) job.AmountRule {
	return func(gateway string) job.AmountRule {
		g, _ := cfg.Gateway(gateway)
		rule := dispatch.AmountRule(g)
		rule.Required = rule.Required && required
		return rule
	}
}

// keys tells the producer which ids a gateway's idempotency keys can't be made of; nil where they can be made of all.
func keys(cfg *config.Config) func(gateway, id string) error {
	if !slices.ContainsFunc(cfg.Gateways, func(g config.Gateway) bool { return g.Request.Key.Picky() }) {
		return nil
	}
	return func(gateway, id string) error {
		g, _ := cfg.Gateway(gateway)
		return g.Request.Key.Check(id)
	}
}

// routes tells the producer which route a job takes.
func routes(cfg *config.Config) func(gateway, route string) (string, error) {
	return func(gateway, route string) (string, error) {
		g, _ := cfg.Gateway(gateway)
		return g.Route(route)
	}
}

// classes tells the producer which class a job has.
func classes(cfg *config.Config) func(gateway, class string) (string, error) {
	return func(gateway, class string) (string, error) {
		g, _ := cfg.Gateway(gateway)
		return g.Class(class)
	}
}

// lanes tells the producer where jobs have their lane.
func lanes(cfg *config.Config) func(gateway string) *job.LaneKey {
	return func(gateway string) *job.LaneKey {
		g, _ := cfg.Gateway(gateway)
		return g.LaneKey()
	}
}

// cards tells the producer what becomes of card numbers.
func cards(cfg *config.Config) func(string) job.CardRule {
	return func(gateway string) job.CardRule {
		g, _ := cfg.Gateway(gateway)
		return g.Pan
	}
}

// mapsOf tells the producer what makes a gateway's payloads; nil where no gateway has a map.
func mapsOf(cfg *config.Config) func(string) *job.Map {
	if !slices.ContainsFunc(cfg.Gateways, func(g config.Gateway) bool { return g.Map != nil }) {
		return nil
	}
	return func(gateway string) *job.Map {
		g, _ := cfg.Gateway(gateway)
		return g.Map
	}
}

// known tells the producer which gateways there are and what their limits can ever grant.
func known(cfg *config.Config) func(string) (int64, bool) {
	return func(gateway string) (int64, bool) {
		g, ok := cfg.Gateway(gateway)
		if !ok {
			return 0, false
		}
		return dispatch.MaxCost(g), true
	}
}
