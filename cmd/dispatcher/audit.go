package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

func auditCommand(p *program) *cobra.Command {
	var names []string
	var o auditOptions
	cmd := &cobra.Command{
		Use: "audit [-g GATEWAY]...", Short: "Check the books: every job accepted is in exactly one place",
		Long: `Audit goes through all that a gateway has in Redis and checks that each job is where its record says, and
nowhere else, that accepted = scheduled + queued + in flight + retrying + done + parked + discarded, and that
the books of each batch are what the records of its jobs say. It only looks, unless --repair. Dispatchers may go on working meanwhile: what looks wrong is judged again before it counts. With
a million jobs it takes about half a minute. Exit code 1 if something is wrong, with a list of what, by job.`,
		Example: "  dispatcher audit\n  dispatcher audit -g stripe -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.audit(cmd.Context(), names, o) },
	}
	gatewaysFlag(cmd, &names, "audit this `GATEWAY` only; repeatable (default: all of the file)")
	cmd.Flags().IntVar(&o.most, "limit", 100, "list at most `N` faults of a gateway, and as many notes; all are counted")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "list what is remarkable and in order, too: tasks of jobs that have moved on")
	cmd.Flags().BoolVar(&o.repair, "repair", false, "write the books of batches anew that differ from the records of their jobs")
	return cmd
}

type auditOptions struct {
	most    int
	verbose bool
	repair  bool
}

// gatewayBooks is one gateway of "audit -o json".
type gatewayBooks struct {
	Gateway   string           `json:"gateway"`
	OK        bool             `json:"ok"`
	Accepted  int64            `json:"accepted"`
	Scheduled int64            `json:"scheduled"`
	Queued    int64            `json:"queued"`
	InFlight  int64            `json:"in_flight"`
	Retrying  int64            `json:"retrying"`
	Done      int64            `json:"done"`
	Parked    map[string]int64 `json:"parked"`
	Discarded int64            `json:"discarded"`
	Records   int64            `json:"records"`
	Seconds   float64          `json:"seconds"`
	Faults    int64            `json:"faults"`
	Findings  []finding        `json:"findings"`
	NotesAll  int64            `json:"notes_total"`
	Notes     []finding        `json:"notes"`
}

type finding struct {
	ID   string       `json:"id"`
	What ledger.Wrong `json:"what"`
	Text string       `json:"text"`
	Hint string       `json:"hint,omitempty"`
}

func (p *program) audit(ctx context.Context, names []string, o auditOptions) error {
	if o.most < 0 {
		return cli.Usage("give a number from 0 up", "--limit %d is below 0", o.most)
	}
	s, err := p.openAt(ctx, names)
	if err != nil {
		return err
	}
	defer s.close()
	books := make([]gatewayBooks, len(s.desk.Gateways))
	for i, g := range s.desk.Gateways {
		if books[i], err = p.auditOne(ctx, g, o); err != nil {
			return err
		}
	}
	if err := p.writeBooks(books, o.verbose); err != nil {
		return err
	}
	return verdict(books)
}

func (p *program) auditOne(ctx context.Context, g *desk.Gateway, o auditOptions) (gatewayBooks, error) {
	began := time.Now()
	first, err := g.Books.Look(ctx)
	if err != nil {
		return gatewayBooks{}, err
	}
	bar := cli.NewProgress(p.Streams, cli.ProgressParams{What: "auditing " + g.Name, Total: first.Accepted, Quiet: p.Quiet})
	defer bar.Close()
	a, err := g.Books.Audit(ctx, ledger.AuditParams{Most: o.most, Repair: o.repair, Progress: bar.Set})
	if err != nil {
		return gatewayBooks{}, err
	}
	b := gatewayBooks{Gateway: g.Name, OK: a.Faults.Total == 0, Accepted: a.Accepted, Scheduled: a.Scheduled, Queued: a.Queued, InFlight: a.InFlight,
		Retrying: a.Retrying, Done: a.Done, Parked: map[string]int64{}, Discarded: a.Discarded, Records: a.Records,
		Seconds: math.Round(time.Since(began).Seconds()*1000) / 1000, Faults: a.Faults.Total, Findings: findings(a.Faults.List), NotesAll: a.Notes.Total, Notes: findings(a.Notes.List)}
	for r, n := range a.Parked {
		b.Parked[string(r)] = n
	}
	return b, nil
}

func findings(list []ledger.Finding) []finding {
	all := make([]finding, len(list))
	for i, f := range list {
		all[i] = finding{ID: f.ID, What: f.What, Text: f.Describe(), Hint: f.Hint()}
	}
	return all
}

func (p *program) writeBooks(books []gatewayBooks, verbose bool) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, map[string]any{"ok": verdict(books) == nil, "gateways": books})
	}
	t := cli.NewTable(p.Streams, time.Now(), "GATEWAY", "ACCEPTED", "SCHEDULED", "QUEUED", "IN FLIGHT", "RETRYING", "DONE", "PARKED", "DISCARDED", "BOOKS")
	for _, b := range books {
		t.Row(b.Gateway, b.Accepted, b.Scheduled, b.Queued, b.InFlight, b.Retrying, b.Done, cli.Uncut(p.parkedText(b.Parked)), b.Discarded, b.order())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return p.listFindings(books, verbose)
}

func (b gatewayBooks) order() string {
	switch b.Faults {
	case 0:
		return "in order"
	case 1:
		return "1 fault"
	}
	return fmt.Sprintf("%d faults", b.Faults)
}

// listFindings writes a line for each. What to do is a column in a pipe; a terminal has no room for it, and gets it with the verdict.
func (p *program) listFindings(books []gatewayBooks, verbose bool) error {
	t := cli.NewTable(p.Streams, time.Now(), "GATEWAY", "JOB", "WHAT IS WRONG")
	listed := false
	for _, b := range books {
		list := b.Findings
		if verbose {
			list = append(list[:len(list):len(list)], b.Notes...)
		}
		for _, f := range list {
			listed = true
			if p.OutTerminal {
				t.Row(b.Gateway, cli.Uncut(f.ID), cli.Uncut(f.Text))
			} else {
				t.Row(b.Gateway, cli.Uncut(f.ID), cli.Uncut(f.Text), f.Hint)
			}
		}
	}
	if !listed {
		return nil
	}
	if p.OutTerminal {
		fmt.Fprintln(p.Out)
	}
	return t.Flush()
}

// verdict is an error for each gateway whose books are not in order, with what to do about each kind of fault.
func verdict(books []gatewayBooks) error {
	var all []error
	for _, b := range books {
		if b.OK {
			continue
		}
		message := fmt.Sprintf("the books of %s are not in order: %s", b.Gateway, b.order())
		if more := b.Faults - int64(len(b.Findings)); more > 0 {
			message += fmt.Sprintf(", %d of them not listed (--limit)", more)
		}
		all = append(all, &job.Error{Code: job.CodeFailed, Message: message, Hint: b.hints()})
	}
	return errors.Join(all...)
}

// hints says what to do about each kind of fault once.
func (b gatewayBooks) hints() string {
	var all []string
	told := map[string]bool{}
	for _, f := range b.Findings {
		if !told[f.Hint] {
			told[f.Hint] = true
			all = append(all, fmt.Sprintf("%s: %s", f.Text, f.Hint))
		}
	}
	return strings.Join(all, "\nhint: ")
}
