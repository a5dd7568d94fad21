package main

import (
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
