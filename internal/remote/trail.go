package remote

import (
	"context"
	"net/http"

	"spillway/internal/deadletter"
	"spillway/internal/roles"
)

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
	func(ctx context.Context, h *Here, q TrailOf, _ Out[None]) (t Trails, err error) {
		d, err := h.At(ctx, q.Gateways)
		if err != nil {
			return t, err
		}
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
	}}

// TrailsOf says which audit trails to export.
type TrailsOf struct{ At }

// ExportTrail exports the audit trails with their chains, gateway by gateway.
var ExportTrail = &Op[TrailsOf, deadletter.TrailLine, None]{About{Name: "exportTrail", Need: roles.View, Method: http.MethodGet, Path: "/v1/trail", Kind: Lines, Commands: []string{"trail export"}},
	func(ctx context.Context, h *Here, q TrailsOf, out Out[deadletter.TrailLine]) (n None, err error) {
		d, err := h.At(ctx, q.Gateways)
		if err != nil {
			return n, err
		}
		for _, g := range d.Gateways {
			if err := g.Store.ExportTrail(ctx, out.line); err != nil {
				return n, err
			}
		}
		return n, nil
	}}
