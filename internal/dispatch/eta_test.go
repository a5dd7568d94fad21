package dispatch

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// sign sets the last sign of life of the first gateway's dispatchers, from now on Redis's clock.
func (r *rig) sign(from time.Duration) {
	r.t.Helper()
	now, err := r.db.Client.Time(r.t.Context()).Result()
	if err == nil {
		err = r.db.Client.HSet(r.t.Context(), redisdb.NewKeys(r.cfg.Gateways[0].Name).Alive(), "at", now.Add(from).UnixMicro()).Err()
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// met reports failures of calls of these kinds, one after the other. All but the first are reported for probes.
func met(kinds ...job.Trouble) func(*testing.T, *bucket.Pacer) {
	return func(t *testing.T, p *bucket.Pacer) {
		for _, kind := range kinds {
			f := job.Failure{Kind: kind, Job: "j0000", Slot: time.Now().UnixMicro(), Written: true, Why: "HTTP trouble", For: time.Hour}
			if kind != job.Wait {
				f.For = 0
			}
			if _, err := p.Failed(t.Context(), job.Circuit{Failures: 1, Ratio: 50, Calls: 10, Window: 10 * time.Second, Max: time.Hour}, f); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// While it is unknown when calls continue, there is no ETA, and every view gives the same reason.
func TestThereIsNoETAWhileNobodyKnowsTheEnd(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sign    time.Duration
		trouble func(*testing.T, *bucket.Pacer)
		why     string // empty: there is an ETA
	}{
		"served":                     {time.Hour, nil, ""},
		"told to wait for an hour":   {time.Hour, met(job.Wait), ""},
		"paused":                     {time.Hour, func(t *testing.T, p *bucket.Pacer) { _ = p.Pause(t.Context(), "maintenance") }, "the gateway is paused: maintenance"},
		"the circuit is open":        {time.Hour, met(job.Fail), "until it answers as it should"},
		"calls are not let in":       {time.Hour, met(job.Deny), "does not let calls in, HTTP trouble: check the credentials"},
		"nobody ever served it":      {0, nil, "no dispatcher has ever served the gateway"},
		"nobody serves it any more":  {-time.Minute, nil, "no dispatcher serves the gateway since"},
		"nobody serves it, and held": {-time.Minute, met(job.Wait), "no dispatcher serves the gateway since"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t, "leak: {limits: [100/s]}")
			g := r.cfg.Gateways[0]
			if tc.sign != 0 {
				r.sign(tc.sign)
			}
			r.putBatch("b", 3)
			p, err := Pacer(r.db.Client, g, bucket.NewMetrics(nil))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Close(t.Context()) })
			if tc.trouble != nil {
				tc.trouble(t, p)
			}
			v, err := Look(t.Context(), r.db.Client, g)
			if err != nil {
				t.Fatal(err)
			}
			b, _, err := LookBatch(t.Context(), r.db.Client, g, "b")
			if err != nil {
				t.Fatal(err)
			}
			rec, _, err := Books(r.db.Client, g).Find(t.Context(), "b-0000")
			if err != nil {
				t.Fatal(err)
			}
			why, err := WhyNot(t.Context(), r.db.Client, g, rec)
			if err != nil {
				t.Fatal(err)
			}
			if unknown := tc.why != ""; unknown != (v.ETA < 0) || unknown != (b.ETA < 0) {
				t.Errorf("the ETA is %v, of the batch %v", v.ETA, b.ETA)
			}
			if tc.why == "" && v.Stopped+b.Stopped != "" {
				t.Errorf("there is an ETA, and none is known: %s, %s", v.Stopped, b.Stopped)
			}
			for view, text := range map[string]string{"gateway": v.Stopped, "batch": b.Stopped, "job": why} {
				if !strings.Contains(text, tc.why) {
					t.Errorf("%s: %q", view, text)
				}
			}
		})
	}
}

