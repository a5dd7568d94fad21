package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

// callClient keeps its connections open.
func callClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: limitAtOnce}, Timeout: 30 * time.Second}
}

// charge makes the call of a job. The error of a 429 says when the provider has it come back.
func charge(ctx context.Context, client *http.Client, url, key string, payload []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(payload))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	res, err := client.Do(req)
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
		return errors.Join(err, &rateLimitError{time.Duration(seconds) * time.Second})
	}
	return errors.New(res.Status)
}
