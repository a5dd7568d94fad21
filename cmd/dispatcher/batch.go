package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/producer"
)

// batchFlags are the flags of "batch NAME".
type batchFlags struct {
	gateways []string
	by       string
	export   bool
}

func batchCommand(p *program) *cobra.Command {
	f := &batchFlags{}
	cmd := &cobra.Command{
		Use: "batch NAME [-g GATEWAY]...", Short: "Show, export, pause, resume or cancel one batch",
		Long: `Batch shows the jobs of one batch by state, with their sums of money where the gateway's amount says where
payloads have them, and when the last job that goes by itself will have been called: at the rate of the last
minute, or else at the limits, with all that waits at the gateway going first. It costs the same for a batch
of a million jobs. Exit code 4 if no gateway knows the batch.

With --by it says whether that is in time: exit code 0 if so, 1 if not or if nobody can say. Where no dispatcher
has ever served a gateway, it says so as if one began now.`,
		Example: "  dispatcher batch 2026-11\n  dispatcher batch 2026-11 --by \"2026-11-30 18:00\"\n  dispatcher batch 2026-11 --export -o json > answers.ndjson",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.export {
				return p.batchExport(cmd.Context(), args[0], f)
			}
			return p.batch(cmd.Context(), args[0], f)
		},
	}
	gatewaysFlag(cmd, &f.gateways, "ask this `GATEWAY` only; repeatable (default: all of the file)")
	cmd.Flags().StringVar(&f.by, "by", "", "say whether it will make it by `TIME`: +2h, \"2026-11-30 18:00\", RFC 3339")
	cmd.AddCommand(batchPauseCommand(p), batchResumeCommand(p), batchCancelCommand(p))
	cmd.Flags().BoolVar(&f.export, "export", false, "write a line for each job, in the order of the file: what became of it, and the gateway's reference")
	return cmd
}

// batchView is "batch -o json".
type batchView struct {
	Batch      string             `json:"batch"`
	Jobs       int64              `json:"jobs"`
	Amount     purse              `json:"amount"`
	Bare       int64              `json:"without_amount"`
	States     []batchPlace       `json:"states"`
	ETASeconds *float64           `json:"eta_seconds"`
	By         *time.Time         `json:"by,omitempty"`
	MakesIt    *bool              `json:"makes_it,omitempty"`
	Gateways   []batchGatewayView `json:"gateways"`

	// fromNow is when the last job will have been called, if dispatchers begin now where none has ever been; negative when nobody can say.
	fromNow time.Duration
}

type batchGatewayView struct {
	Gateway    string       `json:"gateway"`
	Jobs       int64        `json:"jobs"`
	States     []batchPlace `json:"states"`
	ETASeconds *float64     `json:"eta_seconds"`
	ETAWhy     string       `json:"eta_why,omitempty"`
	PausedAt   *time.Time   `json:"paused_at"`
	PauseWhy   string       `json:"pause_why,omitempty"`
	PausedBy   string       `json:"paused_by,omitempty"`
	Cancelled  *time.Time   `json:"cancelled_at"`
	CancelWhy  string       `json:"cancel_why,omitempty"`
	CancelBy   string       `json:"cancelled_by,omitempty"`
}

// batchPlace is the jobs of a batch in one state.
type batchPlace struct {
	State  job.State  `json:"state"`
	Reason job.Reason `json:"reason,omitempty"`
	Jobs   int64      `json:"jobs"`
	Amount purse      `json:"amount"`
	Bare   int64      `json:"without_amount"`
}

// batchPart is one gateway's part of a batch.
type batchPart struct {
	gateway string
	dispatch.BatchGlance
}

// batchParts asks the chosen gateways, and returns those that know the batch.
func batchParts(ctx context.Context, s *session, chosen []config.Gateway, name string) ([]batchPart, error) {
	var parts []batchPart
	for _, g := range chosen {
		v, ok, err := dispatch.LookBatch(ctx, s.db.Client, g, name)
		if err != nil {
			return nil, err
		}
		if ok {
			parts = append(parts, batchPart{g.Name, v})
		}
	}
	if len(parts) == 0 {
		return nil, noBatch(name)
	}
	return parts, nil
}

func noBatch(name string) error {
	return &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("no batch %q", name),
		Hint: "no job of it was enqueued here, or its last job was over longer ago than dedupe"}
}

func (p *program) batch(ctx context.Context, name string, f *batchFlags) error {
	var by time.Time
	if f.by != "" {
		var err error
		if by, err = producer.ParseTime(f.by, time.Now()); err != nil {
			return err
		}
	}
	s, chosen, err := p.openAt(ctx, f.gateways)
	if err != nil {
		return err
	}
	defer s.close()
	parts, err := batchParts(ctx, s, chosen, name)
	if err != nil {
		return err
	}
	v := viewBatch(name, parts)
	late := v.judge(by, parts[0].Now)
	if err := p.writeBatch(v); err != nil {
		return err
	}
	return late
}

