package main

import (
	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/remote"
)

// resolveFlags are the flags that only resolve has.
type resolveFlags struct {
	*clearFlags
	done, notDone, ask bool
	reference          string
}

func dlqResolveCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "resolve --done|--not-done|--ask --why REASON [flags]", Short: "Settle jobs that may have been charged, or ask the gateway",
		Long: `Resolve settles parked jobs in doubt, after a person has looked them up at the gateway: those of
unknown_outcome, and those parked for any other reason if an earlier call may have charged. Without --reason
and --id it selects all of these; other jobs are skipped.

--done: they were charged, and become done; --reference stores the gateway's own reference for one job.
--not-done: they were not charged, and go through admission again with the next generation of their idempotency
key. A job whose time has passed is not called: it stays parked as expired, and can be discarded.
--ask: Spillway looks them up now, if the file has a lookup for the gateway. They are pending then, and are
settled as soon as the gateway can tell; after the last look-up of the schedule they are parked again.
--why is optional here.

"dispatcher job" and "dispatcher batch NAME --export" show who settled a job, when and why.`,
		Example: "  dispatcher dlq resolve --done --id inv-1042 --reference ch_3K --why 'in the settlement file'\n  dispatcher dlq resolve --not-done -g adyen --since 2d --why 'not in the settlement file'\n  dispatcher dlq resolve --ask --batch 2026-11",
		Args:    noArgs,
	}
	f := &resolveFlags{clearFlags: clearingFlags(cmd)}
	cmd.Flags().StringVar(&f.why, "why", "", "the `REASON`, recorded in the trail; required, except with --ask")
	cmd.Flags().BoolVar(&f.done, "done", false, "they were charged")
	cmd.Flags().BoolVar(&f.notDone, "not-done", false, "they were not charged")
	cmd.Flags().BoolVar(&f.ask, "ask", false, "ask the gateway now")
	cmd.Flags().StringVar(&f.reference, "reference", "", "the gateway's own reference, as `NAME`, with --done and one --id")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		return p.clear(cmd.Context(), f.clearFlags, f.action(), remote.Clearing{Reference: f.reference})
	}
	return cmd
}

func (f *resolveFlags) check() error {
	said := 0
	for _, flag := range []bool{f.done, f.notDone, f.ask} {
		if flag {
			said++
		}
	}
	if said != 1 {
		return cli.Usage("look the jobs up at the gateway, then say --done if they were charged, --not-done if not; or --ask to have the gateway asked",
			"a resolve needs one of --done, --not-done and --ask")
	}
	if f.ask {
		return f.checkReference()
	}
	if err := f.needWhy("resolve"); err != nil {
		return err
	}
	return f.checkReference()
}

func (f *resolveFlags) checkReference() error {
	switch {
	case !f.cmd.Flags().Changed("reference"):
		return nil
	case !f.done || len(f.ids) != 1:
		return cli.Usage("name the job with --id, and say --done", "--reference is of the payment of one job that is done")
	case f.reference == "":
		return cli.Usage("give it a value, or leave it out", "--reference is empty")
	case !desk.GoodReference(f.reference):
		return cli.Usage("copy it from the gateway: ch_3K…", "--reference must be 1 to %d visible ASCII characters without a space", desk.MostReference)
	}
	return nil
}

func (f *resolveFlags) action() desk.Action {
	switch {
	case f.done:
		return desk.Done
	case f.ask:
		return desk.Ask
	}
	return desk.NotDone
}
