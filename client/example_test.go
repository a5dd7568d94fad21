package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"spillway/client"
)

// A job is handed over in five lines.
func Example() {
	ctx := context.Background()

	c, err := client.New(os.Getenv("DISPATCHER_SERVER"), client.Token(os.Getenv("DISPATCHER_TOKEN")))
	if err != nil {
		log.Fatal(err)
	}
	results, err := c.Enqueue(ctx, client.Job{Gateway: "stripe", ID: "inv-1042", Payload: map[string]any{"amount": 4900, "currency": "EUR"}})

	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(results[0].ID, results[0].Result)
	// Output: inv-1042 enqueued
}

func ExampleClient_Enqueue() {
	ctx, c := context.Background(), exampleClient()
	jobs := []client.Job{
		{Gateway: "stripe", ID: "inv-2001", Payload: map[string]any{"amount": 100, "currency": "EUR"}, Batch: "2026-11"},
		{Gateway: "stripe", ID: "inv 2002", Payload: map[string]any{"amount": 200, "currency": "EUR"}, Batch: "2026-11"},
	}

	results, err := c.Enqueue(ctx, jobs...)
	for _, r := range results {
		switch {
		case r.Result == client.Enqueued:
			fmt.Println(r.ID, "goes to the gateway")
		case r.Result == client.ParkedNow:
			fmt.Println(r.ID, "waits for room")
		case r.Result == client.Duplicate:
			fmt.Println(r.ID, "is known already")
		case errors.Is(r.Err, client.InvalidJob), errors.Is(r.Err, client.OtherPayload):
			fmt.Println(r.ID, "can't go in as it is")
		default:
			fmt.Println(r.ID, "may be in; sending it again is safe:", r.Err)
		}
	}

	fmt.Println(err != nil)
	// Output:
	// inv-2001 goes to the gateway
	// inv 2002 can't go in as it is
	// true
}

func ExampleClient_Job() {
	ctx, c := context.Background(), exampleClient()

	j, err := c.Job(ctx, "stripe", "inv-3001")
	switch {
	case errors.Is(err, client.UnknownJob):
		fmt.Println("nobody has handed it over")
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println(j.State, j.Why)
	}

	// Output: nobody has handed it over
}

func ExampleClient_Outcomes() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, cursor := exampleClient(), ""
	if _, err := c.Enqueue(ctx, client.Job{Gateway: "stripe", ID: "inv-4001", Payload: map[string]any{"amount": 4900, "currency": "EUR"}}); err != nil {
		log.Fatal(err)
	}

	for o, err := range c.Outcomes(ctx, "stripe", cursor) {
		if err != nil {
			log.Fatal(err)
		}
		cursor = o.Cursor // keep it in the same transaction as what you do with o
		if o.ID == "inv-4001" {
			fmt.Println(o.ID, o.State, o.Amount, o.Currency)
			break
		}
	}

	// Output: inv-4001 done 4900 EUR
}

func ExampleClient_Clear() {
	ctx, c := context.Background(), exampleClient()

	which := client.Filter{Gateways: []string{"stripe"}, Reasons: []client.Reason{client.Exhausted}, Since: "24h"}
	p, err := c.Preview(ctx, client.Clearing{Filter: which, Action: client.Replay, Rate: "10/s"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.Would.Jobs, "jobs would go in, for", p.Would.Amount["EUR"])
	done, err := c.Clear(ctx, p, client.Act{By: "maria@example", Why: "the gateway is back"})
	if errors.Is(err, client.Changed) {
		fmt.Println("something else is parked by now: look again")
	}

	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(done.Taken)
	// Output:
	// 0 jobs would go in, for <nil>
	// 0
}

func exampleClient() *client.Client {
	c, err := client.New(os.Getenv("DISPATCHER_SERVER"), client.Token(os.Getenv("DISPATCHER_TOKEN")))
	if err != nil {
		log.Fatal(err)
	}
	return c
}
