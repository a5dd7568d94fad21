package main

import (
	"context"

	"spillway/internal/admission"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// openDoor opens Redis and the door of every gateway; a dry run gets a door that leads nowhere.
func openDoor(ctx context.Context, src jobSource) (door, func(), error) {
	if src.opt.dryRun {
		return noDoor{}, func() {}, nil
	}
	db, err := dispatch.Open(ctx, src.cfg, src.opt.patience)
	if err != nil {
		return nil, nil, err
	}
	return dispatch.Door(db.Client, src.cfg, src.opt.patience), func() { _ = db.Close() }, nil
}

// noDoor is the door of a dry run: it gives no answers.
type noDoor struct{}

// Admit implements door.
func (noDoor) Admit(_ context.Context, _ string, jobs []job.Job, _ admission.Mode) ([]admission.Answer, error) {
	return make([]admission.Answer, len(jobs)), nil
}
