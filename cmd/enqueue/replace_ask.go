package main

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"spillway/internal/cli"
	"spillway/internal/deadletter"
	"spillway/internal/job"
)

// replaced is what a replacement comes to, or would: part of "enqueue --replace -o json".
type replaced struct {
	Jobs           int64       `json:"jobs"`
	Before         job.Amounts `json:"amount_before"`
	NoAmountBefore int64       `json:"without_amount_before"`
	After          job.Amounts `json:"amount_after"`
	NoAmountAfter  int64       `json:"without_amount_after"`
	Lost           int         `json:"amounts_lost"` // jobs whose amount could be read before alone
	Paused         int         `json:"-"`            // jobs that stay parked until their batch is resumed; report.Parked has them too
}

func (r *replaced) add(d deadletter.Deed) {
	r.Jobs += d.Jobs
	r.NoAmountBefore += d.Replaced.NoAmount
	r.NoAmountAfter += d.NoAmount
	r.Before.AddAll(d.Replaced.Amount)
	r.After.AddAll(d.Amount)
}

// moneyText is "EUR 10.50, 2 jobs without an amount"; "no money" where there is none.
func moneyText(money job.Amounts, without int64) string {
	return cmp.Or(job.MoneyText(money, without), "no money")
}

// text is "3 jobs: EUR 3.00 → EUR 2.70".
func (r *replaced) text() string {
	return fmt.Sprintf("%s: %s → %s", job.JobsText(r.Jobs), moneyText(r.Before, r.NoAmountBefore), moneyText(r.After, r.NoAmountAfter))
}

// lost says loudly that jobs lose their amount; empty if none does.
func (r *replaced) lost() string {
	if r.Lost == 0 {
		return ""
	}
	return fmt.Sprintf("warning: %s without the amount that could be read before", job.JobsText(int64(r.Lost)))
}

// askReplace shows what a replacement would change, and asks. It looks through the whole file first.
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
	d, closeDoor, err := openDoor(ctx, looking, t.say)
	if err != nil {
		return cli.Declined, err
	}
	defer closeDoor()
	quiet := &tally{s: cli.Streams{In: t.s.In, Out: io.Discard, Err: io.Discard}, opt: looking.opt, in: src.in}
	quiet.begin(t.started)
	err = quiet.stopped(flow(ctx, looking, d, quiet))
	if err == nil {
		err = src.in.again(seen)
	}
	if err != nil {
		return cli.Declined, err
	}
	would := d.(*replaceDoor).sum()
	if n := quiet.counts().Invalid; n > 0 {
		t.say("%d of the lines can't be used; --dry-run says why", n)
	}
	if text := would.lost(); text != "" {
		t.say("%s", text)
	}
	return cli.Confirm(ctx, t.s, cli.Consent{}, "Replace the payloads of "+would.text())
}
