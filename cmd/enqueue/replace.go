package main

import (
	"context"

	"spillway/internal/admission"
	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
)

// checkReplace refuses flags that have no effect with --replace, which changes only the payload.
func (f *flags) checkReplace() error {
	if !f.replace && f.why != "" {
		return cli.Usage("leave it out, or add --replace", "--why says why jobs get another payload, with --replace")
	}
	if !f.replace && (f.yes || f.withoutAmount) {
		return cli.Usage("leave it out, or add --replace", "--yes and --without-amount are for --replace")
	}
	if !f.replace {
		return nil
	}
	for _, other := range []struct{ flag, value string }{{"at", f.at}, {"expires", f.expires}, {"batch", f.batch}, {"route", f.route}, {"priority", f.class}, {"lane", f.lane}} {
		if other.value != "" {
			return cli.Usage("leave it out: a job keeps its times, its batch, its route, its lane and its priority", "--%s can't be changed with --replace", other.flag)
		}
	}
	return nil
}

// replaceDoor gives parked jobs a new payload and admits them again.
type replaceDoor struct{ *desk.Replacement }

// Begin implements door.
func (d replaceDoor) Begin(ctx context.Context, gateway string, jobs []job.Job, mode admission.Mode) *admission.Passage {
	return admission.Answered(d.Put(ctx, gateway, jobs, mode))
}
