package dispatch

import (
	"context"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/incarnation"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// Glance is everything that status says of one gateway.
type Glance struct {
	ledger.Standing
	Hold   bucket.Standing
	Limits []config.Limit
	// ETA is when the last waiting job will have been called, at the present rate or else at the limits; negative when
	// nobody can say: the gateway is paused, or jobs wait for a person.
	ETA time.Duration
}

// Look returns a gateway's glance.
func Look(ctx context.Context, c redis.UniversalClient, g config.Gateway) (Glance, error) {
	s, err := Books(c, g).Look(ctx)
	if err != nil {
		return Glance{}, Coded(err)
	}
	h, err := Hold(ctx, c, g)
	if err != nil {
		return Glance{}, err
	}
	now, err := CurrentLimits(ctx, c, g)
	if err != nil {
		return Glance{}, err
	}
	v := Glance{Standing: s, Hold: h, Limits: now.Limits}
	v.ETA = eta(v, g)
	return v, nil
}

// Hold returns what keeps a gateway's calls back. Data that is doubted shows as a pause, which resume does not end.
func Hold(ctx context.Context, c redis.UniversalClient, g config.Gateway) (bucket.Standing, error) {
	p, err := Pacer(c, g, bucket.NewMetrics(nil))
	if err != nil {
		return bucket.Standing{}, err
	}
	defer p.Close(ctx)
	h, err := p.Look(ctx)
	if err != nil {
		return h, Coded(err)
	}
	why, err := incarnation.Why(ctx, c, g.Name)
	if why != "" {
		h.Paused, h.PauseWhy = true, why
	}
	return h, Coded(err)
}

func eta(v Glance, g config.Gateway) time.Duration {
	waiting := v.Queued + v.InFlight + v.Scheduled + v.Retrying
	if g.Replay == config.ReplayAuto {
		waiting += v.Parked[job.Rejected]
	}
	if waiting == 0 {
		return 0
	}
	if v.Hold.Paused {
		return -1
	}
	rate := v.Rate
	if rate == 0 || v.Queued+v.InFlight == 0 {
		rate = longRate(v.Limits)
	}
	left := time.Duration(float64(waiting) / rate * float64(time.Second))
	if g.Replay == config.ReplayAuto { // what is rejected comes through admission first, which may be the slower of the two
		left = max(left, time.Duration(float64(v.Parked[job.Rejected])/longRate(g.Admission.Limits)*float64(time.Second)))
	}
	if v.Hold.HeldUntil.After(v.Now) {
		left += v.Hold.HeldUntil.Sub(v.Now)
	}
	return left
}

// longRate is the most that the limits allow in the long run, in jobs a second.
func longRate(limits []config.Limit) float64 {
	rate := math.Inf(1)
	for _, l := range limits {
		rate = min(rate, float64(l.N)/l.Window.Seconds())
	}
	return rate
}
