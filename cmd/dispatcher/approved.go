package main

import (
	"context"
	"time"

	"spillway/internal/desk"
)

// approvedEvery is how often a running dispatcher looks for approved requests that were interrupted.
const approvedEvery = 15 * time.Second

// goOn continues approved requests that were interrupted.
func (s served) goOn(ctx context.Context) {
	serving, err := s.choose(s.file.Load())
	if err == nil {
		var done []desk.Request
		done, err = desk.New(s.db.Client, serving).GoOn(ctx, s.traces)
		for _, r := range done {
			s.log.Info("went on with what was approved", "request", r.ID, "gateway", r.Gateway, "what", r.What, "who", r.DecidedBy, "asked_by", r.By)
		}
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("what was approved was not gone on with", "error", err)
	}
}
