package main

import (
	"context"
	"time"

	"spillway/internal/desk"
	"spillway/internal/redisdb"
	"spillway/internal/remote"
)

// remarkUnlisted says which they are, and what to do.
func (p *program) remarkUnlisted(before string, all []desk.Unlisted) {
	for _, u := range all {
		p.remark("%s%s\nhint: %s", before, u.Text(), u.Hint())
	}
}

// atAll is at for a list of the gateways of these names, or of all: it says of all what the list leaves out.
func (p *program) atAll(ctx context.Context, names []string) (remote.Desk, error) {
	d, err := p.at(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.leftOut(ctx, d, names); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// leftOut says what a list over all gateways of the file does not have: jobs of gateways that the file has no more.
func (p *program) leftOut(ctx context.Context, d remote.Desk, names []string) error {
	if p.Quiet || len(names) > 0 {
		return nil
	}
	v, err := remote.Unlisted.Ask(ctx, d, remote.None{})
	p.remarkUnlisted("left out: ", v.Gateways)
	return err
}

// unlistedEvery is how often a running dispatcher looks for gateways with jobs that its file does not have.
const unlistedEvery = time.Hour

// unlistedWatch names them in the log, at the start and every hour, and keeps the gateways that are served in the register: it may have been lost with
// what a Redis forgot.
type unlistedWatch struct {
	s    served
	halt context.CancelFunc
	over chan struct{}
}

func (w *unlistedWatch) start(context.Context) error {
	ctx, halt := context.WithCancel(context.Background())
	w.halt, w.over = halt, make(chan struct{})
	go func() {
		defer close(w.over)
		again := time.NewTicker(unlistedEvery)
		defer again.Stop()
		for {
			w.look(ctx)
			select {
			case <-again.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}

func (w *unlistedWatch) stop(ctx context.Context) error {
	w.halt()
	select {
	case <-w.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *unlistedWatch) look(ctx context.Context) {
	serving, err := w.s.choose(w.s.file.Load())
	if err != nil {
		w.complain(ctx, err)
		return
	}
	for _, g := range serving {
		if err := redisdb.Register(ctx, w.s.db.Client, g.Name); err != nil {
			w.complain(ctx, err)
			return
		}
	}
	all, err := desk.UnlistedOf(ctx, w.s.db.Client, w.s.file.Load().Names())
	if err != nil {
		w.complain(ctx, err)
	}
	for _, u := range all {
		w.s.log.Warn("jobs of a gateway that the file does not have: "+u.Text(), "gateway", u.Gateway, "jobs", u.Jobs, "money", u.Money(), "hint", u.Hint())
	}
}

func (w *unlistedWatch) complain(ctx context.Context, err error) {
	if ctx.Err() == nil {
		w.s.log.Warn("not looked for gateways that the file does not have", "error", err)
	}
}
