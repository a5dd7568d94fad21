package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
)

func statusCommand(p *program) *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use: "status [-g GATEWAY]...", Short: "Show every gateway at a glance",
		Long: `Status shows one row for each configured gateway: waiting jobs, jobs in flight, done jobs, parked jobs with
their reasons and money, the rate of the last minute, the hold, and when the last waiting job will have been
called. PENDING counts jobs with an unknown outcome that look-ups will settle. The list above it shows what
needs a person, the most urgent first. Jobs that wait for room at admission are admitted automatically. They
are "rejected" under parked in JSON, and for --reason.`,
		Example: "  dispatcher status\n  dispatcher status -g stripe -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.status(cmd.Context(), names) },
	}
	gatewaysFlag(cmd, &names, "show this `GATEWAY` only; repeatable (default: all of the file)")
	return cmd
}

func (p *program) status(ctx context.Context, names []string) error {
	v, err := ask(ctx, p, remote.Status, remote.StatusOf{At: remote.At{Gateways: names}, Drawn: true})
	if err != nil {
		return err
	}
	damaged := v.Err()
	if err := p.showStatus(v, damaged == nil); err != nil {
		return err
	}
	return damaged
}

// showStatus writes the status; whole says that all gateways could be read.
func (p *program) showStatus(v remote.Standing, whole bool) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, v.Plain())
	}
	if len(v.NeedsPerson) > 0 || whole {
		p.remarkNeeds(v.NeedsPerson)
	}
	if err := p.statusTable(v.Gateways); err != nil {
		return err
	}
	p.remarkParts(v.Gateways)
	p.remarkServed(v.Unlisted)
	p.remarkHolds(v.Gateways)
	p.remarkPaused(v)
	return nil
}

// needsNamed is the most needs that status lists. JSON has all.
const needsNamed = 20

// remarkNeeds lists what operators have to do.
func (p *program) remarkNeeds(all []desk.Need) {
	if len(all) == 0 {
		p.remark("nothing needs a person")
		return
	}
	p.remark("needs a person, most urgent first:")
	groups := desk.GroupNeeds(all)
	for _, n := range groups[:min(needsNamed, len(groups))] {
		p.remark("  %s\n    %s (%s)", n.Text(), n.Do, n.Runbook)
	}
	if more := len(groups) - needsNamed; more > 0 {
		p.remark("  and %d more: dispatcher status -o json has all", more)
	}
}

// remarkParts says how queues are divided by lanes, routes and classes.
func (p *program) remarkParts(rows []desk.Status) {
	for _, r := range rows {
		if text := r.PartsText(); text != "" {
			p.remark("%s: %s", r.Gateway, text)
		}
	}
}

// remarkServed names the gateways of other configurations: they need no action.
func (p *program) remarkServed(all []desk.Unlisted) {
	p.remarkUnlisted("", slices.DeleteFunc(slices.Clone(all), func(u desk.Unlisted) bool { return u.NeedsPerson() }))
}

// remarkHolds prints, below a table on a terminal, the texts that its cells abbreviate.
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

// remarkPaused names, for each gateway with jobs of a paused batch, one such batch and how to continue it.
func (p *program) remarkPaused(v remote.Standing) {
	for _, b := range v.Drawn.Paused {
		i := slices.IndexFunc(v.Gateways, func(s desk.Status) bool { return s.Gateway == b.Gateway })
		p.remark("%s: %s of paused batches, such as %s: %s", b.Gateway, job.JobsText(v.Gateways[i].Parked[string(job.Paused)]), b.Batch, b.GoOn)
	}
}

func (p *program) statusTable(rows []desk.Status) error {
	t := cli.NewTable(p.Streams, time.Now(), "GATEWAY", "QUEUED", "IN FLIGHT", "SCHEDULED", "RETRYING", "PENDING", "WAITING FOR ROOM", "DONE", "PARKED", "MONEY", "LIMITS", "RATE", "HOLD", "ETA")
	for _, r := range rows {
		hold := r.Why()
		if p.OutTerminal {
			hold = r.Word()
		}
		t.Row(r.Gateway, r.Queued, r.InFlight, r.Scheduled, r.Retrying, r.Pending, r.ForRoom(), r.Done, cli.Uncut(p.parkedText(r.Parked)), t.Money(job.Totals{Amount: r.Dead().Amount}),
			cli.Uncut(r.LimitsText()),
			fmt.Sprintf("%.1f/s", r.Rate1m), hold, etaText(r.ETASeconds))
	}
	return t.Flush()
}

// parkedText returns the number of dead letters, by reason.
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

func processesCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "processes", Short: "List the running dispatchers, their versions and last calls",
		Long: `Processes lists the dispatchers ("dispatcher run") on this Redis: their start, version, gateways and HTTP
address, how many calls they have made, and the last call. A process that was killed, or can't reach Redis,
is silent; it is removed after six hours. A process that was stopped is not listed.`,
		Example: "  dispatcher processes\n  dispatcher processes -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.processes(cmd.Context()) },
	}
}

func (p *program) processes(ctx context.Context) error {
	all, err := ask(ctx, p, remote.Processes, remote.None{})
	if err != nil {
		return err
	}
	if p.JSON() {
		return cli.WriteJSON(p.Out, all)
	}
	return p.processTable(all)
}

func (p *program) processTable(all desk.Processes) error {
	t := cli.NewTable(p.Streams, time.Now(), "PROCESS", "STATE", "LAST SEEN", "STARTED", "GATEWAYS", "WHICH", "CALLS", "LAST CALL", "LISTEN", "VERSION")
	for _, one := range all.List {
		t.Row(cli.Uncut(one.Process), string(one.State), one.Seen, one.Started, one.Gateways, cli.Uncut(one.Which()), one.Calls, moments(one.LastCall), one.Listen, cli.Uncut(one.Version))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	switch versions := all.Versions(); {
	case len(versions) == 0:
		p.remark("no dispatcher serves: start one with \"dispatcher run\"")
	case len(versions) > 1:
		p.remark("%s versions serve at once: %s", job.CountText(int64(len(versions))), strings.Join(versions, "; "))
	}
	return nil
}
