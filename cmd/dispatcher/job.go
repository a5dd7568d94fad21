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

// findFlags are the flags of "find".
type findFlags struct {
	gateways, fields []string
	reference        string
	limit            int
}

func findCommand(p *program) *cobra.Command {
	f := &findFlags{}
	cmd := &cobra.Command{
		Use: "find [BEGINNING-OF-ID] [--reference REF] [--field payload.FIELD=VALUE]...", Short: "Find jobs by the prefix of their ids, the gateway's reference, or fields of their payloads",
		Long: `Find lists the jobs whose ids begin with the given text, whose reference is the given one, and whose
payloads have all the given fields. The reference is the gateway's own, as in its settlement report; jobs
have one if the configuration says where answers have it. A field is a string, a number as written in the
payload, true or false, and must be equal. Only jobs that are neither done nor discarded have a payload:
finished jobs are found by id and reference only. Sealed payloads need the keys of the configuration.

Redis does not sort ids, so find reads all keys, some hundred thousand a second, and some ten thousand
records or payloads a second. It does not show payloads.`,
		Example: "  dispatcher find inv-2026-11\n  dispatcher find --reference ch_3K -g stripe\n  dispatcher find --field payload.customer=cus_1042 -g stripe\n  dispatcher find inv- --field payload.address.city=Bonn --limit 10 -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := desk.JobSearch{Limit: f.limit, Reference: f.reference}
			if len(args) == 1 {
				q.Prefix = args[0]
			}
			return p.find(cmd, f, q)
		},
	}
	gatewaysFlag(cmd, &f.gateways, "only jobs of this `GATEWAY`; repeatable (default: all of the file)")
	cmd.Flags().StringArrayVar(&f.fields, "field", nil, "only jobs with this `FIELD=VALUE` in the payload: payload.customer=cus_1; repeatable: all of them")
	cmd.Flags().StringVar(&f.reference, "reference", "", "only the job with this `REF` of the gateway, such as ch_3K")
	cmd.Flags().IntVar(&f.limit, "limit", 0, "stop at `N` jobs (default: all)")
	return cmd
}

func (p *program) find(cmd *cobra.Command, f *findFlags, q desk.JobSearch) error {
	for _, text := range f.fields {
		field, err := desk.ParseField(text, "--field")
		if err != nil {
			return err
		}
		q.Fields = append(q.Fields, field)
	}
	if f.limit < 0 || f.limit == 0 && cmd.Flags().Changed("limit") {
		return cli.Usage("give at least 1, or leave it out for all", "--limit %d is too few", f.limit)
	}
	p.payloads = len(q.Fields) > 0
	d, err := p.atAll(cmd.Context(), f.gateways)
	if err != nil {
		return err
	}
	defer d.Close()
	of := remote.SearchOf{At: remote.At{Gateways: f.gateways}, ID: q.Prefix, Reference: q.Reference, Fields: map[string]string{}, Limit: min(q.Limit, remote.MostFound)}
	for _, field := range q.Fields {
		of.Fields["payload."+field.Path] = field.Value
	}
	out := p.newPaged("ID", "GATEWAY", "STATE", "MONEY", "BATCH", "REFERENCE", "ACCEPTED")
	unread, err := p.writeHits(cmd, d, out, of, q.Limit)
	if err != nil {
		return err
	}
	if err := out.flush(); err != nil {
		return err
	}
	if out.rows == 0 && !p.JSON() {
		p.remark("no such job")
	}
	if f.limit > 0 && out.rows == f.limit {
		p.remark("there may be more: find stopped at --limit %d", f.limit)
	}
	if unread > 0 {
		p.remark("the payloads of %s can't be read, so they may match or not", job.JobsText(unread))
	}
	return nil
}

// writeHits writes the jobs of one page after the other.
func (p *program) writeHits(cmd *cobra.Command, d remote.Desk, out *paged, q remote.SearchOf, most int) (unread int64, err error) {
	for {
		hits, err := remote.Search.Ask(cmd.Context(), d, q)
		if err != nil {
			return unread, err
		}
		unread += hits.Unread
		for _, h := range hits.Jobs {
			if most > 0 && out.rows == most {
				return unread, nil
			}
			if err := p.writeHit(out, h); err != nil {
				return unread, err
			}
		}
		if hits.Next == nil || most > 0 && out.rows == most {
			return unread, nil
		}
		q.After = *hits.Next
	}
}

func (p *program) writeHit(out *paged, h desk.JobHit) error {
	if p.JSON() {
		out.rows++
		return cli.WriteJSON(out.out, h)
	}
	state := string(h.State)
	if h.Reason != "" {
		state += " " + string(h.Reason)
		if p.OutTerminal {
			state = string(h.State) + ": " + h.Reason.Words()
		}
	}
	return out.row(cli.Uncut(h.ID), h.Gateway, state, out.table.Money(h.Money()), cli.Uncut(h.Batch), cli.Uncut(h.Reference), moments(h.AcceptedAt))
}
