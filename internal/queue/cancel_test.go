package queue

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"spillway/internal/testkit"
)

// A server does not subscribe to cancellations, which mean nothing here. Jobs still come, and a stop neither waits for a subscription nor logs anything.
func TestNobodyListensForCancellations(t *testing.T) {
	t.Parallel()
	r, log := setup(t), &testkit.Log{}
	r.c = testkit.Server(t).Client()
	r.srv.cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	r.srv = NewServer(r.c, r.srv.cfg)
	r.srv.Start()
	r.put(1, 1)
	r.pacer.allow <- struct{}{}
	testkit.Eventually(t, 20*time.Second, "the job", func() bool { return len(r.deliveries()) == 1 })
	if n := r.c.PubSubNumSub(t.Context(), cancelChannel).Val()[cancelChannel]; n != 0 {
		t.Errorf("%d connections wait for cancellations", n)
	}
	begun := time.Now()
	r.srv.Stop(context.Background())
	if took := time.Since(begun); took > 4*time.Second { // asynq rests for five after a subscription that failed
		t.Errorf("the stop took %s", took)
	}
	if said := log.String(); said != "" {
		t.Errorf("the log says: %s", said)
	}
	other := r.srv.consumer.Subscribe(t.Context(), "another")
	defer other.Close()
	if _, err := other.Receive(t.Context()); err != nil {
		t.Errorf("another channel: %v", err)
	}
}
