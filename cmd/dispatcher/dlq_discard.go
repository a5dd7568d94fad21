package main

import (
	"github.com/spf13/cobra"

	"spillway/internal/desk"
	"spillway/internal/remote"
)

func dlqDiscardCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "discard --why REASON [flags]", Short: "Remove parked jobs for good, keeping their records",
		Long: `Discard removes the selected jobs for good. Their payloads and errors are deleted at once. The rest of their
records is kept for the gateway's dedupe time: until then their ids are known, and not accepted again. They
still count in the sums of their batches.

Jobs that may have been charged are skipped: look them up at the gateway, then settle them with "dlq
resolve". --may-be-charged discards them anyway; Spillway then never settles whether they were charged.

A job named with --id may also be waiting for its call: queued, scheduled or in back-off. It is removed from
the queue and discarded in one step. A job in flight is not discarded, because its call can't be undone.`,
		Example: "  dispatcher dlq discard --reason expired --why 'too late to bill'\n  dispatcher dlq discard --id inv-1042 --why 'cancelled by the customer' --yes",
		Args:    noArgs,
	}
	f := clearingFlags(cmd)
	cmd.Flags().StringVar(&f.why, "why", "", "the `REASON`, recorded in the trail; required")
	cmd.Flags().BoolVar(&f.mayBeCharged, "may-be-charged", false, "also discard jobs that may have been charged: they are then never settled")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.needWhy("discard"); err != nil {
			return err
		}
		return p.clear(cmd.Context(), f, desk.Discard, remote.Clearing{})
	}
	return cmd
}
