package bucket

import (
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// On a busy machine most answers are late, but some are not. Those tell how far away Redis is.
func TestABusyMachineIsNotTakenForAFarRedis(t *testing.T) {
	t.Parallel()
	a, moving := distance{careful: true}, distance{}
	now := time.Unix(1000, 0)
	round := func(trips ...int64) {
		for _, took := range trips {
			now = now.Add(distanceFor / time.Duration(len(trips)))
			a.add(took, now)
			moving.add(took, now)
		}
	}
	for range 20 {
		round(30_000, 400, 90_000, 25_000)
	}
	if far := a.is(); far != 400 {
		t.Errorf("%d µs away, want 400", far)
	}
	round(30_000, 20_000)
	round(30_000, 20_000) // not one of these waited for nothing
	if far := a.is(); far != 4400 || moving.is() != 20_000 {
		t.Errorf("%d µs away after some seconds of long ones, want 4,400; and where it is taken as it is, %d", far, moving.is())
	}
	round(30_000, 20_000)
	if far := a.is(); far != 8800 {
		t.Errorf("%d µs away after some more, want 8,800", far)
	}
	for range 10 {
		round(31_000, 20_000)
	}
	if far := a.is(); far != 20_000 {
		t.Errorf("%d µs away after Redis has moved, want 20,000", far)
	}
	if a.add(300, now); a.is() != 300 {
		t.Errorf("%d µs away after an answer within 300", a.is())
	}
}

// A process measures one distance to Redis, by the answers to all of its gateways.
func TestGatewaysShareTheDistanceToRedis(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t), 7)
	alone := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}})
	if w.expect(w.reserve(alone, wish{want: 1, cost: 1}), stateOK, 1); alone.distance.is() == 0 {
		t.Error("an answer came, and Redis is nowhere")
	}
	b := NewBurden(nil)
	shared := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}})
	shared.Share(b)
	if w.expect(w.reserve(shared, wish{want: 1, cost: 1}), stateOK, 1); b.distance.is() == 0 {
		t.Error("the process does not know of the answer to its gateway")
	}
	other := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}})
	b.distance.far = 1_000_000_000
	other.Share(b)
	if w.expect(w.reserve(other, wish{want: 1, cost: 1}), stateOK, 1); b.distance.is() == 1_000_000_000 {
		t.Error("the process does not know of a nearer answer to another gateway")
	}
}
