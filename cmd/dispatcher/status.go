package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	units "github.com/docker/go-units"
	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
)

func statusCommand(p *program) *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use: "status [-g GATEWAY]...", Short: "Show every gateway at a glance",
		Long: `Status shows one row for each configured gateway: what waits, what is under way, what is done, what is
parked, why and how much money, the rate of the last minute, the hold, and when the last waiting job
will have been called. Jobs that wait for room at admission go in by themselves. They are "rejected" under parked in
JSON, and for --reason.`,
		Example: "  dispatcher status\n  dispatcher status -g stripe -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.status(cmd.Context(), names) },
	}
	gatewaysFlag(cmd, &names, "show this `GATEWAY` only; repeatable (default: all of the file)")
	return cmd
}

func (p *program) status(ctx context.Context, names []string) error {
	s, err := p.openAt(ctx, names)
	if err != nil {
		return err
	}
	defer s.close()
	rows, damaged := s.desk.StatusOfWell(ctx)
	if damaged != nil && len(rows) == 0 {
		return damaged
	}
	unlisted, err := p.unlisted(ctx, s, names)
	if err != nil {
		return err
	}
	if err := p.showStatus(ctx, s.desk, statusDocument{rows, unlisted}); err != nil {
		return err
	}
	return damaged
}

func (p *program) showStatus(ctx context.Context, d *desk.Desk, v statusDocument) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, v)
	}
	rows := v.Gateways
	if err := p.statusTable(rows); err != nil {
		return err
	}
	p.remarkUnlisted("", v.Unlisted)
	p.remarkHolds(rows)
	for _, r := range rows {
		if r.ParkedMost > 0 {
			p.remark("%s: parked.most is %d: once so many jobs are parked, newcomers that find no room are turned away", r.Gateway, r.ParkedMost)
		}
		if r.BytesMost > 0 {
			p.remark("%s: parked.bytes is %s: once so much is parked, newcomers that find no room are turned away", r.Gateway, units.BytesSize(float64(r.BytesMost)))
		}
	}
	if err := p.remarkStopped(ctx, d, rows); err != nil {
		return err
	}
	return p.remarkPaused(ctx, d, rows)
}

// batchesNamed is how many batches of a gateway that stopped themselves status names.
const batchesNamed = 3

// remarkStopped says which batches have stopped themselves, why, and what to type.
func (p *program) remarkStopped(ctx context.Context, d *desk.Desk, rows []desk.Status) error {
	for _, r := range rows {
		if len(r.Parked) == 0 {
			continue
		}
		list, all, err := d.Gateway(r.Gateway).StoppedBatches(ctx, batchesNamed)
		if err != nil {
			return err
		}
		for _, b := range list {
			p.remark("%s: batch %s has stopped itself: %s: %s", r.Gateway, b.Batch, b.Why, b.GoOn)
		}
		if more := all - len(list); more > 0 {
			p.remark("%s: so have %d more", r.Gateway, more)
		}
	}
	return nil
}

// remarkHolds says whole, below a table on a terminal, what its cells have room to name only.
func (p *program) remarkHolds(rows []desk.Status) {
	if !p.OutTerminal {
		return
	}
	for _, r := range rows {
		if why := r.Why(); why != "" {
			p.remark("%s: %s", r.Gateway, why)
		}
	}
}

// remarkPaused says what takes the jobs of paused batches in again. One batch is named, that of the job that is parked longest.
func (p *program) remarkPaused(ctx context.Context, d *desk.Desk, rows []desk.Status) error {
	for _, r := range rows {
		n := r.Parked[string(job.Paused)]
		if n == 0 {
			continue
		}
		batch, err := d.Gateway(r.Gateway).PausedBatch(ctx)
		if err != nil {
			return err
		}
		if batch == "" {
			continue
		}
		goOn, err := d.Gateway(r.Gateway).GoOn(ctx, batch)
		if err != nil {
			return err
		}
		p.remark("%s: %s of paused batches, such as %s: %s", r.Gateway, job.JobsText(n), batch, goOn)
	}
	return nil
}

// statusDocument is what status prints as JSON.
type statusDocument struct {
	Gateways []desk.Status `json:"gateways"`
	// Unlisted are the gateways with jobs that the file does not have.
	Unlisted []desk.Unlisted `json:"unlisted,omitempty"`
}

func (p *program) statusTable(rows []desk.Status) error {
	t := cli.NewTable(p.Streams, time.Now(), "GATEWAY", "QUEUED", "IN FLIGHT", "SCHEDULED", "RETRYING", "WAITING FOR ROOM", "DONE", "PARKED", "MONEY", "LIMITS", "RATE", "HOLD", "ETA")
	for _, r := range rows {
		hold := r.Why()
		if p.OutTerminal {
			hold = r.Word()
		}
		t.Row(r.Gateway, r.Queued, r.InFlight, r.Scheduled, r.Retrying, r.ForRoom(), r.Done, cli.Uncut(p.parkedText(r.Parked)), t.Money(job.Totals{Amount: r.Dead().Amount}),
			cli.Uncut(r.LimitsText()),
			fmt.Sprintf("%.1f/s", r.Rate1m), hold, etaText(r.ETASeconds))
	}
	return t.Flush()
}

// parkedText is how many dead letters there are, by reason.
func (p *program) parkedText(parked map[string]int64) string {
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	if p.OutTerminal {
		count = job.CountText
	}
	var parts []string
	for _, r := range job.DeadReasons() {
		if n := parked[string(r)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", r.Words(), count(n)))
		}
	}
	return strings.Join(parts, ", ")
}

func etaText(seconds *float64) string {
	if seconds == nil {
		return "?"
	}
	return cli.Short(time.Duration(*seconds * float64(time.Second)))
}
