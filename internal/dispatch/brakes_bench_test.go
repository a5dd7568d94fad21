package dispatch

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// BenchmarkDispatchWithBrakes is what brakes of money cost: how fast a dispatcher calls a gateway without a limit of calls, with brakes that have room and without any, in turns,
// and how busy Redis is with one job, at the median and at the least.
// go test -run - -bench DispatchWithBrakes -benchtime 6x ./internal/dispatch
func BenchmarkDispatchWithBrakes(b *testing.B) {
	gateway := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	b.Cleanup(gateway.Close)
	server := testkit.Server(b)
	db, err := redisdb.Open(b.Context(), server.URL(), redisdb.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	brakes := job.Brakes{RefuseUnknown: true}
	for text, window := range map[string]time.Duration{"EUR 2000000": 24 * time.Hour, "EUR 1000000": time.Minute} {
		most, rule := job.ReadMoney(text)
		if rule != "" {
			b.Fatal(rule)
		}
		brakes.Limits = append(brakes.Limits, job.MoneyLimit{Most: most, Window: window})
	}
	rates, busy := map[bool][]float64{}, map[bool][]float64{}
	for b.Loop() {
		for _, braked := range []bool{false, true, true, false} {
			rate, used := dispatched(b, db, gateway.URL, func(g *config.Gateway) {
				g.Amount.Field, g.Amount.Currency = "amount", "currency"
				if braked {
					g.Brakes = brakes
				}
			})
			rates[braked], busy[braked] = append(rates[braked], rate), append(busy[braked], used)
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
