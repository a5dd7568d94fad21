package main

import (
	"github.com/spf13/cobra"

	"spillway/internal/desk"
)

func dlqReplayCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay [flags]", Short: "Send parked jobs through admission again",
		Long: `Replay sends the selected jobs through admission again, oldest first, with a new count of attempts. It waits
for room as long as needed. It can be stopped and run again: nothing is lost or doubled. Jobs parked after
its start are not affected.

A job keeps its id and its idempotency key, unless the gateway has definitely refused it: then it gets the
next generation of the key. These jobs are skipped: jobs that an earlier call may have charged, if the
gateway keeps no keys; jobs whose key it has forgotten by now (key_lifetime), unless --expired-keys; jobs
whose time has passed; and entries that are not jobs.

--rate and --share leave the rest of the limits to live traffic: jobs enter the queue no faster, spread
evenly, each counting with its cost. A share is of the tightest of the gateway's current limits, and follows
"limit set". Both apply to each gateway, and to each replay: two concurrent replays are twice as fast
together.

--priority changes the jobs' class in their records before they are enqueued: jobs of a higher class go
before waiting ones. A class that a gateway does not have is an error.

--canary sends that many jobs of each gateway first and waits until they are finished. If one of them is
parked again or has to be retried, the replay stops (exit code 1). A replay also stops when the gateway is
held or paused, or its circuit is open, with exit code 5. Jobs replayed by then stay replayed; the same
command continues with the rest.`,
		Example: "  dispatcher dlq replay -g stripe --reason refused --since 24h\n  dispatcher dlq replay --batch 2026-11 --canary 20 --share 20% --yes --why 'card network is back'",
		Args:    noArgs,
	}
	f := clearingFlags(cmd)
	cmd.Flags().StringVar(&f.why, "why", "", "the `REASON`, recorded in the trail")
	cmd.Flags().BoolVar(&f.expiredKeys, "expired-keys", false, "also replay jobs whose idempotency key the gateway has forgotten: they may be charged twice")
	pace := pacingFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		careful, err := pace.understand()
		if err != nil {
			return err
		}
		return p.clear(cmd.Context(), f, desk.Replay, careful)
	}
	return cmd
}
