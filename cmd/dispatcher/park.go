package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// parkFlags is the command line of park as typed.
type parkFlags struct {
	gateways []string
	why      string
	consent  cli.Consent
}

func parkCommand(p *program) *cobra.Command {
	f := &parkFlags{}
	cmd := &cobra.Command{
		Use: "park ID --why TEXT [-g GATEWAY]", Short: "Take one job out of the queue, and park it",
		Long: `Park takes a job out that waits for its call: queued, scheduled or waiting for another attempt. It is parked as
cancelled, or as unknown_outcome if an earlier call may have charged, and stays until a person replays, discards or
resolves it. A job in flight is not parked: its call can't be taken back.

It asks on a terminal; off one it only says what it would do, unless --yes. Who did it, when and why stands in
"dlq history". To take a job out for good at once, use "dlq discard --id ID".`,
		Example: "  dispatcher park inv-1042 --why \"wrong customer, ticket 4711\" --yes",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.park(cmd.Context(), args[0], f) },
	}
	gatewaysFlag(cmd, &f.gateways, "look in this `GATEWAY` only; repeatable (default: all of the file)")
	cmd.Flags().StringVar(&f.why, "why", "", "the `REASON`, written down; required")
	consentFlags(cmd, &f.consent)
	return cmd
}

// parkDeed is "park -o json".
type parkDeed struct {
	ID      string     `json:"id"`
	Gateway string     `json:"gateway"`
	Was     job.State  `json:"was"`
	Reason  job.Reason `json:"reason"`
	Unsure  bool       `json:"may_have_charged"`
	Amount  purse      `json:"amount"`
	Bare    int        `json:"without_amount"`
	Done    bool       `json:"done"`
}

func (p *program) park(ctx context.Context, id string, f *parkFlags) error {
	s, chosen, err := p.openToAct(ctx, f.gateways, "park", f.why)
	if err != nil {
		return err
	}
	defer s.close()
	g, rec, err := find(ctx, s, chosen, id)
	if err == nil {
		err = waitsStill(g, rec)
	}
	if err != nil {
		return err
	}
	money := newPile()
	money.add(rec, g.Amount)
	d := parkDeed{ID: id, Gateway: g.Name, Was: rec.State, Reason: job.Cancelled, Unsure: rec.Unsure, Amount: money.money, Bare: money.bare}
	if rec.Unsure {
		d.Reason = job.UnknownOutcome
	}
	decision, err := cli.Confirm(ctx, p.Streams, f.consent, "Park "+d.text(money))
	if err != nil {
		return err
	}
	if d.Done = decision == cli.Go; d.Done {
		err = parkNow(ctx, s, parking{g, rec, s.who, f.why, money})
	}
	if err != nil {
		return err
	}
	return p.writePark(d, money, decision)
}

// waitsStill is why a job can't be parked by hand; nil if it can.
func waitsStill(g config.Gateway, rec job.Record) error {
	switch {
	case rec.Waits():
		return nil
	case rec.State == job.InFlight:
		return &job.Error{Code: job.CodeFailed,
			Message: fmt.Sprintf("job %q is in flight at %s: its call may be under way until %s", rec.Job.ID, g.Name, rec.Deadline.Format(time.RFC3339)),
			Hint:    "wait for its end, then look at it again: dispatcher job " + rec.Job.ID}
	case rec.State == job.Parked:
		return &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("job %q is parked at %s already, as %s", rec.Job.ID, g.Name, rec.Reason),
			Hint: `replay, discard or resolve it with "dispatcher dlq"`}
	}
	return &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("job %q does not wait any more: it is %s at %s", rec.Job.ID, rec.State, g.Name),
		Hint: "there is nothing left to park"}
}

// parking is one job that is to be parked.
type parking struct {
	g     config.Gateway
	rec   job.Record
	who   string
	why   string
	money *pile
}

// parkNow parks the job, which is written down first. One that has moved on since somebody looked is left alone.
func parkNow(ctx context.Context, s *session, to parking) error {
	now, err := s.db.Client.Time(ctx).Result()
	if err != nil {
		return dispatch.Coded(err)
	}
	id := to.rec.Job.ID
	entry := deadletter.New(s.db.Client, to.g.Name).Entry(deadletter.Act{At: now, Who: to.who, What: "park", Why: to.why, Filter: "--id " + id})
	if err := entry.Begin(ctx); err != nil {
		return dispatch.Coded(err)
	}
	last := context.WithoutCancel(ctx)
	taken, err := dispatch.Books(s.db.Client, to.g).For(entry.Place).Withdraw(last, []job.Return{{ID: id, Generation: to.rec.Generation}},
		fmt.Sprintf("parked by %s: %s", to.who, to.why))
	if err != nil {
		return dispatch.Coded(err)
	}
	var deed deadletter.Deed
	if taken[0] {
		deed = deadletter.Deed{Jobs: 1, Amount: to.money.money, Bare: to.money.bare}
	}
	if err := bounded(ctx, func(ctx context.Context) error { return entry.End(ctx, deed) }); err != nil {
		return dispatch.Coded(err)
	}
	if taken[0] {
		return nil
	}
	return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("job %q has moved on meanwhile, and was not parked", id),
		Hint: "look at it again: dispatcher job " + id}
}

// text says what job it is, and what becomes of it.
func (d parkDeed) text(money *pile) string {
	is, worth := "is", money.moneyText()
	if d.Done {
		is = "was"
	}
	if worth != "" {
		worth = " (" + worth + ")"
	}
	text := fmt.Sprintf("job %q%s at %s, which %s %s", d.ID, worth, d.Gateway, is, d.Was)
	if d.Unsure {
		text += " and may have been charged"
	}
	return text + fmt.Sprintf(", as %s", d.Reason)
}

func (p *program) writePark(d parkDeed, money *pile, decision cli.Decision) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, d)
	}
	what := map[cli.Decision]string{cli.Go: "parked ", cli.DryRun: "would park "}[decision]
	line := what + d.text(money)
	if decision == cli.Declined {
		line = "nothing was changed"
	}
	if _, err := fmt.Fprintln(p.Tell(), line); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	if decision == cli.DryRun {
		p.remark("nothing was done: add --yes to do it")
	}
	return nil
}
