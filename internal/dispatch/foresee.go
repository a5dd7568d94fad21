package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// foreseen returns the expected rate of calls a second: the recent rate, if it continues, bounded by what the
// limits allow now. A rate that has only just begun is no basis, because it includes time in which there was
// nothing to call.
func foreseen(v Glance) float64 {
	most := pace(v.Limits)
	switch {
	case v.Queued+v.InFlight == 0:
	case v.Steady > 0:
		return min(v.Steady, most)
	case v.Rate > 0 && !v.Anew:
		return min(v.Rate, most)
	}
	return most
}

// pace returns the rate at which a rested gateway is called, in calls a second: that of the limits with windows
// up to a minute, if there are any. Longer limits have an effect only when they are used up, which longWait
// considers.
func pace(limits []job.Limit) float64 {
	var short []job.Limit
	quickest := 0.0
	for _, l := range limits {
		quickest = max(quickest, l.PerSecond())
		if l.Window <= rateSpan {
			short = append(short, l)
		}
	}
	if len(short) == 0 {
		return quickest
	}
	return job.PerSecond(short)
}

// outsideHolds sets the snapshot's steady rate to one in which holds and pauses do not count. In them only a few
// calls are sent ahead, and their rate says nothing of what follows.
func outsideHolds(ctx context.Context, c redis.UniversalClient, g config.Gateway, v *Glance) error {
	if v.Stopped != "" || v.Queued+v.InFlight == 0 { // no rate is foreseen, or not from the calls
		return nil
	}
	stops, err := bucket.Stops(ctx, c, g.Name)
	if err != nil {
		return err
	}
	held := heldLately(v.Now, stops)
	if len(held) == 0 {
		return nil
	}
	calls, err := Books(c, g).Calls(ctx, v.Now)
	v.Steady, v.Anew = steady(calls, v.Now, held), true
	return err
}

// heldLately returns the stops of the last minute that are long enough to lower the rate. Short ones that come
// again and again belong to the rate at which the gateway takes calls.
func heldLately(now time.Time, stops []bucket.Stop) (held []bucket.Stop) {
	for _, o := range stops {
		if o.To.IsZero() && !o.From.IsZero() { // it lasts
			o.To = now
		}
		if o.To.Sub(o.From) >= ledger.CallSpan && now.Sub(o.To) < rateSpan {
			held = append(held, o)
		}
	}
	return held
}

// steady returns the rate of the latest whole spans of calls without a gap, oldest first, that no hold touches; 0
// if there are none.
func steady(calls []int64, now time.Time, held []bucket.Stop) float64 {
	var sum, spans, first int64
	end := now.Truncate(ledger.CallSpan)
	for _, n := range slices.Backward(calls) {
		begin := end.Add(-ledger.CallSpan)
		touched := slices.ContainsFunc(held, func(o bucket.Stop) bool { return o.From.Before(end) && !o.To.Before(begin) })
		end = begin
		switch {
		case touched:
			continue
		case n == 0 && spans > 0: // calls began within the span after it
			sum, spans = sum-first, spans-1
		}
		if n == 0 {
			break
		}
		sum, spans, first = sum+n, spans+1, n
	}
	if spans == 0 {
		return 0
	}
	return float64(sum) / (float64(spans) * ledger.CallSpan.Seconds())
}
