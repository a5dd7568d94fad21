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
	cmd.Flags().BoolVar(&payload, "payload", false, "show the payload too: it may hold personal data")
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

// timeRow is a moment in the table of one job; without a row where it is nil.
type timeRow struct {
	name string
	at   *time.Time
}

func timeRows(t *cli.Table, rows ...timeRow) {
	for _, r := range rows {
		if r.at != nil {
			t.Row(r.name, *r.at)
		}
	}
}

// lookRows are what is known of a job's look-ups, if it was asked about.
func lookRows(t *cli.Table, v desk.Job) {
	timeRows(t, timeRow{"call in doubt ended", v.CallEnded}, timeRow{"next look-up", v.NextLook})
	if v.Lookups > 0 {
		t.Row("look-ups", v.Lookups)
	}
	if v.LastLook != "" {
		t.Row("last look-up", cli.Uncut(v.LastLook))
	}
	timeRows(t, timeRow{"look-ups fail since", v.LooksFail})
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
	if v.Route != "" {
		t.Row("route", v.Route)
	}
	if v.Lane != "" {
		t.Row("lane", cli.Uncut(v.Lane))
	}
	if v.Priority != "" {
		t.Row("priority", v.Priority)
	}
	if amount := t.Money(job.Totals{Amount: v.Amount}); amount != "" {
		t.Row("amount", amount)
	}
	t.Row("attempts", v.Attempts)
	t.Row("attempts spent", spentText(v.Spent, most))
	t.Row("idempotency key", cli.Uncut(v.Key))
	timeRows(t, timeRow{"accepted", v.AcceptedAt}, timeRow{"at", v.At}, timeRow{"expires", v.Expires}, timeRow{"due", v.DueAt},
		timeRow{"parked", v.ParkedAt}, timeRow{"finished", v.FinishedAt}, timeRow{"forgotten", v.ErasedAt})
	if v.Reference != "" {
		t.Row("reference", cli.Uncut(v.Reference))
	}
	if v.Settled != nil {
		t.Row("settled", cli.Uncut(v.Settled.Text()))
	}
	if v.Error != "" {
		t.Row("error", cli.Uncut(v.Error))
	}
	lookRows(t, v.Job)
	callRows(t, v.Calls)
	switch {
	case len(v.Payload) > 0:
		t.Row("payload", cli.Uncut(v.Payload))
	case payload && v.PayloadDeleted:
		t.Row("payload", "deleted when the job was "+string(v.State))
	}
	return t.Flush()
}
