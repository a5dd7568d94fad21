package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/client"
	"spillway/internal/testkit"
)

var ops = client.Act{By: "ops@example", Why: "a test"}

// parkedFor waits until so many jobs of a gateway are parked for this reason.
func parkedFor(t *testing.T, c *client.Client, gateway string, reason client.Reason, n int) []client.DeadLetter {
	t.Helper()
	var page client.DeadLetters
	testkit.Eventually(t, time.Minute, "jobs to be parked as "+string(reason), func() bool {
		var err error
		page, err = c.DeadLetters(context.Background(), client.DeadLetterQuery{Filter: client.Filter{Gateways: []string{gateway}, Reasons: []client.Reason{reason}}, Payload: true})
		return err == nil && len(page.Jobs) == n
	})
	return page.Jobs
}

func TestDeadLettersAreListedAndCleared(t *testing.T) {
	t.Parallel()
	c := at(t, server)
	all := jobs("letters", "letter", 4)
	for i := range all[:3] {
		all[i].Payload = map[string]any{"amount": 100, "currency": "EUR", "decline": true}
	}
	if _, err := c.Enqueue(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	if listed := parkedFor(t, c, "letters", client.Refused, 3); !strings.Contains(string(listed[0].Payload), `"decline":true`) || listed[0].MayHaveCharged {
		t.Errorf("%+v", listed)
	}
	here := client.Filter{Gateways: []string{"letters"}}
	var ids []string
	for d, err := range c.EachDeadLetter(t.Context(), client.DeadLetterQuery{Filter: client.Filter{Gateways: here.Gateways, Limit: 1}}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, d.ID)
	}
	slices.Sort(ids)
	if !slices.Equal(ids, []string{"letter-00000", "letter-00001", "letter-00002"}) {
		t.Errorf("page by page: %v", ids)
	}
	if d, err := c.DeadLetter(t.Context(), "letter-00001", "letters"); err != nil || d.Status != 402 || d.Amount["EUR"].Int64() != 100 || len(d.Calls) != 1 || d.Replay == "" {
		t.Errorf("%+v %v", d, err)
	}
	if s, err := c.DeadLetterStats(t.Context(), here); err != nil || s.Gateways[0].Total != 3 || s.Gateways[0].ByReason[client.Refused].Amount["EUR"].Int64() != 300 {
		t.Errorf("%+v %v", s, err)
	}
	here.IDs = []string{"letter-00000"}
	p, err := c.Preview(t.Context(), client.Clearing{Filter: here, Action: client.Replay})
	if err != nil || p.Jobs != 1 || p.Would.Jobs != 1 || p.Token == "" {
		t.Fatalf("%+v %v", p, err)
	}
	done, err := c.Clear(t.Context(), p, ops)
	if err != nil || done.Taken != 1 || done.Parts[0].Gateway != "letters" {
		t.Errorf("%+v %v", done, err)
	}
	parkedFor(t, c, "letters", client.Refused, 3) // it was declined again
	here.IDs = nil
	p, err = c.Preview(t.Context(), client.Clearing{Filter: here, Action: client.Discard})
	if err != nil || p.Jobs != 3 {
		t.Fatalf("%+v %v", p, err)
	}
	single := client.Clearing{Filter: client.Filter{Gateways: here.Gateways, IDs: []string{"letter-00002"}}}
	for _, action := range []client.Action{client.ResolveDone, client.Discard} { // it was declined: there is nothing to resolve
		single.Action = action
		v, err := c.Preview(t.Context(), single)
		if err != nil {
			t.Fatal(err)
		}
		if done, err := c.Clear(t.Context(), v, ops); action == client.Discard && err != nil || (done.Taken == 1) != (action == client.Discard) {
			t.Errorf("%s: %+v %v", action, done, err)
		}
	}
	if _, err := c.Clear(t.Context(), p, ops); !errors.Is(err, client.Changed) {
		t.Errorf("what was previewed has changed: %v", err)
	}
	if p, err = c.Preview(t.Context(), client.Clearing{Filter: here, Action: client.Discard}); err != nil {
		t.Fatal(err)
	}
	if done, err := c.Clear(t.Context(), p, ops); err != nil || done.Taken != 2 {
		t.Errorf("%+v %v", done, err)
	}
	settled(t, c, "letters", "letter-00000", client.Discarded)
}

