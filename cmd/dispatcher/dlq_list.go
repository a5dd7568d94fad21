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
		Use: "list [flags]", Short: "List parked jobs",
		Long: `List shows parked jobs. On a terminal what needs a person comes first: unknown outcomes, then what is refused,
exhausted, unreadable, expired, cancelled and paused, each oldest first. Jobs that wait for room at admission go in by themselves:
they are counted, and listed with --reason rejected. In JSON and in a pipe all are listed, oldest first.

Page through them with --limit and --after: each job's cursor is its place in the order, and does not move while other jobs come
and go.

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
	f.takesPeople = true
	s, err := p.choose(ctx, f)
	if err != nil {
		return err
	}
	defer s.close()
	s.Filter.NoPayload, s.Filter.Looked = !payload, p.looking()
	list := p.newParkedList(payload)
	list.byNeed = s.byNeed(p, f.after)
	var missing []string
	if list.byNeed {
		err = s.EachByNeed(ctx, f.after, list.visit)
	} else {
		missing, err = s.Each(ctx, list.visit)
	}
	if flushed := list.flush(); err == nil {
		err = flushed
	}
	if err == nil && !p.JSON() {
		err = list.remarks(ctx, s, len(missing))
	}
	if err != nil {
		return err
	}
	return p.remarkMissing(ctx, s.Selection, missing)
}

// byNeed says that the list is for a person, and in that order: on a terminal, and where it goes on behind a cursor of that order.
func (s *selection) byNeed(p *program, after string) bool {
	if after != "" {
		return desk.OfPeople(after)
	}
	return p.OutTerminal && !p.JSON() && len(s.Filter.IDs) == 0
}

// remarks says what the list does not show.
func (l *parkedList) remarks(ctx context.Context, s *selection, missing int) error {
	if l.rows == s.Filter.Limit && l.rows > 0 {
		l.p.remark("there may be more: add --after %s", l.last)
	}
	var waiting int64
	if l.byNeed && s.LeavesOut() {
		var err error
		if waiting, err = s.ForRoom(ctx); err != nil {
			return err
		}
	}
	switch {
	case l.rows == 0 && waiting == 0 && missing == 0:
		l.p.nothingMeant("parked job")
	case waiting == 1:
		l.p.remark("and 1 waits for room (--reason rejected lists it)")
	case waiting > 0:
		l.p.remark("and %s wait for room (--reason rejected lists them)", job.CountText(waiting))
	}
	return nil
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
	byNeed  bool   // it is in the order for people
	last    string // the cursor of the last job
}

func (p *program) newParkedList(payload bool) *parkedList {
	titles := []string{"ID", "GATEWAY", "REASON", "ATTEMPTS", "REPLAYS", "PARKED", "BATCH", "ERROR"}
	if payload {
		titles = append(titles, "PAYLOAD")
	}
	return &parkedList{paged: p.newPaged(titles...), payload: payload}
}

func (l *parkedList) visit(_ *desk.Gateway, r job.Record) error {
	v := desk.ParkedOf(r, l.payload)
	v.Cursor = desk.Cursor(r)
	if l.last = v.Cursor; l.byNeed {
		l.last = desk.NeedCursor(r)
	}
	if r.Unopened != nil {
		l.p.remark("job %q of %s: %v", v.ID, v.Gateway, r.Unopened)
	}
	return l.add(v)
}

func (l *parkedList) add(v desk.Parked) error {
	if l.p.JSON() {
		return cli.WriteJSON(l.out, v)
	}
	reason := string(v.Reason)
	if l.p.OutTerminal {
		reason = v.Reason.Words()
	}
	cells := []any{cli.Uncut(v.ID), cli.Uncut(v.Gateway), reason, v.Attempts, replaysText(v.Replays), v.ParkedAt, cli.Uncut(v.Batch), v.Error}
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
