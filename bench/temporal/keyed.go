package main

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"
)

const adders = 64 // calls under way at once: there is none that adds many jobs

// keyed adds each job as an activity without a workflow, which is Temporal's way for a queue of jobs. Its lane is its fairness key.
func keyed(args []string) error {
	c, err := dial(args[0], args[1])
	if err != nil {
		return err
	}
	defer c.Close()
	jobs, err := read()
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(adders)
	start := time.Now()
	for _, j := range jobs {
		g.Go(func() error {
			_, err := c.ExecuteActivity(context.Background(), client.StartActivityOptions{ID: j.ID, TaskQueue: queue, StartToCloseTimeout: answerWithin,
				RetryPolicy: retries(), Priority: temporal.Priority{FairnessKey: j.Lane}}, "Charge", j)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	fmt.Println(float64(len(jobs)) / time.Since(start).Seconds())
	return nil
}
