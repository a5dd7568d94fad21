package main

import (
	"context"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/job"
	"spillway/internal/remote"
)

// moveFlags is the command line of "gateway rename" and "gateway forget" as typed.
type moveFlags struct {
	old, to string // no to: it is to be forgotten
	why     string
	consent cli.Consent
}

func (f *moveFlags) declare(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.why, "why", "", "the `REASON`, written down; required")
	consentFlags(cmd, &f.consent)
}

func gatewayRenameCommand(p *program) *cobra.Command {
	f := &moveFlags{}
	cmd := &cobra.Command{
		Use: "rename OLD NEW --why TEXT", Short: "Give all that a gateway has in Redis the name that the file has now",
		Long: `Rename gives all that OLD has in Redis the name NEW: its jobs with their ids, its batches, books, limits set live, and its
trail. NEW must be in the file and have had no job yet; OLD must not be in the file. What was known of ids stays
known, and idempotency keys stay as they are: they are made of the job's id, behind request.key.prefix. Where NEW has another
URL, method or prefix, it says how many jobs went out otherwise: they are parked as unknown_outcome, and not called.

Nobody may serve either gateway meanwhile: stop each run that does, and wait 15 s. No call may be under way. Until it is
over no job goes in at either name. Killed anywhere, it goes on when it is run again. It can't be done in a Redis Cluster, nor
with encrypted payloads: have both names in the file then, until the jobs of the old one are done.

It asks on a terminal; off one it only says what it would do, unless --yes. The entry is in "dlq history" of NEW.`,
		Example: "  dispatcher gateway rename up stripe-eu --why 'one name for all of the EU' --yes",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.old, f.to = args[0], args[1]
			return p.move(cmd.Context(), f)
		},
	}
	f.declare(cmd)
	return cmd
}

func gatewayForgetCommand(p *program) *cobra.Command {
	f := &moveFlags{}
	cmd := &cobra.Command{
		Use: "forget NAME --why TEXT", Short: "Delete all that a gateway has in Redis",
		Long: `Forget deletes all that NAME has in Redis: its jobs, whether they wait or are parked, their ids, batches, books and trail. It shows how many
jobs there are and what is known of their money. NAME must not be in the file, and nobody may serve it. Jobs that may have been
charged hold it back: they are to be settled first (dlq resolve). Nothing brings the rest back.

It asks on a terminal; off one it only says what it would do, unless --yes. Who did it, when, why, and what there was stays in
"dlq history". Killed anywhere, it goes on when it is run again.`,
		Example: "  dispatcher gateway forget sandbox --why 'trial is over' --yes",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.old = args[0]
			return p.move(cmd.Context(), f)
		},
	}
	f.declare(cmd)
	return cmd
}

func (f *moveFlags) verb() string {
	if f.to == "" {
		return "forget"
	}
	return "rename"
}

// move asks what it would come to, says so, and does it.
func (p *program) move(ctx context.Context, f *moveFlags) error {
	by, to, err := p.forAct(ctx, f.why, f.verb())
	if err != nil {
		return err
	}
	defer to.Close()
	op := remote.Rename
	if f.to == "" {
		op = remote.Forget
	}
	q := remote.MoveOf{GatewayAct: remote.GatewayAct{Gateway: f.old, Actor: by}, To: f.to, DryRun: true}
	d, err := op.Ask(ctx, to, q)
	if err != nil {
		return err
	}
	if d.Otherwise > 0 {
		p.remark("%s went out with another URL, method, encoding or request.key.prefix than %s has: they will be parked as unknown_outcome, and not called. Give %[2]s those of %[3]s, "+
			"and they are called again", job.JobsText(d.Otherwise), f.to, f.old)
	}
	decision, err := cli.Confirm(ctx, p.Streams, f.consent, capital(d.Text))
	if err != nil {
		return err
	}
	if decision == cli.Go {
		q.DryRun = false
		if d, err = p.doMove(ctx, to, op, q, d.What); err != nil {
			return err
		}
	}
	return p.writeMove(d, decision)
}

func (p *program) doMove(ctx context.Context, to remote.Desk, op *remote.Move, q remote.MoveOf, what string) (remote.Moved, error) {
	bar := cli.NewProgress(p.Streams, cli.ProgressParams{What: what + ", keys", Quiet: p.Quiet})
	defer bar.Close()
	keys := int64(0)
	return op.Do(ctx, to, q, remote.Out[remote.MoveStep]{Line: func(s remote.MoveStep) error {
		keys += s.Keys
		bar.Set(keys)
		return nil
	}})
}

func (p *program) writeMove(d remote.Moved, decision cli.Decision) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, d.Departure)
	}
	line := map[cli.Decision]string{cli.Go: "done: ", cli.DryRun: "would "}[decision] + d.Text
	return p.tellDone(line, decision)
}
