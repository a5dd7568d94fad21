package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/admission"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// BenchmarkDispatchWithOutcomes is what the outcome feed costs: how fast a dispatcher calls a gateway without a limit, with the feed and without it, in turns,
// and how busy Redis is with one job.
// go test -run - -bench DispatchWithOutcomes -benchtime 6x ./internal/dispatch
func BenchmarkDispatchWithOutcomes(b *testing.B) {
	withAndWithout(b, func(g *config.Gateway, with bool) {
		if with {
			g.Outcomes = &config.Outcomes{Readers: []string{"ledger"}}
		}
	})
}

// withAndWithout says how fast a dispatcher calls a gateway, and how busy Redis is with one job (µs), with something and without it, in turns.
func withAndWithout(b *testing.B, change func(g *config.Gateway, with bool)) {
	b.Helper()
	gateway := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	b.Cleanup(gateway.Close)
	server := testkit.Server(b)
	db, err := redisdb.Open(b.Context(), server.URL(), redisdb.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	rates, busy := map[bool][]float64{}, map[bool][]float64{}
	for b.Loop() {
		for _, with := range []bool{false, true, true, false} {
			rate, used := dispatched(b, db, gateway.URL, func(g *config.Gateway) { change(g, with) })
			rates[with], busy[with] = append(rates[with], rate), append(busy[with], used)
		}
	}
	median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
	b.ReportMetric(median(rates[false]), "jobs/s-without")
	b.ReportMetric(median(rates[true]), "jobs/s-with")
	b.ReportMetric(median(rates[true])/median(rates[false]), "with/without")
	b.ReportMetric(median(busy[false]), "redis-µs/job-without")
	b.ReportMetric(median(busy[true]), "redis-µs/job-with")
	b.ReportMetric(slices.Min(busy[true])/slices.Min(busy[false]), "redis-with/without-least")
}

// dispatched calls a file of jobs, and returns how many a second, and how long Redis was at work for each (µs). change makes the gateway another one.
func dispatched(b *testing.B, db *redisdb.DB, url string, change func(*config.Gateway)) (rate, busy float64) {
	b.Helper()
	const jobs = 5000
	g := config.DefaultGateway()
	g.Name, g.Request.URL = testkit.Gateway(b), config.Secret(url)
	g.Leak.Limits = []job.Limit{{N: 1_000_000, Window: time.Second}}
	g.Leak.Burst, g.Leak.MaxInFlight = 100, 256
	g.Admission.Limits, g.Admission.Burst = g.Leak.Limits, 1_000_000
	change(&g)
	all := make([]job.Job, jobs)
	for i := range all {
		all[i] = job.Job{ID: fmt.Sprintf("inv-2026-11-%06d", i), Batch: "2026-11", Payload: []byte(`{"amount":4900,"currency":"EUR"}`)}
	}
	door := Door(db.Client, &config.Config{Gateways: []config.Gateway{g}}, 0)
	if _, err := door.Admit(b.Context(), g.Name, all, admission.Park); err != nil {
		b.Fatal(err)
	}
	d, err := New(Params{DB: db, Gateways: []config.Gateway{g}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	var before, after float64
	used := func(n *float64) {
		var user, system float64
		info := db.Client.InfoMap(b.Context(), "cpu").Val()["CPU"]
		_, _ = fmt.Sscan(info["used_cpu_user"], &user)
		_, _ = fmt.Sscan(info["used_cpu_sys"], &system)
		*n = user + system
	}
	used(&before)
	begun := time.Now()
	if err := d.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	books := Books(db.Client, g)
	testkit.EventuallyEvery(b, 20*time.Millisecond, time.Minute, "all jobs to be done", func() bool {
		s, err := books.Look(context.Background())
		return err == nil && s.Done == jobs
	})
	took := time.Since(begun).Seconds()
	used(&after)
	d.Stop(context.Background())
	return jobs / took, (after - before) / jobs * 1e6
}
