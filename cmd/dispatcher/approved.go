package main

import (
	"context"
	"time"

	"spillway/internal/desk"
)

// approvedEvery is how often a running dispatcher looks for what was approved and is not done.
const approvedEvery = 15 * time.Second

// approvedWatch goes on with acts whose approver was broken off.
type approvedWatch struct {
	s    served
	halt context.CancelFunc
	over chan struct{}
}

func (w *approvedWatch) start(context.Context) error {
	ctx, halt := context.WithCancel(context.Background())
	w.halt, w.over = halt, make(chan struct{})
	go func() {
		defer close(w.over)
		again := time.NewTicker(approvedEvery)
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

func (w *approvedWatch) stop(ctx context.Context) error {
	w.halt()
	select {
	case <-w.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *approvedWatch) look(ctx context.Context) {
	serving, err := w.s.choose(w.s.file.Load())
	if err == nil {
		var done []desk.Request
		done, err = desk.New(w.s.db.Client, serving).GoOn(ctx, w.s.traces)
		for _, r := range done {
			w.s.log.Info("went on with what was approved", "request", r.ID, "gateway", r.Gateway, "what", r.What, "who", r.DecidedBy, "asked_by", r.By)
		}
	}
	if err != nil && ctx.Err() == nil {
		w.s.log.Warn("what was approved was not gone on with", "error", err)
	}
}
