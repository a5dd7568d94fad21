package remote

import (
	"context"
	"net/http"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/desk"
	"spillway/internal/feed"
	"spillway/internal/roles"
)

// OutcomesOf says which outcomes of a gateway to read.
type OutcomesOf struct {
	Gateway string `json:"-" path:"gateway"`
	// After is a cursor: read what follows it. Empty: from where Reader has acknowledged, or from the first one
	// stored.
	After  string `json:"after,omitempty"`
	Reader string `json:"reader,omitempty"`
	// Limit is the most outcomes read.
	Limit int `json:"limit,omitempty"`
	// Wait is how long to wait for the first one, such as 5s; empty: not at all.
	Wait string `json:"wait,omitempty"`
}

// Outcomes reads a gateway's outcomes.
var Outcomes = &Op[OutcomesOf, feed.Outcome, None]{About{Name: "readOutcomes", Need: roles.Read, Method: http.MethodGet, Path: "/v1/gateways/{gateway}/outcomes", Kind: Lines, Elsewhere: true, Commands: []string{"outcomes"}},
	func(ctx context.Context, h *Here, q OutcomesOf, out Out[feed.Outcome]) (n None, err error) {
		o, err := h.feed(ctx, q.Gateway)
		if err != nil {
			return n, err
		}
		if q.Reader != "" {
			acked, err := o.Acked(ctx, q.Reader)
			if err != nil {
				return n, err
			}
			if q.After == "" {
				q.After = acked
			}
		}
		if q.Wait != "" {
			within, err := time.ParseDuration(q.Wait)
			if err == nil {
				err = o.Wait(ctx, q.After, within)
			}
			if err != nil {
				return n, err
			}
		}
		page, err := o.Read(ctx, q.After, q.Limit)
		for _, one := range page {
			if err := out.line(one); err != nil {
				return n, err
			}
		}
		return n, err
	}}

// AckOf says that a reader has processed all outcomes of a gateway up to a cursor.
type AckOf struct {
	Gateway string `json:"-" path:"gateway"`
	Reader  string `json:"reader"`
	Cursor  string `json:"cursor"`
}

// AckOutcomes acknowledges outcomes.
var AckOutcomes = &Op[AckOf, None, feed.Acked]{About{Name: "ackOutcomes", Need: roles.Submit, Method: http.MethodPost, Path: "/v1/gateways/{gateway}/outcomes/ack", Elsewhere: true, Commands: []string{"outcomes"}},
	func(ctx context.Context, h *Here, q AckOf, _ Out[None]) (a feed.Acked, err error) {
		o, err := h.feed(ctx, q.Gateway)
		if err != nil {
			return a, err
		}
		return o.Ack(ctx, q.Reader, q.Cursor)
	}}

func (h *Here) feed(ctx context.Context, gateway string) (*desk.Outcomes, error) {
	g, err := h.one(ctx, gateway)
	if err != nil {
		return nil, err
	}
	return g.Outcomes()
}

// TrailOf says which audit trails to verify.
type TrailOf struct {
	At
	// Links and Hash are a head that was recorded earlier; 0 and empty: none. It is for one gateway.
	Links int64  `json:"links,omitempty"`
	Hash  string `json:"hash,omitempty"`
}

// Trails is the result of verifying audit trails: "trail verify -o json".
type Trails struct {
	OK       bool                  `json:"ok"`
	Gateways []deadletter.Verified `json:"gateways"`
}

// VerifyTrail verifies the audit trails by their chains.
var VerifyTrail = &Op[TrailOf, None, Trails]{About{Name: "verifyTrail", Need: roles.View, Method: http.MethodPost, Path: "/v1/trail/verify", Commands: []string{"trail verify"}},
	at(func(ctx context.Context, d *desk.Desk, q TrailOf, _ Out[None]) (t Trails, err error) {
		if (q.Links > 0 || q.Hash != "") && len(d.Gateways) != 1 {
			return t, usage("name the gateway whose head it is", "a head is that of one gateway")
		}
		t = Trails{OK: true, Gateways: []deadletter.Verified{}}
		for _, g := range d.Gateways {
			v, err := g.Store.Verify(ctx, deadletter.Head{Links: q.Links, Hash: q.Hash})
			if err != nil {
				return t, err
			}
			t.OK = t.OK && v.OK
			t.Gateways = append(t.Gateways, v)
		}
		return t, nil
	})}

// TrailsOf says which audit trails to export.
type TrailsOf struct{ At }

// ExportTrail exports the audit trails with their chains, gateway by gateway.
var ExportTrail = &Op[TrailsOf, deadletter.TrailLine, None]{About{Name: "exportTrail", Need: roles.View, Method: http.MethodGet, Path: "/v1/trail", Kind: Lines, Commands: []string{"trail export"}},
	at(func(ctx context.Context, d *desk.Desk, q TrailsOf, out Out[deadletter.TrailLine]) (n None, err error) {
		for _, g := range d.Gateways {
			if err := g.Store.ExportTrail(ctx, out.line); err != nil {
				return n, err
			}
		}
		return n, nil
	})}
