package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/job"
)

func dlqListCommand(p *program) *cobra.Command {
	var payload bool
	cmd := &cobra.Command{
		Use: "list [flags]", Short: "List parked jobs, oldest first",
		Example: "  dispatcher dlq list -g stripe --reason refused\n  dispatcher dlq list --since 2d --match 'HTTP 5..' -o json",
		Args:    noArgs,
	}
	f := filterFlags(cmd)
	cmd.Flags().BoolVar(&payload, "payload", false, "show the payloads too: they may hold personal data")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return p.dlqList(cmd.Context(), f, payload) }
	return cmd
}

// parkedView is a line of "dlq list -o json".
type parkedView struct {
	ID       string          `json:"id"`
	Gateway  string          `json:"gateway"`
	Reason   job.Reason      `json:"reason"`
	Error    string          `json:"error"`
	Attempts int             `json:"attempts"`
	ParkedAt time.Time       `json:"parked_at"`
	Batch    string          `json:"batch"`
	Replays  int             `json:"replays"`
	Payload  json.RawMessage `json:"payload,omitempty"`
}

func viewParked(r job.Record, payload bool) parkedView {
	v := parkedView{ID: r.Job.ID, Gateway: r.Job.Gateway, Reason: r.Reason, Error: r.Error, Attempts: r.Attempts,
		ParkedAt: r.ParkedAt, Batch: r.Job.Batch, Replays: r.Replays}
	if payload {
		v.Payload = asJSON(r.Job.Payload)
	}
	return v
}

func (p *program) dlqList(ctx context.Context, f *dlqFilter, payload bool) error {
	s, err := p.choose(ctx, f)
	if err != nil {
		return err
	}
	defer s.close()
	s.filter.NoPayload = !payload
	list := p.newParkedList(payload)
	missing, err := s.each(ctx, func(_ config.Gateway, r job.Record) error { return list.add(viewParked(r, payload)) })
	if flushed := list.flush(); err == nil {
		err = flushed
	}
	if err != nil {
		return err
	}
	return p.remarkMissing(ctx, s, missing)
}

// paged writes rows a page at a time, so that it never holds them all.
type paged struct {
	p     *program
	out   *bufio.Writer
	table *cli.Table
	rows  int
}

// tablePage is how many rows are aligned together.
const tablePage = 500

func (p *program) newPaged(titles ...string) *paged {
	l := &paged{p: p, out: bufio.NewWriter(p.Out)}
	streams := p.Streams
	streams.Out = l.out
	l.table = cli.NewTable(streams, time.Now(), titles...)
	return l
}

func (l *paged) row(cells ...any) error {
	l.table.Row(cells...)
	if l.rows++; l.rows%tablePage > 0 {
		return nil
	}
	return l.table.Flush()
}

func (l *paged) flush() error {
	if !l.p.JSON() && l.rows > 0 {
		if err := l.table.Flush(); err != nil {
			return err
		}
	}
	if err := l.out.Flush(); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// parkedList writes parked jobs.
type parkedList struct {
	*paged
	payload bool
}

func (p *program) newParkedList(payload bool) *parkedList {
	titles := []string{"ID", "GATEWAY", "REASON", "ATTEMPTS", "REPLAYS", "PARKED", "BATCH", "ERROR"}
	if payload {
		titles = append(titles, "PAYLOAD")
	}
	return &parkedList{paged: p.newPaged(titles...), payload: payload}
}

func (l *parkedList) add(v parkedView) error {
	if l.p.JSON() {
		return cli.WriteJSON(l.out, v)
	}
	cells := []any{v.ID, v.Gateway, v.Reason, v.Attempts, v.Replays, v.ParkedAt, v.Batch, v.Error}
	if l.payload {
		cells = append(cells, string(v.Payload))
	}
	return l.row(cells...)
}
