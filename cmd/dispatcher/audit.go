package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
)

func auditCommand(p *program) *cobra.Command {
	var names []string
	var o auditOptions
	cmd := &cobra.Command{
		Use: "audit [-g GATEWAY]...", Short: "Check that every accepted job is in exactly one place",
		Long: `Audit reads all data of a gateway in Redis and checks that each job is only where its record says, that
accepted = scheduled + queued + in flight + retrying + pending + done + parked + discarded, and that the
totals of each batch match the records of its jobs. It changes nothing, unless --repair is given.
Dispatchers may keep working: an apparent fault is checked again before it counts. With a million jobs it
takes about half a minute. If something is wrong, it lists the faults by job and exits with code 1.`,
		Example: "  dispatcher audit\n  dispatcher audit -g stripe -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.audit(cmd.Context(), names, o) },
	}
	gatewaysFlag(cmd, &names, "audit this `GATEWAY` only; repeatable (default: all of the file)")
	cmd.Flags().IntVar(&o.most, "limit", 100, "list at most `N` faults of a gateway, and as many notes; all are counted")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "also list unusual but correct states: tasks of jobs that have moved on")
	cmd.Flags().BoolVar(&o.repair, "repair", false, "rewrite wrong totals of batches and brakes of money, and move misplaced lanes and jobs that wait for room")
	return cmd
}

type auditOptions struct {
	most    int
	verbose bool
	repair  bool
}

func (p *program) audit(ctx context.Context, names []string, o auditOptions) error {
	if o.most < 0 {
		return cli.Usage("give a number from 0 up", "--limit %d is below 0", o.most)
	}
	d, err := p.at(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	bar := &auditBar{p: p}
	defer bar.close()
	v, err := remote.Audit.Do(ctx, d, remote.AuditOf{At: remote.At{Gateways: names}, Limit: &o.most, Repair: o.repair}, remote.Out[remote.Audited]{Line: bar.show})
	bar.close()
	if err != nil {
		return err
	}
	if err := p.writeBooks(v, o.verbose); err != nil {
		return err
	}
	return verdict(v.Gateways)
}

// auditBar shows the progress of an audit.
type auditBar struct {
	p   *program
	of  string
	bar *cli.Progress
}

func (b *auditBar) show(far remote.Audited) error {
	if b.of != far.Gateway {
		b.close()
		b.of = far.Gateway
		b.bar = cli.NewProgress(b.p.Streams, cli.ProgressParams{What: "auditing " + far.Gateway, Total: far.Accepted, Quiet: b.p.Quiet})
	}
	b.bar.Set(far.Looked)
	return nil
}

func (b *auditBar) close() {
	if b.bar != nil {
		b.bar.Close()
		b.bar = nil
	}
}

func (p *program) writeBooks(v remote.Books, verbose bool) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, v)
	}
	books := v.Gateways
	t := cli.NewTable(p.Streams, time.Now(), "GATEWAY", "ACCEPTED", "SCHEDULED", "QUEUED", "IN FLIGHT", "RETRYING", "PENDING", "WAITING FOR ROOM", "DONE", "PARKED", "DISCARDED", "BOOKS")
	for _, b := range books {
		t.Row(b.Gateway, b.Accepted, b.Scheduled, b.Queued, b.InFlight, b.Retrying, b.Pending, b.Parked[string(job.Rejected)], b.Done, cli.Uncut(p.parkedText(b.Parked)), b.Discarded, b.Order())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	p.remarkUnlisted("not checked: ", v.Unlisted)
	return p.listFindings(books, verbose)
}

// listFindings writes a line for each finding. In a pipe, the remedy is a column; a terminal has no room for it
// and gets it with the verdict.
func (p *program) listFindings(books []desk.Audit, verbose bool) error {
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

// verdict returns an error for each gateway that is not in order, with the remedy for each kind of fault.
func verdict(books []desk.Audit) error {
	var all []error
	for _, b := range books {
		if b.OK {
			continue
		}
		message := fmt.Sprintf("the books of %s are not in order: %s", b.Gateway, b.Order())
		if more := b.Faults - int64(len(b.Findings)); more > 0 {
			message += fmt.Sprintf(", %d of them not listed (--limit)", more)
		}
		all = append(all, &job.Error{Code: job.CodeFailed, Message: message, Hint: hints(b.Findings)})
	}
	return errors.Join(all...)
}

// hints lists the remedy for each kind of fault once.
func hints(findings []desk.Finding) string {
	var all []string
	told := map[string]bool{}
	for _, f := range findings {
		if !told[f.Hint] {
			told[f.Hint] = true
			all = append(all, fmt.Sprintf("%s: %s", f.Text, f.Hint))
		}
	}
	return strings.Join(all, "\nhint: ")
}
