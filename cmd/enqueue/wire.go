package main

import (
	"context"
	"errors"

	"spillway/internal/admission"
	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
)

// openDoor connects to Redis and opens the door of every gateway; a dry run gets a door that admits nothing. It
// fails for a Redis that would lose jobs, and calls warn for one that may.
func openDoor(ctx context.Context, src jobSource, warn func(format string, args ...any)) (door, func(), error) {
	if src.opt.dryRun && !src.opt.replace {
		return noDoor{}, func() {}, nil
	}
	db, err := dispatch.OpenTelling(ctx, src.cfg, src.opt.patience, func(err error) {
		if !src.opt.Quiet {
			warn("waiting for Redis, for %s at most: %v", src.opt.patience, err)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	findings, err := dispatch.Inspect(ctx, db, src.opt.patience)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	if err := dispatch.Known(ctx, db, src.cfg.Gateways, src.opt.patience); err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	for _, f := range findings {
		if f.Severity == redisdb.Warn {
			warn("warning: %s; %s", f.Message, f.Hint)
		}
	}
	if src.opt.replace {
		who, err := cli.WhoAmI()
		if err != nil {
			return nil, nil, errors.Join(err, db.Close())
		}
		r := desk.New(db.Client, src.cfg.Gateways).Replace(desk.ReplaceOptions{By: desk.By{Who: who, Why: src.opt.why}, Filter: "the lines of " + src.opt.file,
			Look: src.opt.dryRun, LoseAmounts: src.opt.withoutAmount, Patience: src.opt.patience, Traces: src.traces})
		return replaceDoor{r}, func() {
			r.Close(ctx)
			_ = db.Close()
		}, nil
	}
	line := dispatch.Door(db.Client, src.cfg, src.opt.patience).Line()
	closeDoor := func() {
		line.Close()
		_ = db.Close()
	}
	if src.opt.canary > 0 {
		return &canaryDoor{door: line, src: src, client: db.Client, books: map[string]*ledger.Books{}}, closeDoor, nil
	}
	return line, closeDoor, nil
}

// noDoor is the door of a dry run. It gives no answers.
type noDoor struct{}

// Begin implements door.
func (noDoor) Begin(_ context.Context, _ string, jobs []job.Job, _ admission.Mode) *admission.Passage {
	return admission.Answered(make([]admission.Answer, len(jobs)), nil)
}
