package dispatch

import (
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
)

// BenchmarkDispatchWithBrakes is what brakes of money cost: how fast a dispatcher calls a gateway without a limit of calls, with brakes that have room and without any, in turns,
// and how busy Redis is with one job, at the median and at the least.
// go test -run - -bench DispatchWithBrakes -benchtime 6x ./internal/dispatch
func BenchmarkDispatchWithBrakes(b *testing.B) {
	brakes := job.Brakes{RefuseUnknown: true}
	for text, window := range map[string]time.Duration{"EUR 2000000": 24 * time.Hour, "EUR 1000000": time.Minute} {
		most, rule := job.ReadMoney(text)
		if rule != "" {
			b.Fatal(rule)
		}
		brakes.Limits = append(brakes.Limits, job.MoneyLimit{Most: most, Window: window})
	}
	withAndWithout(b, func(g *config.Gateway, with bool) {
		g.Amount.Field, g.Amount.Currency = "amount", "currency"
		if with {
			g.Brakes = brakes
		}
	})
}
