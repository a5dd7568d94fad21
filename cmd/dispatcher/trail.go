package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/job"
	"spillway/internal/remote"
)

func trailCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "trail", Short: "Verify who did what: dlq history shows it", Example: "  dispatcher trail verify"}
	cmd.AddCommand(trailVerifyCommand(p))
	return cmd
}

func trailVerifyCommand(p *program) *cobra.Command {
	var names []string
	var head string
	cmd := &cobra.Command{
		Use: "verify [-g GATEWAY]... [--head LINKS:HASH]", Short: "Check that no entry of the trail was changed, removed or put elsewhere",
		Long: `Verify reads the trail of each gateway and the chain of hashes beside it, and names each entry and each link
that was changed, removed or put elsewhere. Who can write to Redis can write all of the chain anew:
--head compares it with a line "head of the trail" of a dispatcher's log, which he can't.
Exit code 1 if something is wrong.`,
		Example: "  dispatcher trail verify\n  dispatcher trail verify -g stripe --head 1042:9f86d081884c7d65…",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.trailVerify(cmd.Context(), names, head) },
	}
	gatewaysFlag(cmd, &names, "verify the trail of this `GATEWAY` only; repeatable (default: all of the file)")
	cmd.Flags().StringVar(&head, "head", "", "how the chain of the one gateway ended once: `LINKS:HASH`, as a log has it")
	return cmd
}

func (p *program) trailVerify(ctx context.Context, names []string, head string) error {
	q := remote.TrailOf{At: remote.At{Gateways: names}}
	if head != "" {
		links, hash, _ := strings.Cut(head, ":")
		n, err := strconv.ParseInt(links, 10, 64)
		if err != nil || n < 1 || len(hash) != 64 {
			return cli.Usage("copy links and hash from the log: --head 1042:9f86…, with 64 digits", "--head is not LINKS:HASH")
		}
		q.Links, q.Hash = n, hash
	}
	v, err := ask(ctx, p, remote.VerifyTrail, q)
	if err != nil {
		return err
	}
	if p.JSON() {
		err = cli.WriteJSON(p.Out, v)
	} else {
		err = p.trailTable(v)
	}
	return errors.Join(err, trailVerdict(v))
}

func (p *program) trailTable(v remote.Trails) error {
	t := cli.NewTable(p.Streams, time.Now(), "GATEWAY", "ENTRIES", "BEFORE THE CHAIN", "NOT CHAINED YET", "LINKS", "HEAD", "FAULTS")
	for _, g := range v.Gateways {
		t.Row(g.Gateway, g.Entries, g.Before, g.Unchained, g.Head.Links, cli.Uncut(g.Head.Hash), g.Faults)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, g := range v.Gateways {
		for _, f := range g.Findings {
			fmt.Fprintf(p.Out, "%s: %s\n", g.Gateway, f)
		}
	}
	return nil
}

func trailVerdict(v remote.Trails) error {
	var all []error
	for _, g := range v.Gateways {
		if !g.OK {
			all = append(all, &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("the trail of %s is not as it was written: %s", g.Gateway, job.CountText(g.Faults)+" faults"),
				Hint: "keep a copy of Redis's files, and compare with the logs of dispatchers: see docs/security.md, The trail"})
		}
	}
	return errors.Join(all...)
}
