package bucket

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/testkit"
)

// A pick may wake more lanes than one command takes. Here 4,800 come back at once after a rest, and all but one of 300 want a route that is paused.
func TestThousandsOfLanesComeBackAtOnce(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	ctx := context.Background()
	const lanes, every = 4800, 300
	f := &benchForm{cfg: PacerConfig{Lanes: &Lanes{Limits: []job.Limit{per(1, time.Minute)}}}}
	f.prepare(t, testkit.Client(t), 0)
	w := f.w
	pipe := w.client.Pipeline()
	for n := range 2 {
		for i := range lanes {
			id, route := "j"+strconv.Itoa(n*lanes+i), "charge"
			if n == 1 && i%every == every-1 {
				route = "payout"
			}
			pipe.HSet(ctx, w.keys.Job(id), record.Short("lane"), benchLane(i), record.Short("route"), route)
			pipe.HSet(ctx, w.keys.Task(id+"~1"), "msg", "m", "state", "pending")
			pipe.LPush(ctx, w.keys.Pending(), id+"~1")
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	called := int64(0)
	for called < lanes {
		n := f.bind(t, 16)
		if called += n; n == 0 {
			w.now += 1000
		}
	}
	f.bind(t, 16) // no lane may be called now
	overrides := strings.TrimSuffix(w.keys.Lanes(), "lanes") + "overrides"
	w.client.HSet(ctx, overrides, "route:charge", "||1|")
	w.now += 120_000_000
	if g, err := f.p.reserve(ctx, wish{want: 16, lead: 500}); err != nil || len(g.slots) != 16 {
		t.Errorf("%d slots, %v", len(g.slots), err)
	}
	w.client.Del(ctx, overrides)
	rest := 16
	for range 1000 {
		rest += len(w.reserve(f.p, wish{want: 16, lead: 500}).slots)
		w.now += 10_000
	}
	if rest != lanes {
		t.Errorf("%d of %d jobs were called", rest, lanes)
	}
}
