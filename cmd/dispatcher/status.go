package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	units "github.com/docker/go-units"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"spillway/internal/bucket"
	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

func statusCommand(p *program) *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use: "status [-g GATEWAY]...", Short: "Show every gateway at a glance",
		Long: `Status shows one row for each configured gateway: what waits, what is under way, what is done, what is
parked, why and how much money, the rate of the last minute, the hold, and when the last waiting job
will have been called.`,
		Example: "  dispatcher status\n  dispatcher status -g stripe -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.status(cmd.Context(), names) },
	}
	gatewaysFlag(cmd, &names, "show this `GATEWAY` only; repeatable (default: all of the file)")
	return cmd
}

// gatewayStatus is one gateway of "status -o json".
type gatewayStatus struct {
	Gateway    string           `json:"gateway"`
	Queued     int64            `json:"queued"`
	InFlight   int64            `json:"in_flight"`
	Scheduled  int64            `json:"scheduled"`
	Retrying   int64            `json:"retrying"`
	Done       int64            `json:"done"`
	Parked     map[string]int64 `json:"parked"`
	ParkedMost int64            `json:"parked_most,omitempty"` // once more than 80 % of it are parked
	Bytes      int64            `json:"parked_bytes"`
	BytesMost  int64            `json:"parked_bytes_most,omitempty"` // once more than 80 % of it are parked
	Amount     purse            `json:"parked_amount"`
	Bare       int64            `json:"parked_without_amount"`
	Limits     []string         `json:"limits"`
	Admission  []string         `json:"admission"`
	Bottleneck string           `json:"bottleneck"`
	Rate1m     float64          `json:"rate_1m"`
	HeldUntil  *time.Time       `json:"held_until"`
	HoldReason string           `json:"hold_reason,omitempty"`
	Paused     bool             `json:"paused"`
	PauseWhy   string           `json:"pause_why,omitempty"`
	ETASeconds *float64         `json:"eta_seconds"`
	ETAWhy     string           `json:"eta_why,omitempty"`

	hold bucket.Standing
	// stopped is why nobody calls the gateway where nobody knows until when, also while nothing waits.
	stopped string
}

func (p *program) status(ctx context.Context, names []string) error {
	s, chosen, err := p.openAt(ctx, names)
	if err != nil {
		return err
	}
	defer s.close()
	chosen, rows, damaged := statusOfWell(ctx, s.db.Client, chosen)
	if damaged != nil && len(rows) == 0 {
		return damaged
	}
	if err := p.showStatus(ctx, s.db.Client, chosen, rows); err != nil {
		return err
	}
	return damaged
}

// statusOfWell looks at each gateway, and returns those that could be looked at, and what is wrong with the others.
func statusOfWell(ctx context.Context, c redis.UniversalClient, chosen []config.Gateway) (well []config.Gateway, rows []gatewayStatus, damaged error) {
	for _, g := range chosen {
		row, err := statusRows(ctx, c, []config.Gateway{g})
		if _, is := errors.AsType[*redisdb.DamagedError](err); err != nil && !is {
			return nil, nil, err
		}
		if err != nil {
			damaged = errors.Join(damaged, fmt.Errorf("gateway %s: %w", g.Name, err))
			continue
		}
		well, rows = append(well, g), append(rows, row...)
	}
	return well, rows, damaged
}

func (p *program) showStatus(ctx context.Context, c redis.UniversalClient, chosen []config.Gateway, rows []gatewayStatus) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, statusDocument(rows))
	}
	if err := p.statusTable(rows); err != nil {
		return err
	}
	p.remarkHolds(rows)
	for _, r := range rows {
		if r.ParkedMost > 0 {
			p.remark("%s: parked.most is %d: once so many jobs are parked, newcomers that find no room are turned away", r.Gateway, r.ParkedMost)
		}
		if r.BytesMost > 0 {
			p.remark("%s: parked.bytes is %s: once so much is parked, newcomers that find no room are turned away", r.Gateway, units.BytesSize(float64(r.BytesMost)))
		}
	}
	return p.remarkPaused(ctx, c, chosen, rows)
}

// remarkHolds says whole, below a table on a terminal, what its cells have room to name only.
func (p *program) remarkHolds(rows []gatewayStatus) {
	if !p.OutTerminal {
		return
	}
	for _, r := range rows {
		if why := holdText(r); why != "" {
			p.remark("%s: %s", r.Gateway, why)
		}
	}
}

// remarkPaused says what takes the jobs of paused batches in again. One batch is named, that of the job that is parked longest.
func (p *program) remarkPaused(ctx context.Context, c redis.UniversalClient, chosen []config.Gateway, rows []gatewayStatus) error {
	for i, g := range chosen {
		n := rows[i].Parked[string(job.Paused)]
		if n == 0 {
			continue
		}
		for r, err := range dispatch.Store(c, g).List(ctx, deadletter.Filter{Reasons: []job.Reason{job.Paused}, Limit: 1, NoPayload: true}) {
			if err != nil {
				return dispatch.Coded(err)
			}
			p.remark("%s: %s of paused batches, such as %s: %s", g.Name, jobs(int(n)), r.Job.Batch, dispatch.ResumeBatch(r.Job.Batch))
		}
	}
	return nil
}

