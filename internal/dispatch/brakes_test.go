package dispatch

import (
	"context"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// A gateway that waits for room in a limit of money continues when a person lifts the limit, however long it would have to wait. Every dispatcher is told.
func TestALiftLetsTheGatewayGoOn(t *testing.T) {
	t.Parallel()
	r := setup(t, quick+"\namount: {field: amount, currency: currency}\nbrakes: [{limit: EUR 10/1h}]")
	ctx, g := t.Context(), r.cfg.Gateways[0]
	lift := func(d time.Duration) {
		t.Helper()
		if err := LiftBrakes(ctx, r.db.Client, g, ledger.Lift{For: d, Who: "me", Why: "month's end"}); err != nil {
			t.Fatal(err)
		}
	}
	sub := r.db.Client.Subscribe(ctx, redisdb.Wake)
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	lift(0)
	for told, cancel := context.WithTimeout(ctx, 30*time.Second); ; {
		m, err := sub.ReceiveMessage(told)
		if err != nil {
			t.Fatal("nobody is told: ", err)
		}
		if m.Payload == g.Name {
			cancel()
			break
		}
	}
	jobs := make([]job.Job, 2)
	for i, id := range []string{"a", "b"} {
		jobs[i] = job.Job{ID: id, Gateway: g.Name, Payload: []byte(`{"amount":700,"currency":"EUR"}`), Cost: 1}
	}
	if _, err := Door(r.db.Client, r.cfg, patience).Admit(ctx, g.Name, jobs, admission.Park); err != nil {
		t.Fatal(err)
	}
	r.serve()
	testkit.Eventually(t, 30*time.Second, "the second job to wait for room", func() bool {
		s, err := Books(r.db.Client, g).Brakes(ctx)
		return err == nil && !s.Waits.IsZero() && r.standing(0).Done == 1
	})
	hold := redisdb.NewKeys(g.Name).Hold()
	if err := r.db.Client.HSet(ctx, hold, "brake", time.Now().Add(time.Hour).UnixMicro()).Err(); err != nil { // nor is another job tried meanwhile
		t.Fatal(err)
	}
	if n := r.count(); n != 1 {
		t.Fatalf("%d calls before the lift", n)
	}
	lift(time.Minute)
	testkit.Eventually(t, 30*time.Second, "the second call", func() bool { return r.standing(0).Done == 2 })
}