func viewBatch(name string, parts []batchPart) batchView {
	v := batchView{Batch: name, Gateways: make([]batchGatewayView, len(parts))}
	all, eta := map[ledger.Place]ledger.Sums{}, time.Duration(0)
	for i, part := range parts {
		states, sum := placesOf(part.Places)
		v.Gateways[i] = batchGatewayView{Gateway: part.gateway, Jobs: sum.Jobs, States: states, ETASeconds: seconds(part.ETA), ETAWhy: part.Stopped}
		v.Gateways[i].stopped(part.Batch)
		for place, one := range part.Places {
			s := all[place]
			s.Add(one)
			all[place] = s
		}
		eta, v.fromNow = later(eta, part.ETA), later(v.fromNow, part.FromNow)
	}
	var sum ledger.Sums
	v.States, sum = placesOf(all)
	v.Jobs, v.Amount, v.Bare, v.ETASeconds = sum.Jobs, purseOf(sum), sum.Unread, seconds(eta)
	return v
}

// later returns the later of two, and less than 0 if nobody knows one of them.
func later(a, b time.Duration) time.Duration {
	if a < 0 || b < 0 {
		return -1
	}
	return max(a, b)
}

// stopped says that the batch is paused or cancelled, since when, why and by whom.
func (v *batchGatewayView) stopped(b ledger.Batch) {
	switch {
	case !b.Paused.IsZero():
		v.PausedAt, v.PauseWhy, v.PausedBy = when(b.Paused), b.Why, b.Who
	case !b.Cancelled.IsZero():
		v.Cancelled, v.CancelWhy, v.CancelBy = when(b.Cancelled), b.Why, b.Who
	}
}

func seconds(eta time.Duration) *float64 {
	if eta < 0 {
		return nil
	}
	s := tenth(eta.Seconds())
	return &s
}

// placesOf returns the places in the order of a job's way, and the sum of all.
func placesOf(in map[ledger.Place]ledger.Sums) (list []batchPlace, sum ledger.Sums) {
	order := []ledger.Place{{State: job.Scheduled}, {State: job.Queued}, {State: job.InFlight}, {State: job.Retrying}, {State: job.Done}}
	for _, r := range job.Reasons() {
		order = append(order, ledger.Place{State: job.Parked, Reason: r})
	}
	list = []batchPlace{}
	for _, place := range append(order, ledger.Place{State: job.Discarded}) {
		if s := in[place]; s.Jobs != 0 {
			list = append(list, batchPlace{place.State, place.Reason, s.Jobs, purseOf(s), s.Unread})
			sum.Add(s)
		}
	}
	return list, sum
}

func purseOf(s ledger.Sums) purse {
	all := purse{}
	all.addAll(s.Money)
	return all
}

// judge says whether the batch makes it by a time, if one is asked for, and returns an error if it doesn't.
func (v *batchView) judge(by, now time.Time) error {
	if by.IsZero() {
		return nil
	}
	makes := v.fromNow >= 0 && !now.Add(v.fromNow).After(by)
	utc := by.UTC()
	v.By, v.MakesIt = &utc, &makes
	switch {
	case makes:
		return nil
	case v.fromNow < 0:
		return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("nobody can say whether batch %q makes it by %s: %s", v.Batch, utc.Format(time.RFC3339), v.whyNoETA()),
			Hint: `see "dispatcher status", and end what keeps it back`}
	}
	over := now.Add(v.fromNow).Sub(by)
	return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("batch %q does not make it by %s: its last job will be called %s later%s", v.Batch, utc.Format(time.RFC3339), cli.Short(over), v.condition()),
		Hint: "raise the gateway's limits if the provider agrees, or hold other batches back (dispatcher batch pause)"}
}

func (p *program) writeBatch(v batchView) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, v)
	}
	t := cli.NewTable(p.Streams, time.Now(), "GATEWAY", "STATE", "REASON", "JOBS", "MONEY", "ETA")
	for _, g := range v.Gateways {
		for _, s := range g.States {
			t.Row(g.Gateway, s.State, s.Reason, s.Jobs, t.Money(s.Amount, int(s.Bare)), "")
		}
		if g.PausedAt != nil {
			t.Row(g.Gateway, "paused", "", "", cli.Uncut(fmt.Sprintf("%s by %s: %s", cli.Relative(*g.PausedAt, time.Now()), g.PausedBy, g.PauseWhy)), "")
		}
		if g.Cancelled != nil {
			t.Row(g.Gateway, "cancelled", "", "", cli.Uncut(fmt.Sprintf("%s by %s: %s", cli.Relative(*g.Cancelled, time.Now()), g.CancelBy, g.CancelWhy)), "")
		}
	}
	t.Row("all", "total", "", v.Jobs, t.Money(v.Amount, int(v.Bare)), etaText(v.ETASeconds))
	if err := t.Flush(); err != nil {
		return err
	}
	if v.ETASeconds == nil {
		p.remark("no ETA: %s", v.whyNoETA())
	}
	if slices.ContainsFunc(v.Gateways, func(g batchGatewayView) bool { return g.PausedAt != nil }) {
		p.remark("paused: %s", dispatch.ResumeBatch(v.Batch))
	}
	if v.MakesIt != nil && *v.MakesIt {
		p.remark("batch %q makes it by %s%s", v.Batch, v.By.Format(time.RFC3339), v.condition())
	}
	return nil
}

// condition is what must be done for the end that is said: empty if nothing.
func (v batchView) condition() string {
	if v.ETASeconds == nil {
		return ", if dispatchers begin now"
	}
	return ""
}

// whyNoETA says at which gateways nobody can say when the batch's jobs will have been called, and why.
func (v batchView) whyNoETA() string {
	var parts []string
	for _, g := range v.Gateways {
		if g.ETAWhy != "" {
			parts = append(parts, g.Gateway+": "+g.ETAWhy)
		}
	}
	return strings.Join(parts, "; ")
}
