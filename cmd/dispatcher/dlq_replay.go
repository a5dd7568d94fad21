package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/deadletter"
	"spillway/internal/job"
)

// What became of the jobs of an act.
const (
	replayed  = "replayed"
	discarded = "discarded"
	resolved  = "resolved"
)

func dlqReplayCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay [flags]", Short: "Take parked jobs in again, through admission",
		Long: `Replay takes the chosen jobs in again through admission, oldest first, with attempts counted anew. It waits
for room as long as that takes; stopped and started again, it loses and doubles nothing. Jobs parked after it
began are left alone.

A job keeps its id and its idempotency key, unless the gateway has said a definite no (refused): then a new
generation of the key goes out. Held back are jobs that an earlier call may have charged, where the gateway
keeps no keys; those whose key it has forgotten by now (key_lifetime), unless --expired-keys; those whose
time has passed; and what is not a job.

--rate and --share leave the rest of the limits to live traffic: jobs go into the queue no faster, spread evenly,
a job counting for its cost. A share is of the tightest of the gateway's limits as they are now, and follows
"limit set". Both hold for each gateway, and for each replay: two at once go twice as fast together.

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
		return p.clear(cmd.Context(), f, act{
			verb: "replay", past: replayed, what: "replay", caution: careful,
			decide: deadletter.Rules.Key,
			run: func(ctx context.Context, c deadletter.Clearing, u unit) (deadletter.Cleared, error) {
				return c.Replay(ctx, u.admit, u.rules)
			},
		})
	}
	return cmd
}

// whatever decides that a job is taken, whatever it is.
func whatever(deadletter.Rules, job.Record) (change job.KeyChange, why string) {
	return job.KeepKey, ""
}

func dlqDiscardCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "discard --why REASON [flags]", Short: "Take parked jobs out for good, keeping their records",
		Long: `Discard takes the chosen jobs out for good. Their records stay for the gateway's dedupe time: until then
their ids are known, and not accepted again.`,
		Example: "  dispatcher dlq discard --reason expired --why 'too late to bill'\n  dispatcher dlq discard --id inv-1042 --why 'cancelled by the customer' --yes",
		Args:    noArgs,
	}
	f := clearingFlags(cmd)
	cmd.Flags().StringVar(&f.why, "why", "", "the `REASON`, written down; required")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.needWhy("discard"); err != nil {
			return err
		}
		return p.clear(cmd.Context(), f, act{
			verb: "discard", past: discarded, what: "discard", decide: whatever,
			run: func(ctx context.Context, c deadletter.Clearing, u unit) (deadletter.Cleared, error) {
				return c.Discard(ctx, u.g.Dedupe)
			},
		})
	}
	return cmd
}

func dlqResolveCommand(p *program) *cobra.Command {
	var done, notDone bool
	cmd := &cobra.Command{
		Use: "resolve --done|--not-done --why REASON [flags]", Short: "Settle jobs of unknown outcome once they were looked up",
		Long: `Resolve settles jobs parked as unknown_outcome, once a person has looked them up at the gateway. --done: they
were charged, and are done. --not-done: they were not, and go in again through admission, with a new
generation of their idempotency key.`,
		Example: "  dispatcher dlq resolve --done --id inv-1042 --why 'paid, see ch_3K'\n  dispatcher dlq resolve --not-done -g adyen --since 2d --why 'not in the settlement file'",
		Args:    noArgs,
	}
	f := clearingFlags(cmd)
	cmd.Flags().StringVar(&f.why, "why", "", "the `REASON`, written down; required")
	cmd.Flags().BoolVar(&done, "done", false, "they were charged")
	cmd.Flags().BoolVar(&notDone, "not-done", false, "they were not charged")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if done == notDone {
			return cli.Usage("look the jobs up at the gateway, then say --done if they were charged, --not-done if not",
				"a resolve needs either --done or --not-done")
		}
		if err := f.needWhy("resolve"); err != nil {
			return err
		}
		if err := f.onlyUnknown(); err != nil {
			return err
		}
		return p.clear(cmd.Context(), f, resolving(done))
	}
	return cmd
}

// onlyUnknown refuses reasons that can't be resolved.
func (f *clearFlags) onlyUnknown() error {
	if slices.ContainsFunc(f.reasons, func(r string) bool { return r != string(job.UnknownOutcome) }) {
		return cli.Usage("replay or discard the others", "only jobs parked as %s can be resolved", job.UnknownOutcome)
	}
	return nil
}

func resolving(done bool) act {
	if done {
		return act{verb: "resolve as done", past: resolved, what: "resolve --done", only: job.UnknownOutcome, decide: whatever,
			run: func(ctx context.Context, c deadletter.Clearing, u unit) (deadletter.Cleared, error) {
				return c.Done(ctx, u.g.Dedupe)
			},
		}
	}
	return act{verb: "resolve as not done", past: resolved, what: "resolve --not-done", only: job.UnknownOutcome,
		decide: deadletter.Rules.NotDone,
		run: func(ctx context.Context, c deadletter.Clearing, u unit) (deadletter.Cleared, error) {
			return c.NotDone(ctx, u.admit, u.rules)
		},
	}
}
