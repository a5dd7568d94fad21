package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
)

func parkCommand(p *program) *cobra.Command {
	f := &actFlags{}
	cmd := &cobra.Command{
		Use: "park ID --why TEXT [-g GATEWAY]", Short: "Remove one job from the queue, or stop its look-ups, and park it",
		Long: `Park removes a job that waits for its call from the queue: queued, scheduled or in back-off. It is parked as
cancelled, or as unknown_outcome if an earlier call may have charged, until a person replays, discards or
resolves it. A job in flight is not parked: its call can't be undone. A pending job gets no more look-ups,
and is parked as unknown_outcome, so that a person can settle it.

It asks on a terminal; elsewhere it is a dry run, unless --yes is given. "dlq history" shows who did it,
when and why. To remove a job for good at once, use "dlq discard --id ID".`,
		Example: "  dispatcher park inv-1042 --why \"wrong customer, ticket 4711\" --yes",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.park(cmd.Context(), args[0], f) },
	}
	f.declare(cmd, "look in this `GATEWAY` only; repeatable (default: all of the file)", "the `REASON`, recorded in the trail; required")
	return cmd
}

func (p *program) park(ctx context.Context, id string, f *actFlags) error {
	by, to, err := p.forAct(ctx, f.why, "park")
	if err != nil {
		return err
	}
	defer to.Close()
	q := remote.ParkOf{ID: id, At: remote.At{Gateways: f.gateways}, Actor: by, DryRun: true}
	d, err := remote.Park.Ask(ctx, to, q)
	if err != nil {
		return err
	}
	decision, err := cli.Confirm(ctx, p.Streams, f.consent, "Park "+parkText(d))
	if err != nil {
		return err
	}
	if decision == cli.Go {
		q.DryRun = false
		if d, err = remote.Park.Ask(ctx, to, q); err != nil {
			return err
		}
	}
	return p.writePark(d, decision)
}

// parkText describes the job and what becomes of it.
func parkText(d desk.ParkDeed) string {
	is, worth := "is", job.MoneyText(d.Amount, d.NoAmount)
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

func (p *program) writePark(d desk.ParkDeed, decision cli.Decision) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, d)
	}
	what := map[cli.Decision]string{cli.Go: "parked ", cli.DryRun: "would park "}[decision]
	line := what + parkText(d)
	return p.tellDone(line, decision)
}

// tellDone prints line if the act was done or would be.
func (p *program) tellDone(line string, decision cli.Decision) error {
	if decision == cli.Declined {
		line = "nothing was changed"
	}
	if _, err := fmt.Fprintln(p.Tell(), line); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	p.remarkDryRun(decision)
	return nil
}
