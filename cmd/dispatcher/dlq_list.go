package main

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/deadletter"
	"spillway/internal/desk"
	"spillway/internal/job"
)

func dlqListCommand(p *program) *cobra.Command {
	var payload bool
	cmd := &cobra.Command{
		Use: "list [flags]", Short: "List parked jobs, oldest first",
		Long: `List shows parked jobs, oldest first. Page through them with --limit and --after: each job's cursor
is its place in the order, and does not move while other jobs come and go.

Every filter but --match is answered from an index. --match reads the errors of all jobs that the other
flags choose, until it has found enough: name a reason, a batch or a time to make that few.`,
		Example: "  dispatcher dlq list -g stripe --reason refused\n  dispatcher dlq list --since 2d --match 'HTTP 5..' -o json\n  dispatcher dlq list --limit 50 --after stripe/1763742851000001",
		Args:    noArgs,
	}
	f := filterFlags(cmd)
	f.afterFlag(cmd)
	cmd.Flags().BoolVar(&payload, "payload", false, "show the payloads too: they may hold personal data")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return p.dlqList(cmd.Context(), f, payload) }
	return cmd
}

func (p *program) dlqList(ctx context.Context, f *dlqFilter, payload bool) error {
	p.payloads = payload
	s, err := p.choose(ctx, f)
	if err != nil {
		return err
	}
	defer s.close()
	s.Filter.NoPayload, s.Filter.Looked = !payload, p.looking()
	list := p.newParkedList(payload)
	last := ""
	missing, err := s.Each(ctx, func(_ *desk.Gateway, r job.Record) error {
		v := desk.ParkedOf(r, payload)
		v.Cursor = desk.Cursor(r)
		last = v.Cursor
		if r.Unopened != nil {
			p.remark("job %q of %s: %v", v.ID, v.Gateway, r.Unopened)
		}
		return list.add(v)
	})
	if flushed := list.flush(); err == nil {
		err = flushed
	}
	if err != nil {
		return err
	}
	switch {
	case p.JSON():
	case list.rows == 0 && len(missing) == 0:
		p.nothingMeant("parked job")
	case list.rows == s.Filter.Limit && list.rows > 0:
		p.remark("there may be more: add --after %s", last)
	}
	return p.remarkMissing(ctx, s.Selection, missing)
}

// nothingMeant says that there is nothing to show: an empty screen would be a riddle.
func (p *program) nothingMeant(what string) {
	if p.OutTerminal && !p.JSON() {
		p.remark("no %s is meant", what)
	}
}

// lookEvery is how often a search through errors says how far it is.
const lookEvery = 2 * time.Second

// looking says now and then how many jobs a search through errors has looked at.
func (p *program) looking() func(int) {
	sum, said := 0, time.Now()
	return func(n int) {
		if sum += n; n > 0 && time.Since(said) >= lookEvery {
			said = time.Now()
			p.remark("looked at the errors of %s so far", job.JobsText(int64(sum)))
		}
	}
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

func (l *parkedList) add(v desk.Parked) error {
	if l.p.JSON() {
		return cli.WriteJSON(l.out, v)
	}
	cells := []any{cli.Uncut(v.ID), cli.Uncut(v.Gateway), v.Reason, v.Attempts, replaysText(v.Replays), v.ParkedAt, cli.Uncut(v.Batch), v.Error}
	if l.payload {
		cells = append(cells, cli.Uncut(v.Payload))
	}
	return l.row(cells...)
}

// replaysText says of a job that was replayed often that it was of no use.
func replaysText(n int) string {
	if n < deadletter.OftenReplayed {
		return strconv.Itoa(n)
	}
	return strconv.Itoa(n) + " in vain"
}