func TestGatewaysAndBatchesAreSteered(t *testing.T) {
	t.Parallel()
	c := at(t, server)
	if s, err := c.PauseGateway(t.Context(), "steered", ops); err != nil || s.Gateway != "steered" || s.Done != "paused" {
		t.Errorf("%+v %v", s, err)
	}
	if _, err := c.PauseGateway(t.Context(), "steered", client.Act{}); !errors.Is(err, client.InvalidRequest) {
		t.Errorf("nobody acts: %v", err)
	}
	if l, err := c.SetLimits(t.Context(), "steered", []string{"50/s"}, ops); err != nil || !slices.Equal(l.Limits, []string{"50/s"}) || !l.SetLive {
		t.Errorf("%+v %v", l, err)
	}
	all := jobs("steered", "steered", 3)
	for i := range all {
		all[i].Batch = "december"
	}
	if _, err := c.Enqueue(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	if b, err := c.PauseBatch(t.Context(), "december", ops); err != nil || !b.Done || b.Gateways[0].Jobs != 3 {
		t.Errorf("%+v %v", b, err)
	}
	if b, err := c.ResumeBatch(t.Context(), "december", ops); err != nil || !b.Done || b.Gateways[0].Jobs != 3 {
		t.Errorf("%+v %v", b, err)
	}
	if p, err := c.ParkJob(t.Context(), "steered-00002", ops, "steered"); err == nil && !p.Done {
		t.Errorf("%+v %v", p, err)
	}
	if b, err := c.CancelBatch(t.Context(), "december", ops, "steered"); err != nil || !b.Done {
		t.Errorf("%+v %v", b, err)
	}
	if b, err := c.Batch(t.Context(), "december"); err != nil || b.Gateways[0].CancelledBy != ops.By || b.Gateways[0].CancelWhy != ops.Why {
		t.Errorf("%+v %v", b, err)
	}
	if l, err := c.ResetLimits(t.Context(), "steered", ops); err != nil || l.SetLive || slices.Equal(l.Limits, []string{"50/s"}) {
		t.Errorf("%+v %v", l, err)
	}
	if l, err := c.Limits(t.Context(), "steered"); err != nil || len(l.Gateways) != 1 || l.Gateways[0].Gateway != "steered" {
		t.Errorf("%+v %v", l, err)
	}
	if f, err := c.ForgiveLimits(t.Context(), "steered", ops); err != nil && !errors.Is(err, client.NotPossible) {
		t.Errorf("%+v %v", f, err)
	}
	if s, err := c.ResumeGateway(t.Context(), "steered", ops); err != nil || s.Done != "resumed" {
		t.Errorf("%+v %v", s, err)
	}
}

// An act whose answer is lost is requested again, and is done once.
func TestAnActWhoseAnswerIsLostIsDoneOnce(t *testing.T) {
	t.Parallel()
	p := cutting(t, server)
	p.answers.Store(1500) // an answer has some hundred
	direct, c := at(t, server), at(t, p.url, client.Patience(time.Minute))
	all := jobs("acts", "act", 20)
	for i := range all {
		all[i].Payload, all[i].Batch = map[string]any{"amount": 100, "currency": "EUR", "decline": true}, "acts"
	}
	if _, err := direct.Enqueue(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	parkedFor(t, direct, "acts", client.Refused, 20)
	for i := range all {
		v, err := direct.Preview(t.Context(), client.Clearing{Filter: client.Filter{Gateways: []string{"acts"}, IDs: []string{all[i].ID}}, Action: client.Discard})
		if err != nil {
			t.Fatal(err)
		}
		if done, err := c.Clear(t.Context(), v, ops); err != nil || done.Taken != 1 {
			t.Fatalf("%d: %+v %v, after %d cuts", i, done, err, p.cut.Load())
		}
	}
	if p.cut.Load() < 5 {
		t.Errorf("only %d connections were cut", p.cut.Load())
	}
}
