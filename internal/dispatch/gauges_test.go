package dispatch

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"spillway/internal/admission"
	"spillway/internal/bucket"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// instruments registers all metrics that the command run registers, for a dispatcher that is not started.
func (r *rig) instruments() *prometheus.Registry {
	r.t.Helper()
	reg := prometheus.NewPedanticRegistry()
	r.db.Instrument(reg)
	reg.MustRegister(NewGauges(r.db.Client, r.cfg.Gateways))
	if _, err := New(Params{DB: r.db, Gateways: r.cfg.Gateways, Metrics: reg, Log: slog.New(slog.DiscardHandler)}); err != nil {
		r.t.Fatal(err)
	}
	return reg
}

// value returns the value of a metric, and whether it exists. labels are all its labels except the gateway, each written like `reason="refused"`.
func value(t *testing.T, reg prometheus.Gatherer, name string, labels ...string) (float64, bool) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var has []string
			for _, l := range m.GetLabel() {
				if l.GetName() != "gateway" {
					has = append(has, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
			}
			if f.GetName() == name && strings.Join(has, " ") == strings.Join(labels, " ") {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
			}
		}
	}
	return 0, false
}

const withMoney = "leak: {limits: [100/s, 5000/m]}\nadmission: {limits: [1/h], burst: 4}\nreplay: manual\namount: {field: amount, currency: currency}"

func TestTheGaugesSayWhatTheBooksSay(t *testing.T) {
	t.Parallel()
	r := setup(t, withMoney)
	var jobs []job.Job
	for i := range 7 {
		currency := "EUR"
		if i == 6 {
			currency = "a currency that somebody made up"
		}
		jobs = append(jobs, job.Job{ID: fmt.Sprintf("j%d", i), Cost: 1, Payload: fmt.Appendf(nil, `{"amount":250,"currency":%q}`, currency)})
	}
	jobs[0].At = time.Now().Add(time.Hour)
	name := r.cfg.Gateways[0].Name
	if _, err := Door(r.db.Client, r.cfg, 0).Admit(t.Context(), name, jobs, admission.Park); err != nil {
		t.Fatal(err)
	}
	r.db.Client.ZAdd(t.Context(), redisdb.NewKeys(name).Braked(), redis.Z{Score: 1, Member: "b"})
	var reg *prometheus.Registry
	testkit.Eventually(t, 20*time.Second, "a scrape for which Redis answers in time", func() bool {
		reg = r.instruments() // with no error counted yet
		read, _ := value(t, reg, "spillway_books_read")
		return read == 1
	})
	if failed, there := value(t, reg, "spillway_redis_errors_total"); !there || failed != 0 {
		t.Errorf("%v errors of Redis are counted (there: %v), want none", failed, there)
	}
	for _, want := range []struct {
		name   string
		labels string
		value  float64
	}{
		{"spillway_jobs", `state="queued"`, 3},
		{"spillway_jobs", `state="scheduled"`, 1},
		{"spillway_jobs", `state="in_flight"`, 0},
		{"spillway_jobs", `state="retrying"`, 0},
		{"spillway_parked_jobs", `reason="rejected"`, 3},
		{"spillway_parked_jobs", `reason="refused"`, 0},
		{"spillway_parked_oldest_age_seconds", `reason="refused"`, 0},
		{"spillway_parked_money", `currency="EUR" reason="rejected"`, 500},
		{"spillway_accepted_jobs_total", ``, 7},
		{"spillway_done_jobs_total", ``, 0},
		{"spillway_limit_rate", `limit="100/s"`, 100},
		{"spillway_limit_rate", `limit="5000/m"`, 5000. / 60},
		{"spillway_held_seconds", ``, 0},
		{"spillway_paused", ``, 0},
		{"spillway_stopped_batches", ``, 1},
		{"spillway_calls_total", `verdict="done"`, 0},
	} {
		if got := patientValue(t, reg, want.name, strings.Fields(want.labels)...); got != want.value {
			t.Errorf("%s{%s} is %v, want %v", want.name, want.labels, got, want.value)
		}
	}
	testkit.Eventually(t, 5*time.Second, "the ages to grow", func() bool {
		head, _ := value(t, reg, "spillway_queue_head_age_seconds")
		oldest, _ := value(t, reg, "spillway_parked_oldest_age_seconds", `reason="rejected"`)
		return head > 0.05 && oldest > 0.05
	})
	if n := testutil.CollectAndCount(NewGauges(r.db.Client, r.cfg.Gateways), "spillway_parked_money"); n != 1 {
		t.Errorf("%d series of money: a payload must not make labels", n)
	}
	pacer, err := Pacer(r.db.Client, r.cfg.Gateways[0], bucket.NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer pacer.Close(t.Context())
	if err := pacer.Pause(t.Context(), "lunch"); err != nil {
		t.Fatal(err)
	}
	if _, err := pacer.Failed(t.Context(), job.Circuit{}, job.Failure{Kind: job.Wait, For: time.Minute, Written: true, Why: "429"}); err != nil {
		t.Fatal(err)
	}
	if denied := patientValue(t, reg, "spillway_denied"); denied != 0 {
		t.Errorf("a 429 counts as %v refused accesses", denied)
	}
	paused, held := patientValue(t, reg, "spillway_paused"), patientValue(t, reg, "spillway_held_seconds")
	if _, eta := value(t, reg, "spillway_eta_seconds"); paused != 1 || held <= 0 || eta {
		t.Errorf("paused %v, held for %v s, an ETA: %v", paused, held, eta)
	}
}

// A gateway that refuses access says so, however soon it is tried again.
func TestAGaugeOfRefusedAccess(t *testing.T) {
	t.Parallel()
	r := setup(t, withMoney)
	reg := r.instruments()
	pacer, err := Pacer(r.db.Client, r.cfg.Gateways[0], bucket.NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer pacer.Close(t.Context())
	if denied := patientValue(t, reg, "spillway_denied"); denied != 0 {
		t.Errorf("denied %v before a call", denied)
	}
	if _, err := pacer.Failed(t.Context(), r.cfg.Gateways[0].Circuit, job.Failure{Kind: job.Deny, Written: true, Why: "HTTP 401"}); err != nil {
		t.Fatal(err)
	}
	if denied := patientValue(t, reg, "spillway_denied"); denied != 1 {
		t.Errorf("denied %v after a 401", denied)
	}
}

func TestMetricsAreNamedByConvention(t *testing.T) {
	t.Parallel()
	faults, err := testutil.GatherAndLint(setup(t, withMoney).instruments())
	if err != nil || len(faults) > 0 {
		t.Errorf("%v, %v", faults, err)
	}
}

// If Redis is away, a scrape ends and says so. The counters of this process are still there.
func TestGaugesWithoutRedis(t *testing.T) {
	t.Parallel()
	r := setup(t, withMoney)
	server := testkit.Server(t)
	r.on(server)
	reg := r.instruments()
	server.Kill()
	read, there := value(t, reg, "spillway_books_read")
	if _, jobs := value(t, reg, "spillway_jobs", `state="queued"`); !there || read != 0 || jobs {
		t.Errorf("books_read is %v (there: %v), jobs are there: %v", read, there, jobs)
	}
	if failed, _ := value(t, reg, "spillway_redis_errors_total"); failed == 0 {
		t.Error("no error was counted")
	}
}
