package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

const answerWithin = 5 * time.Second // of an activity; one whose worker died is tried again then

// job is a line of what is added.
type job struct {
	ID      string `json:"id"`
	Lane    string `json:"lane,omitempty"`
	Payload []byte `json:"payload"`
}

// bring is the workflow: it has all of its jobs called, however often that takes.
func bring(ctx workflow.Context, jobs []job) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: answerWithin, RetryPolicy: retries()})
	calls := make([]workflow.Future, len(jobs))
	for i, j := range jobs {
		calls[i] = workflow.ExecuteActivity(ctx, "Charge", j)
	}
	for _, c := range calls {
		if err := c.Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

func retries() *temporal.RetryPolicy {
	return &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1}
}

// provider is what the activities call.
type provider struct {
	url    string
	client *http.Client
}

// Charge makes the call of a job. After a 429 it is tried again when the provider says.
func (p provider) Charge(ctx context.Context, j job) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(j.Payload))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", j.ID)
	res, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	switch res.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusTooManyRequests:
		seconds, err := strconv.Atoi(res.Header.Get("Retry-After"))
		return errors.Join(err, temporal.NewApplicationErrorWithOptions(res.Status, "limited",
			temporal.ApplicationErrorOptions{NextRetryDelay: time.Duration(seconds) * time.Second}))
	}
	return errors.New(res.Status)
}

// work serves the queue until it is told to stop.
func work(args []string) error {
	rate, rateErr := strconv.ParseFloat(args[3], 64)
	atOnce, err := strconv.Atoi(args[4])
	if err := errors.Join(rateErr, err); err != nil {
		return err
	}
	c, err := dial(args[0], args[1])
	if err != nil {
		return err
	}
	defer c.Close()
	w := worker.New(c, queue, worker.Options{TaskQueueActivitiesPerSecond: rate, MaxConcurrentActivityExecutionSize: atOnce, MaxConcurrentActivityTaskPollers: atOnce})
	w.RegisterWorkflowWithOptions(bring, workflow.RegisterOptions{Name: "Bring"})
	w.RegisterActivity(&provider{args[2], &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: atOnce}, Timeout: answerWithin}})
	return w.Run(worker.InterruptCh())
}
