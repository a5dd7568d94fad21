package sdk

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"spillway/client"
)

// goClient is the Go client.
type goClient struct {
	w       *world
	gateway string
}

// do implements way.
func (g goClient) do(s step) any {
	g.w.t.Helper()
	ctx, c, by := g.w.t.Context(), g.w.client, client.Act{By: s.By, Why: s.Why}
	var v any
	var err error
	switch s.Do {
	case "enqueue":
		for i := range s.Jobs {
			s.Jobs[i].Gateway = g.gateway
		}
		results, _ := c.Enqueue(ctx, s.Jobs...)
		said := []any{}
		for _, r := range results {
			e, _ := errors.AsType[*client.Error](r.Err)
			if e != nil {
				r.Result = client.Admittance(e.Code)
			}
			said = append(said, string(r.Result))
		}
		v = said
	case "list":
		said := []any{}
		for d, failed := range c.EachDeadLetter(ctx, client.DeadLetterQuery{Filter: client.Filter{Gateways: []string{g.gateway}}}) {
			said, err = append(said, fmt.Sprint(d.ID, " ", d.Reason)), errors.Join(err, failed)
		}
		v = said
	case "replay":
		p, failed := c.Preview(ctx, client.Clearing{Filter: client.Filter{Gateways: []string{g.gateway}, IDs: s.IDs}, Action: client.Replay})
		done, refused := c.Clear(ctx, p, by)
		v, err = done.Taken, errors.Join(failed, refused)
	case "pause":
		var done client.Steered
		done, err = c.PauseGateway(ctx, g.gateway, by)
		v = done.Done
	case "resume":
		var done client.Steered
		done, err = c.ResumeGateway(ctx, g.gateway, by)
		v = done.Done
	case "limit":
		var now client.GatewayLimits
		now, err = c.SetLimits(ctx, g.gateway, s.Limits, by)
		v = now.Limits
	case "cancel":
		var done client.BatchAct
		done, err = c.CancelBatch(ctx, s.Batch, by, g.gateway)
		v = []int64{done.Gateways[0].Jobs}
	case "outcomes":
		var page []client.Outcome
		page, err = c.OutcomesPage(ctx, g.gateway, client.OutcomeQuery{Limit: 100})
		v = saying(page)
	}
	if err != nil {
		g.w.t.Fatalf("%s: %v", s.Do, err)
	}
	return v
}

func saying(all []client.Outcome) []any {
	said := []any{}
	for _, o := range all {
		name, reason := o.ID, client.Reason("-")
		if name == "" {
			name = o.Batch
		}
		if o.Reason != nil {
			reason = *o.Reason
		}
		amount := "null"
		if o.Amount != nil {
			amount = o.Amount.String()
		}
		said = append(said, fmt.Sprint(name, " ", o.State, " ", reason, " ", amount, " ", o.Currency))
	}
	return said
}

// commands are the commands, on Redis itself or through a dispatcher. enqueue always uses Redis.
type commands struct {
	w       *world
	gateway string
	server  string // of the dispatcher; empty: on Redis itself
}

// print runs a command of dispatcher and returns its standard output.
func (c commands) print(args ...string) string {
	c.w.t.Helper()
	if c.server != "" {
		args = append(args, "--server", c.server)
	}
	return c.w.print("dispatcher", args...)
}

// do implements way.
func (c commands) do(s step) any {
	c.w.t.Helper()
	at := []string{"-g", c.gateway, "-o", "json"}
	switch s.Do {
	case "enqueue":
		return c.enqueue(s.Jobs)
	case "list":
		said := []any{}
		for _, d := range documents[client.DeadLetter](c, append([]string{"dlq", "list"}, at...)...) {
			said = append(said, fmt.Sprint(d.ID, " ", d.Reason))
		}
		return said
	case "replay":
		return documents[map[string]any](c, append([]string{"dlq", "replay", "--id", s.IDs[0], "--why", s.Why, "--yes"}, at...)...)[0]["replayed"]
	case "pause":
		c.print("pause", "-g", c.gateway, "--why", s.Why)
		return "paused"
	case "resume":
		c.print("resume", "-g", c.gateway)
		return "resumed"
	case "limit":
		c.print("limit", "set", "-g", c.gateway, s.Limits[0])
		return s.Limits
	case "cancel":
		done := documents[client.BatchAct](c, append([]string{"batch", "cancel", s.Batch, "--why", s.Why, "--yes"}, at...)...)[0]
		return []int64{done.Gateways[0].Jobs}
	}
	return saying(documents[client.Outcome](c, "outcomes", "-g", c.gateway))
}

func (c commands) enqueue(jobs []client.Job) any {
	c.w.t.Helper()
	var lines strings.Builder
	for _, j := range jobs {
		line, err := json.Marshal(j)
		if err != nil {
			c.w.t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}
	c.w.write("jobs.ndjson", lines.String())
	var report map[string]any
	if err := json.Unmarshal([]byte(c.w.print("enqueue", "-g", c.gateway, "-f", "jobs.ndjson", "-o", "json")), &report); err != nil {
		c.w.t.Fatal(err)
	}
	said := map[string]any{}
	for _, name := range []string{"enqueued", "parked", "duplicate", "invalid", "failed"} {
		if report[name] != 0.0 {
			said[name] = report[name]
		}
	}
	return said
}

// documents are those that a command prints.
func documents[T any](c commands, args ...string) (all []T) {
	c.w.t.Helper()
	for d := json.NewDecoder(strings.NewReader(c.print(args...))); d.More(); {
		var v T
		if err := d.Decode(&v); err != nil {
			c.w.t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}
