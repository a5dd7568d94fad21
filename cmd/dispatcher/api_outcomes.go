package main

import (
	"context"
	"encoding/json"

	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/httpapi"
)

// toldOutcomes adapts a gateway's outcome feed to the API.
type toldOutcomes struct{ *desk.Outcomes }

// outcomes returns the outcome feed of a configured gateway.
func (s served) outcomes(gateway string) (httpapi.Outcomes, error) {
	cfg := s.file.Load()
	g, ok := cfg.Gateway(gateway)
	if !ok {
		return nil, dispatch.NoGateway(cfg, gateway)
	}
	told, err := desk.New(s.db.Client, []config.Gateway{g}).Gateways[0].Outcomes()
	return toldOutcomes{told}, err
}

// Read implements httpapi.Outcomes.
func (t toldOutcomes) Read(ctx context.Context, after string, limit int) ([]httpapi.Outcome, error) {
	page, err := t.Outcomes.Read(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	lines := make([]httpapi.Outcome, len(page))
	for i, o := range page {
		text, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		lines[i] = httpapi.Outcome{Cursor: o.Cursor, Line: text}
	}
	return lines, nil
}

// Ack implements httpapi.Outcomes.
func (t toldOutcomes) Ack(ctx context.Context, reader, cursor string) (any, error) {
	return t.Outcomes.Ack(ctx, reader, cursor)
}
