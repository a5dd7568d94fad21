package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/producer"
)

func dlqExportCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "export [flags]", Short: "Write parked jobs as a billing file that enqueue reads",
		Long: `Export writes the parked jobs to standard output as NDJSON, which "enqueue -f" reads as it is. They stay
parked; enqueued on this Redis again, they are duplicates. The lines hold the payloads: they may hold
personal data.`,
		Example: "  dispatcher dlq export -g stripe --reason refused > refused.ndjson\n  dispatcher dlq export --batch 2026-11 | enqueue -f - -c elsewhere.yaml",
		Args:    noArgs,
	}
	f := filterFlags(cmd)
	f.afterFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return p.dlqExport(cmd.Context(), f) }
	return cmd
}

// exportLine is a line of a billing file.
type exportLine struct {
	ID      string          `json:"id"`
	Gateway string          `json:"gateway"`
	Payload json.RawMessage `json:"payload"`
	Cost    int64           `json:"cost,omitempty"`
	At      *time.Time      `json:"at,omitempty"`
	Expires *time.Time      `json:"expires,omitempty"`
	Batch   string          `json:"batch,omitempty"`
}

func (p *program) dlqExport(ctx context.Context, f *dlqFilter) error {
	s, err := p.choose(ctx, f)
	if err != nil {
		return err
	}
	defer s.close()
	s.filter.Looked = p.looking()
	out := bufio.NewWriter(p.Out)
	missing, err := s.each(ctx, func(_ config.Gateway, r job.Record) error { return p.export(out, r) })
	if flushed := out.Flush(); err == nil && flushed != nil {
		err = fmt.Errorf("writing the result: %w", flushed)
	}
	if err != nil {
		return err
	}
	return p.remarkMissing(ctx, s, missing)
}

func (p *program) export(out *bufio.Writer, r job.Record) error {
	line := exportLine{ID: r.Job.ID, Gateway: r.Job.Gateway, Payload: r.Job.Payload, At: when(r.Job.At), Expires: when(r.Job.Expires),
		Batch: r.Job.Batch}
	if r.Job.Cost > 1 {
		line.Cost = r.Job.Cost
	}
	if !json.Valid(line.Payload) {
		p.remark("left out: job %q of %s: its content is not JSON", line.ID, line.Gateway)
		return nil
	}
	var text bytes.Buffer
	if err := cli.WriteJSON(&text, line); err != nil {
		return err
	}
	// What came in as a job can go in again; only what was never one has to be looked at.
	if r.Reason == job.Unreadable {
		if err := readable(text.Bytes()); err != nil {
			p.remark("left out: job %q of %s: %v", line.ID, line.Gateway, err)
			return nil
		}
	}
	if text.Len() > job.MaxLine {
		p.remark("job %q of %s: its line is longer than %d bytes, which enqueue refuses", line.ID, line.Gateway, job.MaxLine)
	}
	_, err := out.Write(text.Bytes())
	return err
}

// remark writes a line to standard error, unless -q.
func (p *program) remark(format string, args ...any) {
	if !p.Quiet {
		fmt.Fprintf(p.Err, format+"\n", args...)
	}
}

// readable returns why enqueue could not use the line, or nil.
func readable(line []byte) error {
	r, err := producer.New(bytes.NewReader(line), producer.Options{Format: producer.NDJSON})
	if err != nil {
		return err
	}
	read, err := r.Next()
	if err != nil {
		return err
	}
	return read.Err
}
