package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
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

// jobShown is "job -o json".
type jobShown struct {
	jobView
	Payload json.RawMessage `json:"payload,omitempty"`
}

// jobView is that without the payload, which the API never shows.
type jobView struct {
	ID         string              `json:"id"`
	Gateway    string              `json:"gateway"`
	State      job.State           `json:"state"`
	Why        string              `json:"why"`
	Batch      string              `json:"batch"`
	Cost       int64               `json:"cost"`
	Amount     purse               `json:"amount"`
	Attempts   int                 `json:"attempts"`
	Spent      int                 `json:"attempts_spent"`
	Replays    int                 `json:"replays"`
	Key        string              `json:"idempotency_key"`
	Reason     job.Reason          `json:"reason,omitempty"`
	Error      string              `json:"error,omitempty"`
	Status     int                 `json:"status,omitempty"`
	Reference  string              `json:"reference,omitempty"`
	Settled    *deadletter.Settled `json:"settled,omitempty"`
	AcceptedAt *time.Time          `json:"accepted_at"`
	At         *time.Time          `json:"at,omitempty"`
	Expires    *time.Time          `json:"expires,omitempty"`
	DueAt      *time.Time          `json:"due_at,omitempty"`
	ParkedAt   *time.Time          `json:"parked_at,omitempty"`
	FinishedAt *time.Time          `json:"finished_at,omitempty"`
	Calls      []callView          `json:"calls"`
	// PayloadDeleted is true of a job that is over: nobody can show its payload.
	PayloadDeleted bool `json:"payload_deleted,omitempty"`
}

type callView struct {
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	Status  int       `json:"status"`
	Verdict string    `json:"verdict"`
}

func (c callView) text() string {
	answer := "no answer"
	if c.Status > 0 {
		answer = fmt.Sprintf("HTTP %d", c.Status)
	}
	return fmt.Sprintf("%s  %s  %s  %.3f s", c.At.Format(time.RFC3339Nano), answer, c.Verdict, c.Seconds)
}

func (p *program) job(ctx context.Context, id string, names []string, payload bool) error {
	p.payloads = payload
	s, chosen, err := p.openAt(ctx, names)
	if err != nil {
		return err
	}
	defer s.close()
	g, rec, err := find(ctx, s, chosen, id)
	if err != nil {
		return err
	}
	view, err := viewJob(ctx, s, g, rec)
	if err != nil {
		return err
	}
	v := jobShown{jobView: view}
	if payload && len(rec.Job.Payload) > 0 {
		v.Payload = asJSON(rec.Job.Payload)
	}
	if p.JSON() {
		err = cli.WriteJSON(p.Out, v)
	} else {
		err = p.jobTable(v, g.Retry.Attempts, payload)
	}
	if err != nil || !payload {
		return err
	}
	return unopened(rec)
}

// find returns the record of a job in the one gateway that knows it.
func find(ctx context.Context, s *session, in []config.Gateway, id string) (config.Gateway, job.Record, error) {
	var where []string
	var g config.Gateway
	var rec job.Record
	for _, candidate := range in {
		r, ok, err := dispatch.Books(s.db.Client, candidate).Find(ctx, id)
		if err != nil {
			return g, rec, dispatch.Coded(err)
		}
		if ok {
			where, g, rec = append(where, candidate.Name), candidate, r
		}
	}
	switch len(where) {
	case 0:
		return g, rec, &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("no job %q", id),
			Hint: "it was never enqueued here, or it was done longer ago than dedupe"}
	case 1:
		return g, rec, nil
	}
	return g, rec, cli.Usage("choose one with -g", "job %q is known to several gateways: %s", id, strings.Join(where, ", "))
}

func viewJob(ctx context.Context, s *session, g config.Gateway, r job.Record) (jobView, error) {
	why, err := dispatch.WhyNot(ctx, s.db.Client, g, r)
	if err != nil {
		return jobView{}, err
	}
	v := jobView{ID: r.Job.ID, Gateway: g.Name, State: r.State, Why: why, Batch: r.Job.Batch, Cost: r.Job.Cost, Attempts: r.Attempts, Spent: r.Spent,
		Replays: r.Replays, Key: job.IdempotencyKey(r.Job.ID, r.KeyGeneration), Reason: r.Reason, Error: r.Error, Status: r.Status, Reference: r.Reference,
		AcceptedAt: when(r.Accepted), At: when(r.Job.At), Expires: when(r.Job.Expires), DueAt: when(r.Due),
		ParkedAt: when(r.ParkedAt), FinishedAt: when(r.Finished), PayloadDeleted: r.PayloadGone() != "", Amount: amountOf(r, g), Calls: callsOf(r)}
	if g.Request.IdempotencyHeader == "" {
		v.Key = ""
	}
	if v.Settled, err = deadletter.New(s.db.Client, g.Name).Settlements()(ctx, r); err != nil {
		return jobView{}, dispatch.Coded(err)
	}
	return v, nil
}

// callsOf are the calls that were made for a job; there may be none.
func callsOf(r job.Record) []callView {
	calls := make([]callView, len(r.History))
	for i, c := range r.History {
		calls[i] = callView{At: c.At, Seconds: c.Took.Seconds(), Status: c.Status, Verdict: c.Verdict}
	}
	return calls
}

func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// asJSON returns a payload as it is, or as a text if it is no JSON: an unreadable job may hold anything.
func asJSON(payload []byte) json.RawMessage {
	if json.Valid(payload) {
		return payload
	}
	text, _ := json.Marshal(string(payload))
	return text
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

func callRows(t *cli.Table, calls []callView) {
	for i, c := range calls {
		t.Row(fmt.Sprintf("call %d", i+1), cli.Uncut(c.text()))
	}
}

func (p *program) jobTable(v jobShown, most int, payload bool) error {
	t := cli.NewTable(p.Streams, time.Now(), "FIELD", "VALUE")
	t.Row("id", cli.Uncut(v.ID))
	t.Row("gateway", cli.Uncut(v.Gateway))
	t.Row("state", v.State)
	t.Row("why", cli.Uncut(v.Why))
	t.Row("batch", cli.Uncut(v.Batch))
	if amount := t.Money(v.Amount, 0); amount != "" {
		t.Row("amount", amount)
	}
	t.Row("attempts", v.Attempts)
	t.Row("attempts spent", spentText(v.Spent, most))
	t.Row("idempotency key", cli.Uncut(v.Key))
	timeRows(t, timeRow{"accepted", v.AcceptedAt}, timeRow{"at", v.At}, timeRow{"expires", v.Expires}, timeRow{"due", v.DueAt},
		timeRow{"parked", v.ParkedAt}, timeRow{"finished", v.FinishedAt})
	if v.Reference != "" {
		t.Row("reference", cli.Uncut(v.Reference))
	}
	if v.Settled != nil {
		t.Row("settled", cli.Uncut(v.Settled.Text()))
	}
	if v.Error != "" {
		t.Row("error", cli.Uncut(v.Error))
	}
	callRows(t, v.Calls)
	switch {
	case len(v.Payload) > 0:
		t.Row("payload", cli.Uncut(v.Payload))
	case payload && v.PayloadDeleted:
		t.Row("payload", "deleted when the job was "+string(v.State))
	}
	return t.Flush()
}
