package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/producer"
	"spillway/internal/seal"
)

func dlqExportCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "export [flags]", Short: "Write parked jobs as a billing file that enqueue reads",
		Long: `Export writes the parked jobs to standard output as NDJSON, which "enqueue -f" reads as it is. They stay
parked; enqueued on this Redis again, they are duplicates. The lines hold the payloads: they may hold
personal data.

Where the configuration has encryption, the payloads are written as they are stored: sealed. Only an enqueue with the
keys can read such lines, each for its own job and gateway. --plain opens them.`,
		Example: "  dispatcher dlq export -g stripe --reason refused > refused.ndjson\n  dispatcher dlq export --batch 2026-11 | enqueue -f - -c elsewhere.yaml",
		Args:    noArgs,
	}
	f := filterFlags(cmd)
	f.afterFlag(cmd)
	cmd.Flags().BoolVar(&p.payloads, "plain", false, "write sealed payloads as they were before they were sealed: needs the keys")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return p.dlqExport(cmd.Context(), f) }
	return cmd
}

// exportLine is a line of a billing file.
type exportLine struct {
	ID      string          `json:"id"`
	Gateway string          `json:"gateway"`
	Payload json.RawMessage `json:"payload,omitempty"`
	Sealed  []byte          `json:"sealed,omitempty"` // instead of payload
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
	s.Filter.Looked = p.looking()
	out := bufio.NewWriter(p.Out)
	missing, err := s.Each(ctx, func(g *desk.Gateway, r job.Record) error { return p.export(out, g, r) })
	if flushed := out.Flush(); err == nil && flushed != nil {
		err = fmt.Errorf("writing the result: %w", flushed)
	}
	if err != nil {
		return err
	}
	return p.remarkMissing(ctx, s.Selection, missing)
}

func (p *program) export(out *bufio.Writer, g *desk.Gateway, r job.Record) error {
	line := exportLine{ID: r.Job.ID, Gateway: r.Job.Gateway, Payload: r.Job.Payload, Batch: r.Job.Batch}
	if !r.Job.At.IsZero() {
		line.At = &r.Job.At
	}
	if !r.Job.Expires.IsZero() {
		line.Expires = &r.Job.Expires
	}
	if r.Job.Cost > 1 {
		line.Cost = r.Job.Cost
	}
	if why := p.unfit(line, r); why != nil {
		p.remark("left out: job %q of %s: %v", line.ID, line.Gateway, why)
		return nil
	}
	var err error
	if line, err = p.sealedLine(line, g, r); err != nil {
		return err
	}
	var text bytes.Buffer
	if err := cli.WriteJSON(&text, line); err != nil {
		return err
	}
	if text.Len() > job.MaxLine {
		p.remark("job %q of %s: its line is longer than %d bytes, which enqueue refuses", line.ID, line.Gateway, job.MaxLine)
	}
	_, err = out.Write(text.Bytes())
	return err
}

// unfit returns why a job can't be a line of a billing file, or nil. What came in as a job can go in again, sealed or not; only what was
// never one has to be looked at.
func (p *program) unfit(line exportLine, r job.Record) error {
	switch foreign := r.Reason == job.Unreadable; {
	case r.Unopened != nil && (p.payloads || foreign || errors.Is(r.Unopened, seal.ErrChanged)):
		return r.Unopened
	case r.Unopened != nil:
		return nil
	case !json.Valid(line.Payload):
		return errors.New("its content is not JSON")
	case !foreign:
		return nil
	}
	var text bytes.Buffer
	if err := cli.WriteJSON(&text, line); err != nil {
		return err
	}
	return readable(text.Bytes())
}

// sealedLine puts the sealed payload in the place of the one in plain, unless that was asked for.
func (p *program) sealedLine(line exportLine, g *desk.Gateway, r job.Record) (exportLine, error) {
	box := dispatch.Box(g.Gateway)
	if p.payloads || (r.Sealed == nil && !box.Seals()) {
		return line, nil
	}
	line.Sealed = r.Sealed
	if line.Sealed == nil { // from before payloads were sealed
		var err error
		if line.Sealed, err = box.Seal(line.ID, line.Payload); err != nil {
			return line, fmt.Errorf("job %q of %s: %w", line.ID, line.Gateway, err)
		}
	}
	line.Payload = nil
	return line, nil
}

// remark writes a line to standard error, unless -q.
func (p *program) remark(format string, args ...any) {
	if !p.Quiet {
		fmt.Fprintf(p.Say(), format+"\n", args...)
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
