package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"spillway/client"
)

// parked enqueues jobs for which a gateway with a feed has no room, and returns their ids. Each is an outcome at once.
func parked(t *testing.T, c *client.Client, prefix string, n int) (ids []string) {
	t.Helper()
	got, err := c.Enqueue(t.Context(), jobs("fed", prefix, n)...)
	if err != nil {
		t.Error(err)
	}
	for _, r := range got {
		if r.Result == client.ParkedNow {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// now returns the cursor after all present outcomes of the gateway.
func now(t *testing.T, c *client.Client, gateway string) (cursor string) {
	t.Helper()
	for {
		page, err := c.OutcomesPage(t.Context(), gateway, client.OutcomeQuery{After: cursor, Limit: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return cursor
		}
		cursor = page[len(page)-1].Cursor
	}
}

// The connection of a reader of the stream is cut at random places again and again. The reader misses no outcome and gets none twice.
func TestAReaderThatIsCutOffMissesNothing(t *testing.T) {
	t.Parallel()
	whole := at(t, server)
	taken := parked(t, whole, "before", 5) // but for one, which takes the room there is
	settled(t, whole, "fed", "before-00000", client.Done)
	p := cutting(t, server)
	p.answers.Store(8_000)
	c := at(t, p.url)
	after := now(t, whole, "fed")
	const n = 9
	done := make(chan []string, 1)
	go func() {
		var all []string
		for i := range n {
			all = append(all, parked(t, whole, fmt.Sprintf("cut-%02d", i), 100)...)
		}
		done <- all
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var got []string
	for o, err := range c.Outcomes(ctx, "fed", after) {
		if err != nil {
			t.Fatalf("after %d outcomes and %d cuts: %v", len(got), p.cut.Load(), err)
		}
		if got = append(got, o.ID); len(got) == 100*n {
			break
		}
	}
	if want := <-done; len(taken) != 4 || !slices.Equal(got, want) {
		t.Errorf("%d outcomes are not those of %d jobs, in their order: %v", len(got), len(want), got)
	}
	t.Logf("%d outcomes over %d connections that were cut", len(got), p.cut.Load())
	if p.cut.Load() < 50 {
		t.Errorf("only %d connections were cut", p.cut.Load())
	}
}

func TestOutcomesAreReadAndAcknowledged(t *testing.T) {
	t.Parallel()
	c := at(t, server)
	after := now(t, c, "stripe")
	_, err := c.Enqueue(t.Context(), client.Job{Gateway: "stripe", ID: "good", Payload: map[string]any{"amount": 4900, "currency": "EUR"}, Batch: "acked"},
		client.Job{Gateway: "stripe", ID: "bad", Payload: map[string]any{"amount": 100, "currency": "EUR", "decline": true}, Batch: "acked"})
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]client.Outcome{}
	var last string
	for o, err := range c.Outcomes(t.Context(), "stripe", after) {
		if err != nil {
			t.Fatal(err)
		}
		if last = o.Cursor; o.Batch == "acked" {
			of[o.ID] = o
		}
		if len(of) == 2 {
			break
		}
	}
	if o := of["good"]; o.State != client.Done || o.Reason != nil || o.Amount.Int64() != 4900 || o.Currency != "EUR" || o.Status != 200 || o.Attempts != 1 || o.AcceptedAt == nil {
		t.Errorf("%+v", o)
	}
	if o := of["bad"]; o.State != client.Parked || *o.Reason != client.Refused || o.Status != 402 {
		t.Errorf("%+v", o)
	}
	acked, err := c.Ack(t.Context(), "stripe", "ledger", last)
	if err != nil || acked.Cursor != last || acked.Reader != "ledger" {
		t.Errorf("%+v %v", acked, err)
	}
	page, err := c.OutcomesPage(t.Context(), "stripe", client.OutcomeQuery{Reader: "ledger", Wait: time.Millisecond})
	if err != nil || slices.ContainsFunc(page, func(o client.Outcome) bool { return o.Cursor == last }) {
		t.Errorf("%+v %v", page, err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
	defer cancel()
	for o, err := range c.OutcomesFor(ctx, "stripe", "ledger") {
		if o.Cursor == last {
			t.Errorf("%+v was acknowledged", o)
		}
		if err != nil && err.Error() != "enough" {
			t.Error(err)
		}
	}
}

// A failure that does not pass ends the loop, with the reason.
func TestAWrongReaderIsTold(t *testing.T) {
	t.Parallel()
	c := at(t, server)
	told := func(want client.Code, all func(func(client.Outcome, error) bool)) {
		t.Helper()
		n := 0
		for o, err := range all {
			if n++; !errors.Is(err, want) || o.Cursor != "" {
				t.Errorf("%+v %v", o, err)
			}
		}
		if n != 1 {
			t.Errorf("%d pairs", n)
		}
	}
	told(client.UnknownGateway, c.Outcomes(t.Context(), "nobody", ""))
	told(client.NoOutcomes, c.Outcomes(t.Context(), "adyen", ""))
	told(client.UnknownReader, c.OutcomesFor(t.Context(), "stripe", "nobody"))
	told(client.InvalidRequest, c.Outcomes(t.Context(), "stripe", "9000000000-9000000000000000"))
	if _, err := c.Ack(t.Context(), "stripe", "nobody", "1-2"); !errors.Is(err, client.UnknownReader) {
		t.Error(err)
	}
}
