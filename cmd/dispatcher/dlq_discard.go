package main

import (
	"github.com/spf13/cobra"

	"spillway/internal/desk"
	"spillway/internal/remote"
)

func dlqDiscardCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "discard --why REASON [flags]", Short: "Take parked jobs out for good, keeping their records",
		Long: `Discard takes the chosen jobs out for good. Their payloads and what the gateway said of them are deleted at
once. What is left of their records stays for the gateway's dedupe time: until then their ids are known, and not
accepted again. What they came to stays in the sums of their batches.

Jobs that may have been charged are held back: look them up at the gateway, then settle them with "dlq resolve".
--may-be-charged discards them all the same; after that, nobody but you can know what became of their money.

A job that is named with --id may also wait for its call: queued, scheduled or waiting for another attempt. It is
taken out of the queue and discarded in one step. One in flight is not: its call can't be taken back.`,
		Example: "  dispatcher dlq discard --reason expired --why 'too late to bill'\n  dispatcher dlq discard --id inv-1042 --why 'cancelled by the customer' --yes",
		Args:    noArgs,
	}
	f := clearingFlags(cmd)
	cmd.Flags().StringVar(&f.why, "why", "", "the `REASON`, written down; required")
	cmd.Flags().BoolVar(&f.mayBeCharged, "may-be-charged", false, "also jobs that may have been charged: nobody will settle them")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.needWhy("discard"); err != nil {
			return err
		}
		return p.clear(cmd.Context(), f, desk.Discard, remote.Clearing{})
	}
	return cmd
}
