package client_test

import (
	"errors"
	"testing"
	"time"

	"spillway/client"
	"spillway/internal/testkit"
)

func TestBrakesAreLifted(t *testing.T) {
	t.Parallel()
	c := at(t, server)
	all := jobs("braked", "braked", 2)
	for i := range all {
		all[i].Payload = map[string]any{"amount": 700, "currency": "EUR"}
	}
	if _, err := c.Enqueue(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	standing := func() client.GatewayBrakes {
		t.Helper()
		b, err := c.Brakes(t.Context(), "braked")
		if err != nil || len(b.Gateways) != 1 {
			t.Fatalf("%+v %v", b, err)
		}
		return b.Gateways[0]
	}
	testkit.Eventually(t, time.Minute, "a job to wait for room", func() bool { return standing().WaitsSince != nil })
	if b := standing(); b.Limits[0].Called != 700 || b.Limits[0].Most != 1000 || b.Why == "" || b.LiftedUntil != nil {
		t.Errorf("%+v", b)
	}
	if _, err := c.LiftBrakes(t.Context(), "braked", time.Hour, client.Act{By: "ops"}); !errors.Is(err, client.InvalidRequest) {
		t.Errorf("without a reason: %v", err)
	}
	if b, err := c.LiftBrakes(t.Context(), "braked", 90*time.Minute, ops); err != nil || b.LiftedUntil == nil || b.LiftedBy != ops.By || b.LiftedWhy != ops.Why {
		t.Errorf("%+v %v", b, err)
	}
	testkit.Eventually(t, time.Minute, "the other job", func() bool { return standing().Limits[0].Called == 1400 })
	if b, err := c.ForgetLostMoney(t.Context(), "braked", ops); err != nil || b.LiftedUntil != nil {
		t.Errorf("%+v %v", b, err)
	}
}
