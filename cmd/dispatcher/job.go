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

func jobCommand(p *program) *cobra.Command {
	var names []string
	var payload bool
	cmd := &cobra.Command{
		Use: "job ID [-g GATEWAY]", Short: "Show everything known of one job",
		Long:    "Job shows the state of one job, its attempts, times and answers, and why it isn't running now.",
		Example: "  dispatcher job inv-1042\n  dispatcher job inv-1042 -g stripe -o json",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.job(cmd.Context(), args[0], names, payload) },
	}
	gatewaysFlag(cmd, &names, "look in this `GATEWAY` only; repeatable (default: all of the file)")
	cmd.Flags().BoolVar(&payload, "payload", false, "also show the payload, which may hold personal data")
	return cmd
}

func (p *program) job(ctx context.Context, id string, names []string, payload bool) error {
	p.payloads = payload
	v, err := ask(ctx, p, remote.Job, remote.JobOf{ID: id, At: remote.At{Gateways: names}, Payload: payload})
	if err != nil {
		return err
	}
	if p.JSON() {
		err = cli.WriteJSON(p.Out, v.JobShown)
	} else {
		err = p.jobTable(v.JobShown, v.Most, payload)
	}
	if err != nil || !payload {
		return err
	}
	return unopened(id, v.Unopened)
}

// spentText says how many of the calls count against retry.attempts.
func spentText(spent, most int) string { return fmt.Sprintf("%d of %d", spent, most) }

func factRows(t *cli.Table, facts []desk.Fact) {
	for _, f := range facts {
		if f.At != nil {
			t.Row(f.Name, *f.At)
			continue
		}
		t.Row(f.Name, cli.Uncut(f.Text))
	}
}

func callRows(t *cli.Table, calls []desk.Call) {
	n := 0
	for _, c := range calls {
		what := "look-up"
		if !c.Lookup() {
			n++
			what = fmt.Sprintf("call %d", n)
		}
		t.Row(what, cli.Uncut(c.Text()))
	}
}

func (p *program) jobTable(v remote.JobShown, most int, payload bool) error {
	t := cli.NewTable(p.Streams, time.Now(), "FIELD", "VALUE")
	t.Row("id", cli.Uncut(v.ID))
	t.Row("gateway", cli.Uncut(v.Gateway))
	t.Row("state", job.StateWords(v.State, v.Reason))
	t.Row("why", cli.Uncut(v.Why))
	t.Row("batch", cli.Uncut(v.Batch))
	factRows(t, v.Given())
	if amount := t.Money(job.Totals{Amount: v.Amount}); amount != "" {
		t.Row("amount", amount)
	}
	t.Row("attempts", v.Attempts)
	t.Row("attempts spent", spentText(v.Spent, most))
	t.Row("idempotency key", cli.Uncut(v.Key))
	factRows(t, v.Facts())
	callRows(t, v.Calls)
	switch {
	case len(v.Payload) > 0:
		t.Row("payload", cli.Uncut(v.Payload))
	case payload && v.PayloadDeleted:
		t.Row("payload", "deleted when the job was "+string(v.State))
	}
	return t.Flush()
}
