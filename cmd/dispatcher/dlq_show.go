package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/job"
)

func dlqShowCommand(p *program) *cobra.Command {
	var names []string
	var payload bool
	cmd := &cobra.Command{
		Use: "show ID [-g GATEWAY]", Short: "Show one parked job whole, and what a replay would do with it",
		Example: "  dispatcher dlq show inv-1042\n  dispatcher dlq show inv-1042 -g stripe --payload -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.dlqShow(cmd.Context(), args[0], names, payload)
		},
	}
	gatewaysFlag(cmd, &names, "look in this `GATEWAY` only; repeatable (default: all of the file)")
	cmd.Flags().BoolVar(&payload, "payload", false, "show the payload too: it may hold personal data")
	return cmd
}

// parkedWhole is "dlq show -o json".
type parkedWhole struct {
	parkedView
	Spent      int        `json:"attempts_spent"`
	Cost       int64      `json:"cost"`
	Key        string     `json:"idempotency_key"`
	Status     int        `json:"status,omitempty"`
	AcceptedAt *time.Time `json:"accepted_at"`
	At         *time.Time `json:"at,omitempty"`
	Expires    *time.Time `json:"expires,omitempty"`
	FirstCall  *time.Time `json:"first_call_at,omitempty"`
	Edited     *time.Time `json:"edited_at,omitempty"`
	Unsure     bool       `json:"may_have_charged"`
	Amount     purse      `json:"amount"`
	Replay     string     `json:"replay"`
	Calls      []callView `json:"calls"`
}

func (p *program) dlqShow(ctx context.Context, id string, names []string, payload bool) error {
	p.payloads = payload
	s, chosen, err := p.openAt(ctx, names)
	if err != nil {
		return err
	}
	defer s.close()
	u, r, err := findParked(ctx, &selection{session: s, gateways: chosen, filter: deadletter.Filter{IDs: []string{id}}})
	if err != nil {
		return err
	}
	v := viewWhole(u, r, payload)
	if p.JSON() {
		err = cli.WriteJSON(p.Out, v)
	} else {
		err = p.parkedTable(v, u.g.Retry.Attempts)
	}
	if err != nil || !payload {
		return err
	}
	return unopened(r)
}

// unopened is the error of whoever asked for a payload that can't be opened.
func unopened(r job.Record) error {
	if r.Unopened == nil {
		return nil
	}
	return fmt.Errorf("job %q: %w", r.Job.ID, r.Unopened)
}

// findParked returns the one parked job of the selection.
func findParked(ctx context.Context, s *selection) (unit, job.Record, error) {
	var where []string
	var u unit
	var found job.Record
	_, err := s.each(ctx, func(g config.Gateway, r job.Record) error {
		where, u, found = append(where, g.Name), unit{g: g}, r
		return nil
	})
	if err != nil {
		return u, found, err
	}
	if len(where) > 1 {
		return u, found, cli.Usage("choose one with -g", "job %q is parked at several gateways: %s", found.Job.ID, strings.Join(where, ", "))
	}
	u, err = unitOf(ctx, s.db.Client, u.g, false)
	return u, found, err
}

func viewWhole(u unit, r job.Record, payload bool) parkedWhole {
	v := parkedWhole{parkedView: viewParked(r, payload), Spent: r.Spent, Cost: r.Job.Cost, Status: r.Status,
		AcceptedAt: when(r.Accepted), At: when(r.Job.At), Expires: when(r.Job.Expires), FirstCall: when(r.FirstCall), Edited: when(r.Edited),
		Unsure: r.InDoubt(), Amount: amountOf(r, u.g), Calls: callsOf(r)}
	if u.rules.Keys {
		v.Key = job.IdempotencyKey(r.Job.ID, r.KeyGeneration)
	}
	change, why := u.rules.Key(r)
	switch {
	case why != "":
		v.Replay = "held back: " + why
	case change == job.NextKey && u.rules.Keys:
		v.Replay = "goes in with the idempotency key " + job.IdempotencyKey(r.Job.ID, r.KeyGeneration+1)
	default:
		v.Replay = "goes in as it is"
	}
	return v
}

func (p *program) parkedTable(v parkedWhole, most int) error {
	t := cli.NewTable(p.Streams, time.Now(), "FIELD", "VALUE")
	t.Row("id", cli.Uncut(v.ID))
	t.Row("gateway", cli.Uncut(v.Gateway))
	t.Row("reason", v.Reason)
	t.Row("error", cli.Uncut(v.Error))
	t.Row("attempts", v.Attempts)
	t.Row("attempts spent", spentText(v.Spent, most))
	t.Row("replays", replaysText(v.Replays))
	t.Row("parked", v.ParkedAt)
	t.Row("batch", cli.Uncut(v.Batch))
	if amount := t.Money(v.Amount, 0); amount != "" {
		t.Row("amount", amount)
	}
	t.Row("may have charged", yesNo(v.Unsure))
	t.Row("idempotency key", cli.Uncut(v.Key))
	t.Row("a replay", cli.Uncut(v.Replay))
	timeRows(t, timeRow{"accepted", v.AcceptedAt}, timeRow{"at", v.At}, timeRow{"expires", v.Expires}, timeRow{"first call", v.FirstCall},
		timeRow{"payload replaced", v.Edited})
	callRows(t, v.Calls)
	if len(v.Payload) > 0 {
		t.Row("payload", cli.Uncut(v.Payload))
	}
	return t.Flush()
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
