package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
)

const together = 100 // jobs of a workflow: it waits for no more of them than its history holds with ease

func dial(addr, namespace string) (client.Client, error) {
	return client.Dial(client.Options{HostPort: addr, Namespace: namespace, Logger: silent{}})
}

// add starts the workflows, which wait for a worker.
func add(args []string) error {
	c, err := dial(args[0], args[1])
	if err != nil {
		return err
	}
	defer c.Close()
	jobs, err := read()
	if err != nil {
		return err
	}
	for some := range slices.Chunk(jobs, together) {
		if _, err := c.ExecuteWorkflow(context.Background(), client.StartWorkflowOptions{ID: some[0].ID, TaskQueue: queue}, "Bring", some); err != nil {
			return err
		}
	}
	return nil
}

func read() (jobs []job, err error) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var line struct {
			ID, Lane string
			Payload  json.RawMessage
		}
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			return nil, err
		}
		jobs = append(jobs, job{line.ID, line.Lane, line.Payload})
	}
	return jobs, in.Err()
}

// left counts the workflows that have not ended, and the jobs of keyed.
func left(args []string) error {
	c, err := dial(args[0], args[1])
	if err != nil {
		return err
	}
	defer c.Close()
	const running = "ExecutionStatus = 'Running'"
	w, err := c.CountWorkflow(context.Background(), &workflowservice.CountWorkflowExecutionsRequest{Query: running})
	if err != nil {
		return err
	}
	a, err := c.CountActivities(context.Background(), client.CountActivitiesOptions{Query: running})
	if err != nil {
		return err
	}
	fmt.Println(w.Count + a.Count)
	return nil
}