// statusDocument is what status prints as JSON.
func statusDocument(rows []gatewayStatus) any { return map[string]any{"gateways": rows} }

// statusRows looks at each gateway.
func statusRows(ctx context.Context, c redis.UniversalClient, chosen []config.Gateway) ([]gatewayStatus, error) {
	rows := make([]gatewayStatus, len(chosen))
	for i, g := range chosen {
		v, err := dispatch.Look(ctx, c, g)
		if err != nil {
			return nil, err
		}
		rows[i] = statusOf(g.Name, v)
		if err := rows[i].count(ctx, c, g); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

func statusOf(name string, v dispatch.Glance) gatewayStatus {
	row := gatewayStatus{Gateway: name, Queued: v.Queued, InFlight: v.InFlight, Scheduled: v.Scheduled, Retrying: v.Retrying,
		Done: v.Done, Parked: map[string]int64{}, ParkedMost: v.ParkedNear.Jobs, Bytes: v.ParkedBytes, BytesMost: v.ParkedNear.Bytes, Limits: texts(v.Limits),
		Admission: texts(v.Admission), Bottleneck: v.Bottleneck(), Rate1m: tenth(v.Rate), Paused: v.Hold.Paused, PauseWhy: v.Hold.PauseWhy, hold: v.Hold,
		stopped: v.Stopped}
	for r, n := range v.Parked {
		row.Parked[string(r)] = n
	}
	if v.Hold.HeldUntil.After(v.Now) {
		until := v.Hold.HeldUntil.UTC()
		row.HeldUntil, row.HoldReason = &until, v.Hold.Reason
	}
	if v.Hold.Probing {
		row.HoldReason = v.Hold.Reason
	}
	if v.ETA >= 0 {
		eta := tenth(v.ETA.Seconds())
		row.ETASeconds = &eta
	} else {
		row.ETAWhy = v.Stopped
	}
	return row
}

// count adds the money of what is parked, which the books keep in sums.
func (r *gatewayStatus) count(ctx context.Context, c redis.UniversalClient, g config.Gateway) error {
	sums, err := dispatch.Books(c, g).ParkedMoney(ctx)
	if err != nil {
		return dispatch.Coded(err)
	}
	r.Amount = purse{}
	for _, one := range sums {
		r.Amount.addAll(one.Money)
		r.Bare += one.Unread
	}
	return nil
}

func tenth(f float64) float64 { return math.Round(f*10) / 10 }

func (p *program) statusTable(rows []gatewayStatus) error {
	t := cli.NewTable(p.Streams, time.Now(), "GATEWAY", "QUEUED", "IN FLIGHT", "SCHEDULED", "RETRYING", "DONE", "PARKED", "MONEY", "LIMITS", "RATE", "HOLD", "ETA")
	for _, r := range rows {
		hold := holdText(r)
		if p.OutTerminal {
			hold = holdWord(r)
		}
		t.Row(r.Gateway, r.Queued, r.InFlight, r.Scheduled, r.Retrying, r.Done, cli.Uncut(p.parkedText(r.Parked)), t.Money(r.Amount, 0),
			cli.Uncut(boundText(r.Limits, r.Admission, r.Bottleneck)),
			fmt.Sprintf("%.1f/s", r.Rate1m), hold, etaText(r.ETASeconds))
	}
	return t.Flush()
}

// parkedText is how many jobs are parked, by reason.
func (p *program) parkedText(parked map[string]int64) string {
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	if p.OutTerminal {
		count = job.CountText
	}
	var parts []string
	for _, r := range job.Reasons() {
		if n := parked[string(r)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", r, count(n)))
		}
	}
	return strings.Join(parts, ", ")
}

// holdWord names what holdText says.
func holdWord(r gatewayStatus) string {
	switch h := r.hold; {
	case h.Barred:
		return "stopped"
	case h.Paused:
		return "paused"
	case h.Denied:
		return "denied"
	case h.Circuit:
		return "circuit open"
	case r.HeldUntil != nil:
		return "held"
	case r.stopped != "":
		return "unserved"
	case h.Probing:
		return "probing"
	}
	return ""
}

func holdText(r gatewayStatus) string {
	switch {
	case r.hold.Barred:
		return "stopped: " + r.PauseWhy
	case r.Paused:
		return "paused: " + r.PauseWhy
	case r.stopped != "":
		return r.stopped
	case r.HeldUntil != nil:
		return fmt.Sprintf("until %s: %s", r.HeldUntil.Format(time.RFC3339), r.HoldReason)
	case r.HoldReason != "":
		return "over, one call goes ahead: " + r.HoldReason
	}
	return ""
}

func etaText(seconds *float64) string {
	if seconds == nil {
		return "?"
	}
	return cli.Short(time.Duration(*seconds * float64(time.Second)))
}
