package dispatch

import (
	"strings"
	"testing"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

const withLookup = "leak: {limits: [100/s]}\nlookup: {url: \"/payments?reference={id}\", matches: {amount: amount}, schedule: [1h, 2h], answers: [{status: 200, then: done}]}"

// A pending job has an ETA, a reason why it waits, and gauges of its own. While its gateway is paused there are no look-ups, and every view says so.
func TestAPendingJobSaysWhenTheGatewayIsAsked(t *testing.T) {
	t.Parallel()
	r := setup(t, withLookup)
	r.sign(time.Hour)
	ctx, c, g := t.Context(), r.db.Client, r.cfg.Gateways[0]
	r.putBatch("nov", 1)
	id, generation, _ := job.ParseTaskID(testkit.Pop(t, c, redisdb.NewKeys(g.Name).Lines()))
	books := Books(c, g)
	a, _, err := books.Open(ctx, id, generation, "w1", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	e := job.Ending{Called: true, Spent: true, Verdict: job.VerdictAccepted, At: time.UnixMicro(1), Unsure: true, Took: time.Second}
	if asked, err := Store(c, g).ParkOrAsk(ctx, a, e, job.UnknownOutcome); err != nil || !asked {
		t.Fatalf("asked about: %v, %v", asked, err)
	}
	says := func(wants ...string) {
		t.Helper()
		rec, _, err := books.Find(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		why, err := WhyNot(ctx, c, g, rec)
		for _, want := range wants {
			if err != nil || !strings.Contains(why, want) {
				t.Errorf("%q, %v: wants %q", why, err, want)
			}
		}
	}
	says("the gateway has accepted it, and is asked what became of it: the next look-up is due at ")
	b, ok, err := LookBatch(ctx, c, g, "nov")
	if err != nil || !ok || b.ETA <= 0 || b.ETA > time.Hour || b.NextLook.Sub(b.Now).Round(time.Microsecond) != b.ETA.Round(time.Microsecond) {
		t.Errorf("the batch: ETA %s, the next look-up in %s, %v %v", b.ETA, b.NextLook.Sub(b.Now), ok, err)
	}
	v, err := Look(ctx, c, g)
	if err != nil || v.Pending != 1 || v.ETA <= 0 || v.Asking.Next.IsZero() {
		t.Errorf("%d pending, ETA %s, next look-up %s, %v", v.Pending, v.ETA, v.Asking.Next, err)
	}
	reg := r.instruments()
	if n := patientValue(t, reg, "spillway_jobs", `state="pending"`); n != 1 {
		t.Errorf("%g pending in the metrics", n)
	}
	if age := patientValue(t, reg, "spillway_pending_oldest_age_seconds"); age <= 0 || age > 60 {
		t.Errorf("the oldest is %g s old", age)
	}
	if fails := patientValue(t, reg, "spillway_lookups_failing_seconds"); fails != 0 {
		t.Errorf("look-ups fail for %g s", fails)
	}
	if err := c.HSet(ctx, redisdb.NewKeys(g.Name).Job(id), record.Short("ask_failing"), v.Now.Add(-time.Hour).UnixMicro()).Err(); err != nil {
		t.Fatal(err)
	}
	if v, err := Look(ctx, c, g); err != nil || v.Asking.Failing.IsZero() || v.Asking.FailingJob != id {
		t.Errorf("its look-ups fail: %+v, %v", v.Asking, err)
	}
	pacer, err := Pacer(c, g, bucket.NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer pacer.Close(ctx)
	if err := pacer.Pause(ctx, "maintenance"); err != nil {
		t.Fatal(err)
	}
	says("the next look-up is due at ", "; the gateway is paused: maintenance")
	if v, err := Look(ctx, c, g); err != nil || !v.Asking.Failing.IsZero() || v.Asking.FailingJob != "" {
		t.Errorf("paused, nobody asks, and yet: %+v, %v", v.Asking, err)
	}
	if v, err := Look(ctx, c, g); err != nil || v.ETA >= 0 {
		t.Errorf("paused, and its ETA is %s, %v", v.ETA, err)
	}
}
