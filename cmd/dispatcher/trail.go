package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/remote"
)

func trailCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "trail", Short: "Verify and export the trail that dlq history shows", Example: "  dispatcher trail verify\n  dispatcher trail export > trail.ndjson"}
	cmd.AddCommand(trailVerifyCommand(p), trailExportCommand(p))
	return cmd
}

func trailVerifyCommand(p *program) *cobra.Command {
	var names []string
	var head, file string
	cmd := &cobra.Command{
		Use: "verify [-g GATEWAY]... [--head LINKS:HASH] [--file FILE]", Short: "Check that no entry of the trail was changed, removed or moved",
		Long: `Verify reads the trail of each gateway and its chain of hashes, and names each entry and each link
that was changed, removed or moved. Anyone who can write to Redis can rewrite the whole chain:
--head compares it with a line "head of the trail" of a dispatcher's log, which they can't change.
--file verifies the output of "trail export", and needs neither Redis nor a configuration.
Exit code 1 if something is wrong.`,
		Example: "  dispatcher trail verify\n  dispatcher trail verify -g stripe --head 1042:9f86d081884c7d65…",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.trailVerify(cmd.Context(), names, head, file) },
	}
	gatewaysFlag(cmd, &names, "verify the trail of this `GATEWAY` only; repeatable (default: all of the file)")
	cmd.Flags().StringVar(&head, "head", "", "an earlier head of the gateway's chain, from a log: `LINKS:HASH`")
	cmd.Flags().StringVar(&file, "file", "", "verify this `FILE` of \"trail export\" (- for standard input)")
	cmd.MarkFlagsMutuallyExclusive("file", "gateway")
	return cmd
}

func trailExportCommand(p *program) *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use: "export [-g GATEWAY]...", Short: "Write the trail with its chain of hashes as NDJSON",
		Long: `Export writes all links and entries of the trail of each gateway, byte for byte as in Redis, followed by the
head of the chain. "trail verify --file" verifies the file without Redis. Store exports where people with
write access to Redis can't change them.`,
		Example: "  dispatcher trail export > trail.ndjson\n  dispatcher trail verify --file trail.ndjson",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := p.atAll(cmd.Context(), names)
			if err != nil {
				return err
			}
			defer d.Close()
			line := func(l deadletter.TrailLine) error { return cli.WriteJSON(p.Out, l) }
			_, err = remote.ExportTrail.Do(cmd.Context(), d, remote.TrailsOf{At: remote.At{Gateways: names}}, remote.Out[deadletter.TrailLine]{Line: line})
			return err
		},
	}
	gatewaysFlag(cmd, &names, "export the trail of this `GATEWAY` only; repeatable (default: all of the file)")
	return cmd
}

func (p *program) trailVerify(ctx context.Context, names []string, head, file string) error {
	q := remote.TrailOf{At: remote.At{Gateways: names}}
	if head != "" {
		links, hash, _ := strings.Cut(head, ":")
		n, err := strconv.ParseInt(links, 10, 64)
		if err != nil || n < 1 || len(hash) != 64 {
			return cli.Usage("copy links and hash from the log: --head 1042:9f86…, with 64 digits", "--head is not LINKS:HASH")
		}
		q.Links, q.Hash = n, hash
	}
	v, err := p.verifiedTrails(ctx, q, file)
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

func (p *program) verifiedTrails(ctx context.Context, q remote.TrailOf, file string) (v remote.Trails, err error) {
	if file == "" {
		return ask(ctx, p, remote.VerifyTrail, q)
	}
	in := p.In
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return v, cli.Usage("name a file that trail export has written", "%v", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	if v.Gateways, err = deadletter.VerifyFile(in, deadletter.Head{Links: q.Links, Hash: q.Hash}); err != nil {
		return v, fmt.Errorf("%s: %w", file, err)
	}
	if q.Links > 0 && len(v.Gateways) != 1 {
		return v, cli.Usage("export the gateway whose head it is alone: trail export -g GATEWAY", "a head is that of one gateway, and %s has %d", file, len(v.Gateways))
	}
	v.OK = !slices.ContainsFunc(v.Gateways, func(g deadletter.Verified) bool { return !g.OK })
	return v, nil
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
