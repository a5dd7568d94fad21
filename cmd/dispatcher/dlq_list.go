package main

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/deadletter"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
)

func dlqListCommand(p *program) *cobra.Command {
	var payload bool
	cmd := &cobra.Command{
		Use: "list [flags]", Short: "List parked jobs",
		Long: `List shows parked jobs. On a terminal the reasons that need a person come first, each oldest first:
` + strings.Join(job.Texts(job.DeadReasons()), ", ") + `.
Jobs that wait for room at admission are only counted there; --reason rejected lists them.
In JSON and in a pipe all are listed, oldest first.

Page through them with --limit and --after: each job's cursor is its position, which does not change while other jobs come
and go.

Every filter but --match is answered from an index. --match reads the errors of all jobs that the other
flags select, until it has found enough: give a reason, a batch or a time to make them few.`,
		Example: "  dispatcher dlq list -g stripe --reason refused\n  dispatcher dlq list --since 2d --match 'HTTP 5..' -o json\n  dispatcher dlq list --limit 50 --after stripe/1763742851000001",
		Args:    noArgs,
	}
	f := filterFlags(cmd)
	f.afterFlag(cmd)
	cmd.Flags().BoolVar(&payload, "payload", false, "also show the payloads, which may hold personal data")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return p.dlqList(cmd.Context(), f, payload) }
	return cmd
}

func (p *program) dlqList(ctx context.Context, f *dlqFilter, payload bool) error {
	p.payloads = payload
	filter, d, err := p.selected(ctx, f)
	if err != nil {
		return err
	}
	defer d.Close()
	list := p.newParkedList(payload)
	list.byNeed = p.byNeed(f)
	q := remote.DeadLettersOf{Filter: remote.FilterOf(f.gateways, filter), After: f.after, Payload: payload}
	if list.byNeed {
		q.Order = "need"
	}
	first, err := list.pages(ctx, d, q)
	if flushed := list.flush(); err == nil {
		err = flushed
	}
	if err != nil {
		return err
	}
	if !p.JSON() {
		list.remarks(filter.Limit, first)
	}
	p.remarkLeftOut(first.LeftOut)
	return nil
}

// pages lists the selected jobs a page at a time, and returns the first page.
func (l *parkedList) pages(ctx context.Context, d remote.Desk, q remote.DeadLettersOf) (first remote.DeadLetterPage, err error) {
	most := q.Limit
	for n := 0; ; n++ {
		q.Limit = remote.MostShown
		if most > 0 {
			q.Limit = min(q.Limit, most-l.rows)
		}
		page, err := remote.DeadLetters.Do(ctx, d, q, remote.Out[remote.None]{Remark: func(text string) { l.p.remark("%s", text) }})
		if err != nil {
			return first, err
		}
		if n == 0 {
			first = page
		}
		for _, v := range page.Jobs {
			if err := l.visit(v); err != nil {
				return first, err
			}
		}
		if page.Next == nil || most > 0 && l.rows == most {
			return first, nil
		}
		q.After = *page.Next
	}
}

// byNeed reports whether the list is in the order for people.
func (p *program) byNeed(f *dlqFilter) bool {
	if f.after != "" {
		return desk.OfPeople(f.after)
	}
	return p.OutTerminal && !p.JSON() && len(f.ids) == 0
}

// remarks says what the list lacks: jobs beyond the limit, and those that wait for room.
func (l *parkedList) remarks(limit int, first remote.DeadLetterPage) {
	if l.rows == limit && l.rows > 0 {
		l.p.remark("there may be more: add --after %s", l.last)
	}
	switch waiting := first.ForRoom; {
	case l.rows == 0 && waiting == 0 && len(first.Missing) == 0:
		l.p.nothingMeant("parked job")
	case waiting == 1:
		l.p.remark("and 1 waits for room (--reason rejected lists it)")
	case waiting > 0:
		l.p.remark("and %s wait for room (--reason rejected lists them)", job.CountText(waiting))
	}
}

// nothingMeant says that there is nothing to show, instead of showing nothing.
func (p *program) nothingMeant(what string) {
	if p.OutTerminal && !p.JSON() {
		p.remark("no %s is meant", what)
	}
}

// paged writes rows a page at a time, so that it never holds all of them.
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
	byNeed  bool   // in the order for people
	last    string // cursor of the last job
}

func (p *program) newParkedList(payload bool) *parkedList {
	titles := []string{"ID", "GATEWAY", "REASON", "ATTEMPTS", "REPLAYS", "PARKED", "BATCH", "ERROR"}
	if payload {
		titles = append(titles, "PAYLOAD")
	}
	return &parkedList{paged: p.newPaged(titles...), payload: payload}
}

func (l *parkedList) visit(v remote.ParkedLine) error {
	if l.last = v.Cursor; l.byNeed {
		l.last = string(v.Reason) + "/" + v.Cursor
	}
	if v.Unopened != "" {
		l.p.remark("job %q of %s: %s", v.ID, v.Gateway, v.Unopened)
	}
	return l.add(v.Parked)
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

// replaysText marks a job that was replayed often without success.
func replaysText(n int) string {
	if n < deadletter.OftenReplayed {
		return strconv.Itoa(n)
	}
	return strconv.Itoa(n) + " in vain"
}
