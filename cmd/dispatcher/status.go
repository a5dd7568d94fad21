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
)

func statusCommand(p *program) *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use: "status [-g GATEWAY]...", Short: "Show every gateway at a glance",
		Long: `Status shows one row for each configured gateway: what waits, what is under way, what is done, what is
parked, why and how much money, the rate of the last minute, the hold, and when the last waiting job
will have been called. PENDING is jobs of which the gateway is asked what became of their call: they settle
themselves. Above it stands what needs a person, the most urgent first. Jobs that wait for room at admission go in by themselves. They are "rejected" under parked in
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
	v, unseen, err := statusOf(ctx, s.desk, rows, unlisted)
	if err != nil {
		return err
	}
	damaged = desk.AlsoDamaged(damaged, unseen)
	if err := p.showStatus(ctx, s.desk, v, damaged == nil); err != nil {
		return err
	}
	return damaged
}

// showStatus draws it. whole says that nothing is missing for what is damaged.
func (p *program) showStatus(ctx context.Context, d *desk.Desk, v statusDocument, whole bool) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, v)
	}
	if len(v.NeedsPerson) > 0 || whole {
		p.remarkNeeds(v.NeedsPerson)
	}
	if err := p.statusTable(v.Gateways); err != nil {
		return err
	}
	p.remarkServed(v.Unlisted)
	p.remarkHolds(v.Gateways)
	return p.remarkPaused(ctx, d, v.Gateways)
}

// needsNamed is how many things that need a person status names. JSON has all.
const needsNamed = 20

// remarkNeeds says what needs a person, and what to type.
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

// remarkServed names the gateways that another file has: nobody has to do anything about them.
func (p *program) remarkServed(all []desk.Unlisted) {
	p.remarkUnlisted("", slices.DeleteFunc(slices.Clone(all), func(u desk.Unlisted) bool { return u.NeedsPerson() }))
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
	// NeedsPerson is what stays as it is until a person acts, the most urgent first.
	NeedsPerson []desk.Need   `json:"needs_person"`
	Gateways    []desk.Status `json:"gateways"`
	// Unlisted are the gateways with jobs that the file does not have.
	Unlisted []desk.Unlisted `json:"unlisted,omitempty"`
}

// statusOf adds what needs a person to what was seen. damaged says what of that is missing.
func statusOf(ctx context.Context, d *desk.Desk, rows []desk.Status, unlisted []desk.Unlisted) (v statusDocument, damaged, err error) {
	needs, damaged, err := d.Needs(ctx, rows, unlisted)
	return statusDocument{needs, rows, unlisted}, damaged, err
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
