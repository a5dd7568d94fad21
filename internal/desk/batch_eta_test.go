package desk

import (
	"fmt"
	"testing"
)

// A batch at thousands of gateways has no ETA. It says each reason once, and not once for each gateway.
func TestWhyThereIsNoETAIsSaidOnceForEachReason(t *testing.T) {
	t.Parallel()
	b := &Batch{Gateways: []BatchGateway{{Gateway: "own", ETAWhy: "paused: lunch"}, {Gateway: "fine"}}}
	for i := range 3000 {
		b.Gateways = append(b.Gateways, BatchGateway{Gateway: fmt.Sprint("m", i), ETAWhy: "nobody serves it"})
	}
	b.Gateways = append(b.Gateways, BatchGateway{Gateway: "other", ETAWhy: "paused: lunch"})
	if got, want := b.WhyNoETA(), "own, other: paused: lunch; m0, m1, m2 and 2,997 more: nobody serves it"; got != want {
		t.Errorf("%.200s, want %s", got, want)
	}
}
