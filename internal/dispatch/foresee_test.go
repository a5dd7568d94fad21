package dispatch

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/redisdb"
)

// After a hold or a pause, the ETA uses the rate before it or since then, or else the limits. The few calls that were sent ahead
// say nothing of what follows.
func TestTheETADoesNotCountHolds(t *testing.T) {
	t.Parallel()
	probes := func(calls map[int64]int64) map[int64]int64 { // one call in each span of a minute of which nothing else is said
		for ago := int64(-12); ago <= 0; ago++ {
			if calls[ago] == 0 {
				calls[ago] = 1
			}
		}
		return calls
	}
	for name, tc := range map[string]struct {
		calls    map[int64]int64 // by span of 5 s, counted from the present one
		from, to int64           // the outage's, in spans from the present one; no outage if both are 0
		resumed  int64           // the same; not resumed if it is 0
		rate     float64
	}{
		"probes for a minute, over now":      {probes(map[int64]int64{}), -13, -1, 0, 40},
		"over for two whole spans":           {probes(map[int64]int64{-2: 50, -1: 50}), -15, -3, 0, 10},
		"the rate before it":                 {map[int64]int64{-10: 3, -9: 60, -8: 60, -7: 60, -6: 30, -5: 1, -4: 1, -3: 1, -2: 1, -1: 1, 0: 1}, -6, -1, 0, 12},
		"no calls while told to wait":        {map[int64]int64{-12: 200, -11: 200, 0: 1}, -10, -1, 0, 40},
		"an outage of long ago":              {map[int64]int64{-4: 90, -3: 100, -2: 20, -1: 60}, -60, -20, 0, 12},
		"a pause":                            {map[int64]int64{-12: 100, -11: 100, -10: 20, -1: 0, 0: 5}, 0, 0, -1, 40},
		"a pause of a while ago":             {map[int64]int64{-12: 100, -6: 1, -5: 50, -4: 50, -3: 50, -2: 50, -1: 50}, 0, 0, -6, 10},
		"calls, a pause, and a gap since it": {map[int64]int64{-12: 100, -5: 9, -3: 7, -2: 50, -1: 50}, 0, 0, -6, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			foresee(t, tc.rate, func(span int64, keys redisdb.Keys, set func(key string, fields ...any)) {
				at := func(ago int64) int64 { return (span + ago) * 5_000_000 }
				for ago, n := range tc.calls {
					set(keys.Rate(), span+ago, n)
				}
				if tc.to != 0 {
					set(keys.Hold(), "outages", fmt.Sprintf("%d:%d %d:%d", at(-999), at(-998), at(tc.from), at(tc.to)), "need", 0, "clear", at(tc.to))
				}
				if tc.resumed != 0 {
					set(keys.Hold(), "paused", 0, "paused_at", at(tc.resumed))
				}
			})
		})
	}
}

// A hold that still lasts, and whose end is known, delays the last call by itself, and not by the rate within it.
func TestTheETAOfAHeldGatewayIsItsEndAndTheRateAfterIt(t *testing.T) {
	t.Parallel()
	r := setup(t, "leak: {limits: [40/s]}")
	g, keys := r.cfg.Gateways[0], redisdb.NewKeys(r.cfg.Gateways[0].Name)
	r.sign(time.Hour)
	r.putBatch("b", 400)
	now, err := r.db.Client.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for ago := int64(-12); ago <= 0; ago++ {
		r.db.Client.HSet(t.Context(), keys.Rate(), now.Unix()/5+ago, 1)
	}
	micros := now.UnixMicro()
	r.db.Client.HSet(t.Context(), keys.Hold(), "outages", fmt.Sprintf("%d:", micros-60_000_000), "need", 1, "until", micros+30_000_000)
	v, err := Look(t.Context(), r.db.Client, g)
	if err != nil {
		t.Fatal(err)
	}
	if v.ETA < 36*time.Second || v.ETA > 42*time.Second {
		t.Errorf("400 jobs at 40/s after 30 s: %v", v.ETA)
	}
}
