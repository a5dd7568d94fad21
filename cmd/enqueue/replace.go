package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"spillway/internal/admission"
	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/redisdb"
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

// openReplacement returns the door of replaced payloads.
func openReplacement(ctx context.Context, src jobSource, db *redisdb.DB) (*opened, error) {
	who, err := cli.WhoAmI()
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	r := desk.New(db.Client, src.cfg.Gateways).Replace(desk.ReplaceOptions{By: desk.By{Who: who, Why: src.opt.why}, Filter: "the lines of " + src.opt.file,
		Look: src.opt.dryRun, LoseAmounts: src.opt.withoutAmount, Patience: src.opt.patience, Traces: src.traces})
	return &opened{door: replaceDoor{r}, replacing: r, close: func() {
		r.Close(ctx)
		_ = db.Close()
	}}, nil
}

// moneyText returns "EUR 10.50, 2 jobs without an amount", or "no money" if there is none.
func moneyText(money job.Amounts, without int64) string {
	return cmp.Or(job.MoneyText(money, without), "no money")
}

// replacedText returns "3 jobs: EUR 3.00 → EUR 2.70".
func replacedText(r *desk.Replaced) string {
	return fmt.Sprintf("%s: %s → %s", job.JobsText(r.Jobs), moneyText(r.Before, r.NoAmountBefore), moneyText(r.After, r.NoAmountAfter))
}

// lostText returns a warning that jobs lose their amount, or "" if none does.
func lostText(r *desk.Replaced) string {
	if r.Lost == 0 {
		return ""
	}
	return fmt.Sprintf("warning: %s without the amount that could be read before", job.JobsText(int64(r.Lost)))
}

// askReplace reads the whole file, shows what the replacement would change, and asks for confirmation.
func askReplace(ctx context.Context, src jobSource, t *tally) (cli.Decision, error) {
	if err := src.in.twice(); err != nil {
		return cli.Declined, err
	}
	seen, err := src.in.changed()
	if err != nil {
		return cli.Declined, fmt.Errorf("reading %s: %w", src.in.path, err)
	}
	looking := src
	looking.opt.dryRun = true
	d, err := openDoor(ctx, looking, t.say)
	if err != nil {
		return cli.Declined, err
	}
	defer d.close()
	quiet := &tally{s: cli.Streams{In: t.s.In, Out: io.Discard, Err: io.Discard}, opt: looking.opt, in: src.in}
	quiet.begin(t.started)
	err = quiet.stopped(flow(ctx, looking, d, quiet))
	if err == nil {
		err = src.in.again(seen)
	}
	if err != nil {
		return cli.Declined, err
	}
	would := d.replacing.Sum()
	if n := quiet.counts().Invalid; n > 0 {
		t.say("%d of the lines can't be used; --dry-run says why", n)
	}
	if text := lostText(would); text != "" {
		t.say("%s", text)
	}
	return cli.Confirm(ctx, t.s, cli.Consent{}, "Replace the payloads of "+replacedText(would))
}
