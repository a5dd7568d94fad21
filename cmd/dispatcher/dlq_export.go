package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
)

func dlqExportCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "export [flags]", Short: "Write parked jobs as a billing file that enqueue reads",
		Long: `Export writes the parked jobs to standard output as NDJSON, which "enqueue -f" reads. They stay parked;
enqueued on this Redis again, they are duplicates. The lines contain the payloads, which may hold personal
data.

With encryption in the configuration, the payloads are written sealed. Only an enqueue with the keys can
read such lines, each for its own job and gateway. --plain opens them.`,
		Example: "  dispatcher dlq export -g stripe --reason refused > refused.ndjson\n  dispatcher dlq export --batch 2026-11 | enqueue -f - -c elsewhere.yaml",
		Args:    noArgs,
	}
	f := filterFlags(cmd)
	f.afterFlag(cmd)
	cmd.Flags().BoolVar(&p.payloads, "plain", false, "write sealed payloads in plain: needs the keys")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return p.dlqExport(cmd.Context(), f) }
	return cmd
}

func (p *program) dlqExport(ctx context.Context, f *dlqFilter) error {
	filter, d, err := p.selected(ctx, f)
	if err != nil {
		return err
	}
	defer d.Close()
	out := bufio.NewWriter(p.Out)
	q := remote.DeadExportOf{Filter: remote.FilterOf(f.gateways, filter), After: f.after, Plain: p.payloads, Remarks: true}
	_, err = remote.DeadExport.Do(ctx, d, q, remote.Out[desk.ExportLine]{Line: func(l desk.ExportLine) error { return p.export(out, l) },
		Remark: func(text string) { p.remark("%s", text) }})
	if flushed := out.Flush(); err == nil && flushed != nil {
		err = fmt.Errorf("writing the result: %w", flushed)
	}
	return err
}

func (p *program) export(out *bufio.Writer, line desk.ExportLine) error {
	var text bytes.Buffer
	if err := cli.WriteJSON(&text, line); err != nil {
		return err
	}
	if text.Len() > job.MaxLine {
		p.remark("job %q of %s: its line is longer than %d bytes, which enqueue refuses", line.ID, line.Gateway, job.MaxLine)
	}
	_, err := out.Write(text.Bytes())
	return err
}
