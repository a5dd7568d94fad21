package main

import (
	"context"
	"time"

	"spillway/internal/desk"
	"spillway/internal/httpapi"
)

// showCalls lets the API answer for the calls of the gateways of the file. Times without a zone are UTC.
func (s served) showCalls(cfg *httpapi.Config) {
	cfg.Calls = func(ctx context.Context, q httpapi.CallsQuery) (any, error) {
		by, err := desk.ParseCallsBy(q.By, "by")
		if err != nil {
			return nil, err
		}
		since, err := desk.ParseAgo(q.Since, time.Now().UTC(), "since")
		if err != nil {
			return nil, err
		}
		d, err := s.deskOf(q.Gateways)
		if err != nil {
			return nil, err
		}
		return d.CallHistory(ctx, since, by)
	}
	cfg.Answers = func(ctx context.Context, gateway string, q httpapi.AnswersQuery) (any, error) {
		since, err := desk.ParseAgo(q.Since, time.Now().UTC(), "since")
		if err != nil {
			return nil, err
		}
		d, err := s.deskOf([]string{gateway})
		if err != nil {
			return nil, err
		}
		return d.Gateways[0].Answers(ctx, since, q.Batch)
	}
}
