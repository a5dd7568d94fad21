package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/big"

	"spillway/internal/cli"
	"spillway/internal/deadletter"
	"spillway/internal/job"
)

// replaced is what a replacement comes to, or would: part of "enqueue --replace -o json".
type replaced struct {
	Jobs       int                 `json:"jobs"`
	Before     map[string]*big.Int `json:"amount_before"`
	BareBefore int                 `json:"without_amount_before"`
	After      map[string]*big.Int `json:"amount_after"`
	BareAfter  int                 `json:"without_amount_after"`
	Lost       int                 `json:"amounts_lost"` // jobs whose amount could be read before alone
	Paused     int                 `json:"-"`            // jobs that stay parked until their batch is resumed; report.Parked has them too
}

func newReplaced() *replaced {
	return &replaced{Before: map[string]*big.Int{}, After: map[string]*big.Int{}}
}

func (r *replaced) add(d deadletter.Deed) {
	r.Jobs += d.Jobs
	r.BareBefore += d.Replaced.Bare
	r.BareAfter += d.Bare
	addMoney(r.Before, d.Replaced.Amount)
	addMoney(r.After, d.Amount)
}

func addMoney(to, from map[string]*big.Int) {
	for currency, minor := range from {
		if to[currency] == nil {
			to[currency] = new(big.Int)
		}
		to[currency].Add(to[currency], minor)
	}
}

// moneyText is "EUR 10.50, 2 jobs without an amount"; "no money" where there is none.
func moneyText(money map[string]*big.Int, bare int) string {
	return cmp.Or(job.MoneyText(money, bare), "no money")
}

func jobsText(n int) string {
	if n == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", n)
}

// text is "3 jobs: EUR 3.00 → EUR 2.70".
func (r *replaced) text() string {
	return fmt.Sprintf("%s: %s → %s", jobsText(r.Jobs), moneyText(r.Before, r.BareBefore), moneyText(r.After, r.BareAfter))
}

// lost says loudly that jobs lose their amount; empty if none does.
func (r *replaced) lost() string {
	if r.Lost == 0 {
		return ""
	}
	return fmt.Sprintf("warning: %s without the amount that could be read before", jobsText(r.Lost))
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
