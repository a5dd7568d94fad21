package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
)

// callsFlags are the flags of "calls".
type callsFlags struct {
	gateways  []string
	since, by string
}

func callsCommand(p *program) *cobra.Command {
	f := &callsFlags{}
	cmd := &cobra.Command{
		Use: "calls [-g GATEWAY]...", Short: "Count the calls of the last 24 hours by their answers",
		Long: `Calls counts the calls that ended in each of the last 24 hours and in the current one, over all gateways of
the file or those named with -g, by HTTP status and verdict. Every call counts, whatever happened to its
job; look-ups do not count. With --by gateway there is a row for each gateway that was called, over all of
these hours. For the gateway's messages, see "dispatcher answers".`,
		Example: "  dispatcher calls\n  dispatcher calls -g stripe --since 3h\n  dispatcher calls --by gateway -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.calls(cmd, f) },
	}
	gatewaysFlag(cmd, &f.gateways, "only calls of this `GATEWAY`; repeatable (default: all of the file)")
	cmd.Flags().StringVar(&f.since, "since", "", "from the start of the hour of `TIME`: 3h ago, \"2026-11-30 18:00\" (local time unless it says otherwise), RFC 3339 (default: all that is kept)")
	cmd.Flags().StringVar(&f.by, "by", "", "a row for each `hour` or gateway (default: hour)")
	return cmd
}

func (p *program) calls(cmd *cobra.Command, f *callsFlags) error {
	by, err := desk.ParseCallsBy(f.by, "--by")
	if err != nil {
		return err
	}
	since, err := p.since(cmd, f.since)
	if err != nil {
		return err
	}
	h, err := ask(cmd.Context(), p, remote.Calls, remote.CallsOf{At: remote.At{Gateways: f.gateways}, Since: desk.Stamp(since), By: string(by)})
	if err != nil {
		return err
	}
	if p.JSON() {
		return cli.WriteJSON(p.Out, h)
	}
	return p.callsTable(h, by)
}

// since parses the flag of this name.
func (p *program) since(cmd *cobra.Command, text string) (time.Time, error) {
	if text == "" && cmd.Flags().Changed("since") {
		return time.Time{}, emptyFlag("since")
	}
	return desk.ParseAgo(text, time.Now(), "--since")
}

func (p *program) callsTable(h desk.CallHistory, by desk.CallsBy) error {
	t := cli.NewTable(p.Streams, time.Now(), map[desk.CallsBy]string{desk.ByHour: "HOUR", desk.ByGateway: "GATEWAY"}[by], "CALLS", "DONE", "ANSWERS")
	for _, r := range h.Rows {
		of := r.Gateway
		if r.Hour != nil {
			of = p.hourText(*r.Hour)
		}
		t.Row(of, r.Calls, r.Done(), cli.Uncut(r.Text()))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	p.remark("since %s: calls %s, done %s", job.Moment(h.Since), job.CountText(h.All.Calls), job.CountText(h.All.Done()))
	return nil
}

// hourText returns the start of an hour: in local time on a terminal, and in a form for programs otherwise.
func (p *program) hourText(at time.Time) string {
	if p.OutTerminal {
		return job.Clock(at.Local())
	}
	return job.Moment(at)
}

// answersFlags are the flags of "answers".
type answersFlags struct {
	gateways     []string
	since, batch string
}

func answersCommand(p *program) *cobra.Command {
	f := &answersFlags{}
	cmd := &cobra.Command{
		Use: "answers [-g GATEWAY]...", Short: "Count the last answers to jobs that are not done",
		Long: `Answers counts the last answers to jobs that are parked or in back-off, by HTTP status, verdict and first
words, each with an example job: "402 refused, card_declined: 812". Words specific to single payments, such
as names, are left out. It reads at most 4,000 jobs of a gateway, and says so if there are more. Done jobs
are not counted: for the number of all calls, see "dispatcher calls".`,
		Example: "  dispatcher answers -g stripe\n  dispatcher answers -g stripe --since 1h\n  dispatcher answers --batch 2026-11 -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.answers(cmd, f) },
	}
	gatewaysFlag(cmd, &f.gateways, "only answers of this `GATEWAY`; repeatable (default: all of the file)")
	cmd.Flags().StringVar(&f.since, "since", "", "only jobs last called at or after `TIME`: 1h or 2d ago, \"2026-11-30 18:00\" (local time unless it says otherwise), RFC 3339 (default: all)")
	cmd.Flags().StringVar(&f.batch, "batch", "", "only jobs of the batch `NAME`")
	return cmd
}

func (p *program) answers(cmd *cobra.Command, f *answersFlags) error {
	since, err := p.since(cmd, f.since)
	if err != nil {
		return err
	}
	if f.batch == "" && cmd.Flags().Changed("batch") {
		return emptyFlag("batch")
	}
	all, err := ask(cmd.Context(), p, remote.Answers, remote.AnswersOf{At: remote.At{Gateways: f.gateways}, Since: desk.Stamp(since), Batch: f.batch})
	if err != nil {
		return err
	}
	out, rows := p.newPaged("JOBS", "GATEWAY", "ANSWER", "VERDICT", "LAST CALL", "SUCH AS", "IT BEGINS"), 0
	for _, a := range all.Gateways {
		rows += len(a.List)
		if err := p.writeAnswers(out, a); err != nil {
			return err
		}
	}
	if err := out.flush(); err != nil {
		return err
	}
	if rows == 0 && len(all.Damaged) == 0 && !p.JSON() {
		p.remark("no job that is parked or waits out a back-off was called")
	}
	return all.Err()
}

func (p *program) writeAnswers(out *paged, a desk.Answers) error {
	if p.JSON() {
		return cli.WriteJSON(out.out, a)
	}
	for _, one := range a.List {
		if err := out.row(one.Jobs, a.Gateway, statusText(one.Status), one.Verdict, one.Last, cli.Uncut(one.Example), cli.Uncut(one.Says)); err != nil {
			return err
		}
	}
	if a.Others > 0 {
		p.remark("%s: %s got other answers, of more kinds than are told apart", a.Gateway, job.JobsText(a.Others))
	}
	if a.More {
		p.remark("%s: only %s were counted, and there are more: ask for less time or one batch", a.Gateway, job.JobsText(int64(a.Looked)))
	}
	return nil
}

// statusText is an HTTP status, or that there was no answer.
func statusText(status int) string {
	if status == 0 {
		return "none"
	}
	return fmt.Sprint("HTTP ", status)
}
