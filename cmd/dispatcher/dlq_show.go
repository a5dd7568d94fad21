package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
)

func dlqShowCommand(p *program) *cobra.Command {
	var names []string
	var payload bool
	cmd := &cobra.Command{
		Use: "show ID [-g GATEWAY]", Short: "Show one parked job in full, and what a replay would do with it",
		Example: "  dispatcher dlq show inv-1042\n  dispatcher dlq show inv-1042 -g stripe --payload -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.dlqShow(cmd.Context(), args[0], names, payload)
		},
	}
	gatewaysFlag(cmd, &names, "look in this `GATEWAY` only; repeatable (default: all of the file)")
	cmd.Flags().BoolVar(&payload, "payload", false, "also show the payload, which may hold personal data")
	return cmd
}

func (p *program) dlqShow(ctx context.Context, id string, names []string, payload bool) error {
	p.payloads = payload
	v, err := ask(ctx, p, remote.DeadLetter, remote.JobOf{ID: id, At: remote.At{Gateways: names}, Payload: payload})
	if err != nil {
		return err
	}
	if p.JSON() {
		err = cli.WriteJSON(p.Out, v.ParkedWhole)
	} else {
		err = p.parkedTable(v.ParkedWhole, v.Most)
	}
	if err != nil || !payload {
		return err
	}
	return unopened(id, v.Unopened)
}

// unopened returns the error for a requested payload that can't be opened.
func unopened(id, why string) error {
	if why == "" {
		return nil
	}
	return fmt.Errorf("job %q: %s", id, why)
}

func (p *program) parkedTable(v desk.ParkedWhole, most int) error {
	t := cli.NewTable(p.Streams, time.Now(), "FIELD", "VALUE")
	t.Row("id", cli.Uncut(v.ID))
	t.Row("gateway", cli.Uncut(v.Gateway))
	t.Row("reason", v.Reason.Words())
	t.Row("error", cli.Uncut(v.Error))
	t.Row("attempts", v.Attempts)
	t.Row("attempts spent", spentText(v.Spent, most))
	t.Row("replays", replaysText(v.Replays))
	t.Row("parked", v.ParkedAt)
	t.Row("batch", cli.Uncut(v.Batch))
	factRows(t, v.Given())
	if amount := t.Money(job.Totals{Amount: v.Amount}); amount != "" {
		t.Row("amount", amount)
	}
	t.Row("may have charged", yesNo(v.Unsure))
	t.Row("idempotency key", cli.Uncut(v.Key))
	t.Row("a replay", cli.Uncut(v.Replay))
	factRows(t, v.Facts())
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