// While Redis takes no writes, no dispatcher can give a sign of life. It may run, so nobody is told to start one.
func TestASilentDispatcherIsNotMissedWhileRedisTakesNoWrites(t *testing.T) {
	t.Parallel()
	r := setupAt(t, testkit.Server(t).URL(), "leak: {limits: [100/s]}")
	r.sign(-time.Minute)
	r.putBatch("b", 3)
	full := func(most string) Glance {
		t.Helper()
		if err := r.db.Client.ConfigSet(t.Context(), "maxmemory", most).Err(); err != nil {
			t.Fatal(err)
		}
		v, err := Look(t.Context(), r.db.Client, r.cfg.Gateways[0])
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := full("1"); v.ETA >= 0 || !strings.HasPrefix(v.Stopped, "Redis takes no writes") || !strings.Contains(v.Stopped, "it is full (maxmemory)") || v.Refuses == "" {
		t.Errorf("full: ETA %v, %q", v.ETA, v.Stopped)
	}
	if v := full("0"); !strings.HasPrefix(v.Stopped, "no dispatcher serves the gateway since") || v.Refuses != "" {
		t.Errorf("not full: %q", v.Stopped)
	}
	if err := r.db.Client.Do(t.Context(), "ACL", "SETUSER", "default", "-set").Err(); err != nil {
		t.Fatal(err)
	}
	if v := full("0"); !strings.HasPrefix(v.Stopped, "no dispatcher serves the gateway since") {
		t.Errorf("a user who may not write: %q", v.Stopped)
	}
}

// The ETA uses the rate of calls that have continued for a while. In the first seconds of a file, and if the rate was higher than the limits now allow, it uses the
// limits.
func TestTheETATakesCallsThatGoOn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		calls map[int64]int64 // by span of 5 s, counted from the present one
		rate  float64
	}{
		"none yet":                        {nil, 40},
		"begun in this span":              {map[int64]int64{0: 3}, 40},
		"begun in the span before":        {map[int64]int64{-1: 2, 0: 20}, 40},
		"begun again":                     {map[int64]int64{-9: 48, -1: 30, 0: 90}, 40},
		"a whole span":                    {map[int64]int64{-2: 1, -1: 100, 0: 5}, 20},
		"whole spans":                     {map[int64]int64{-4: 90, -3: 100, -2: 20, -1: 60}, 12},
		"the file before, and a gap":      {map[int64]int64{-9: 200, -3: 7, -2: 50, -1: 50, 0: 9}, 10},
		"a whole minute":                  {map[int64]int64{-14: 1, -13: 100, -12: 100, -11: 50, -10: 50, -9: 50, -8: 50, -7: 50, -6: 50, -5: 50, -4: 50, -3: 50, -2: 50, -1: 50}, 10},
		"few, with gaps between":          {map[int64]int64{-11: 55, -4: 55}, 2},
		"more than is allowed since then": {map[int64]int64{-3: 1000, -2: 1000, -1: 1000}, 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			foresee(t, tc.rate, func(span int64, keys redisdb.Keys, set func(key string, fields ...any)) {
				for ago, n := range tc.calls {
					set(keys.Rate(), span+ago, n)
				}
			})
		})
	}
}

// foresee writes a gateway's past, and holds its ETA against a rate. The spans of calls are counted from the present one.
func foresee(t *testing.T, rate float64, past func(span int64, keys redisdb.Keys, set func(key string, fields ...any))) {
	t.Helper()
	const jobs = 400
	r := setup(t, "leak: {limits: [40/s]}")
	g := r.cfg.Gateways[0]
	r.sign(time.Hour)
	r.putBatch("b", jobs)
	set := func(key string, fields ...any) {
		if err := r.db.Client.HSet(t.Context(), key, fields...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for tries := 0; ; tries++ {
		now, err := r.db.Client.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		span, keys := now.Unix()/5, redisdb.NewKeys(g.Name)
		r.db.Client.Del(t.Context(), keys.Rate(), keys.Hold())
		past(span, keys, set)
		v, err := Look(t.Context(), r.db.Client, g)
		if err != nil {
			t.Fatal(err)
		}
		if v.Now.Unix()/5 != span && tries < 3 {
			continue // the next span has begun
		}
		if got := jobs / v.ETA.Seconds(); got < 0.9*rate || got > 1.1*rate {
			t.Errorf("%d jobs in %v: %.1f/s", jobs, v.ETA, got)
		}
		return
	}
}

// WhyNot returns what WaitOf says to a person.
func WhyNot(ctx context.Context, c redis.UniversalClient, g config.Gateway, r job.Record) (string, error) {
	w, err := WaitOf(ctx, c, g, r)
	return w.Why, err
}
