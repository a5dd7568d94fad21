package main

import (
	"context"

	"spillway/internal/desk"
	"spillway/internal/httpapi"
)

// batchesDocument is a page of batches as the API answers it.
type batchesDocument struct {
	Batches []desk.BatchRow `json:"batches"`
	// Next is the cursor of the next page; nil on the last one.
	Next *string `json:"next"`
}

// showBatches lets the API answer for the batches of the gateways of the file.
func (s served) showBatches(cfg *httpapi.Config) {
	cfg.Batches = func(ctx context.Context, q httpapi.BatchQuery) (any, error) {
		d, err := s.deskOf(q.Gateways)
		if err != nil {
			return nil, err
		}
		return batchesPage(ctx, d, q)
	}
}

// deskOf returns the desk of these gateways of the file, or of all.
func (s served) deskOf(names []string) (*desk.Desk, error) {
	chosen, err := desk.Choose(s.file.Load(), names)
	return desk.New(s.db.Client, chosen), err
}

func batchesPage(ctx context.Context, d *desk.Desk, q httpapi.BatchQuery) (any, error) {
	page := batchesDocument{Batches: []desk.BatchRow{}}
	for row, err := range d.Batches(ctx, desk.BatchQuery{Limit: q.Limit + 1, After: q.After, Active: q.Active}) {
		if err != nil {
			return nil, err
		}
		if len(page.Batches) == q.Limit {
			page.Next = &page.Batches[q.Limit-1].Cursor
			break
		}
		page.Batches = append(page.Batches, row)
	}
	return page, nil
}
