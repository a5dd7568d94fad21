package main

import (
	"github.com/spf13/cobra"

	"spillway/internal/desk"
)

func dlqReplayCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay [flags]", Short: "Take parked jobs in again, through admission",
		Long: `Replay takes the chosen jobs in again through admission, oldest first, with a new count of attempts. It waits
for room as long as that takes. It can be stopped and run again: nothing is lost or doubled. Jobs parked after it
began are left alone.

A job keeps its id and its idempotency key, unless the gateway has said a definite no (refused): then a new
generation of the key goes out. These are held back: jobs that an earlier call may have charged, where the gateway
keeps no keys; those whose key it has forgotten by now (key_lifetime), unless --expired-keys; those whose
time has passed; and what is not a job.

--rate and --share leave the rest of the limits to live traffic: jobs go into the queue no faster, spread evenly,
a job counting for its cost. A share is of the tightest of the gateway's limits as they are now, and follows
"limit set". Both hold for each gateway, and for each replay: two at once go twice as fast together.

--priority gives the jobs another class of their gateways, in their records, before they go in: urgent ones go before what
waits. A class that a gateway does not have is refused.

--canary sends so many jobs of each gateway first and waits until they are finished: one that is parked again,
or has to be tried again, stops the replay (exit code 1). It stops too when the gateway is held or paused,
or its circuit is open, with exit code 5. What was replayed by then stays so; the same command goes on with the rest.`,
		Example: "  dispatcher dlq replay -g stripe --reason refused --since 24h\n  dispatcher dlq replay --batch 2026-11 --canary 20 --share 20% --yes --why 'card network is back'",
		Args:    noArgs,
	}
	f := clearingFlags(cmd)
	cmd.Flags().StringVar(&f.why, "why", "", "the `REASON`, written down")
	cmd.Flags().BoolVar(&f.expiredKeys, "expired-keys", false, "also jobs whose idempotency key the gateway has forgotten: they may be charged twice")
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
