package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"spillway/internal/admission"
	"spillway/internal/cli"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// checkCanary refuses --canary together with flags under which no job could wait for the first ones.
func (f *flags) checkCanary() error {
	switch {
	case !f.canaries:
		return nil
	case f.canary < 1:
		return cli.Usage("give how many jobs go first, like --canary 20, or leave it out", "--canary %d is not a number of jobs", f.canary)
	case f.replace:
		return cli.Usage("leave it out; \"dispatcher dlq replay --canary\" sends some parked jobs ahead", "--canary is for new jobs, and --replace readmits parked ones")
	case f.batch == "":
		return cli.Usage("name the batch, like --batch 2026-11", "--canary lets the rest of a batch wait, and there is no --batch")
	}
	return nil
}

// canaryDoor records at each gateway, before its first job, that only the first jobs of the batch go ahead.
type canaryDoor struct {
	door
	src    jobSource
	client redis.UniversalClient
	books  map[string]*ledger.Books // of the gateways where that is recorded
}

// Begin implements door.
func (d *canaryDoor) Begin(ctx context.Context, gateway string, jobs []job.Job, mode admission.Mode) *admission.Passage {
	if d.books[gateway] == nil {
		if err := d.sendAhead(ctx, gateway); err != nil {
			return admission.Answered(nil, err)
		}
	}
	return d.door.Begin(ctx, gateway, jobs, mode)
}

func (d *canaryDoor) sendAhead(ctx context.Context, gateway string) error {
	g, _ := d.src.cfg.Gateway(gateway)
	books, holds := dispatch.Books(d.client, g), false
	err := redisdb.Patiently(ctx, d.src.opt.patience, func(ctx context.Context) (err error) {
		holds, err = books.SendAhead(ctx, d.src.opt.batch, d.src.opt.canary)
		return err
	})
	if err == nil && !holds {
		err = &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("batch %q has jobs at %s already, and none of them was to go first", d.src.opt.batch, gateway),
			Hint: "leave --canary out, or give this file a batch of its own"}
	}
	if err == nil {
		d.books[gateway] = books
	}
	return err
}

// canaryStanding is the state of a batch's first jobs at one gateway.
type canaryStanding struct {
	Gateway string `json:"gateway"`
	First   int64  `json:"first"`
	Done    int64  `json:"done"`
	State   string `json:"state"`
	Waiting int64  `json:"waiting"` // jobs parked until the first ones are done
	Why     string `json:"why,omitempty"`

	goOn string
}

// The states of a canary.
const (
	canaryWaiting = "waiting" // the first jobs are not all done
	canaryStopped = "stopped" // the batch has stopped itself
	canaryOver    = "over"    // the remaining jobs are admitted, or an operator has decided about the batch
)

type canaries []canaryStanding

// standing reads the state of the first jobs at every gateway.
func (d *canaryDoor) standing(ctx context.Context) (all canaries, err error) {
	for _, gateway := range slices.Sorted(maps.Keys(d.books)) {
		var b record.Batch
		if err := redisdb.Patiently(ctx, d.src.opt.patience, func(ctx context.Context) (err error) {
			b, _, err = d.books[gateway].Batch(ctx, d.src.opt.batch)
			return err
		}); err != nil {
			return nil, err
		}
		s := canaryStanding{Gateway: gateway, First: b.Canary.Jobs, Done: b.Canary.Done, State: canaryOver, goOn: dispatch.GoOn(d.src.opt.batch, b),
			Waiting: b.Places[record.Place{State: job.Parked, Reason: job.Paused}].Jobs}
		switch {
		case b.Braked:
			s.State, s.Why = canaryStopped, b.Why
		case b.Canary.Waits:
			s.State = canaryWaiting
		}
		all = append(all, s)
	}
	return all, nil
}

// remark writes which jobs wait for which, and reports whether it wrote anything.
func (c canaries) remark(out io.Writer, batch string) (said bool) {
	for _, s := range c {
		if s.State == canaryWaiting && s.Waiting > 0 {
			fmt.Fprintf(out, "%s: %d go first, %s wait until they are done: dispatcher batch %s\n", s.Gateway, s.First, job.CountText(s.Waiting), dispatch.ShellWord(batch))
			said = true
		}
	}
	return said
}

// verdict returns an error that names the gateways at which the batch has stopped itself.
func (c canaries) verdict(batch string) (err error) {
	for _, s := range c {
		if s.State == canaryStopped {
			err = errors.Join(err, &job.Error{Code: job.CodeInvalid, Hint: s.goOn,
				Message: fmt.Sprintf("batch %q has stopped itself at %s: %s; %s jobs wait", batch, s.Gateway, s.Why, job.CountText(s.Waiting))})
		}
	}
	return err
}
