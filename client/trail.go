package client

import "context"

// TrailQuery says which trails are verified.
type TrailQuery struct {
	// Gateways are those whose trails are verified; none: all.
	Gateways []string `json:"gateways,omitempty"`
	// Links and Hash are a recorded head of one gateway's trail; zero: none.
	Links int64  `json:"links,omitempty"`
	Hash  string `json:"hash,omitempty"`
}

// Trails is the result of verifying trails.
type Trails struct {
	OK       bool    `json:"ok"` // nothing was changed in any of them
	Gateways []Trail `json:"gateways"`
}

// Trail is the result of verifying the trail of one gateway.
type Trail struct {
	Gateway   string    `json:"gateway"`
	OK        bool      `json:"ok"`
	Entries   int64     `json:"entries"`   // of the trail
	Before    int64     `json:"before"`    // of those: they were there before there was a chain
	Unchained int64     `json:"unchained"` // the last ones, which the chain does not have yet
	Head      TrailHead `json:"head"`
	Faults    int64     `json:"faults"`
	Findings  []string  `json:"findings"` // the first of the faults, for a person
}

// TrailHead is the end of the chain of a trail.
type TrailHead struct {
	Links   int64  `json:"links"`
	Entries int64  `json:"entries"` // of the trail that have a link
	Hash    string `json:"hash"`    // of the last link; empty if there is none
}

// VerifyTrail verifies the trails of gateways by their chains of hashes.
func (c *Client) VerifyTrail(ctx context.Context, q TrailQuery) (Trails, error) {
	return post[Trails](ctx, c, q, "v1", "trail", "verify")
}
