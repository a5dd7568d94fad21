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
	if v.ETA = eta(v, g); v.ETA > 0 {
		long, err := longWait(ctx, c, g, v)
		if err != nil {
			return Glance{}, err
		}
		v.ETA = max(v.ETA, long)
	}
	return v, nil
}

// rateSpan is how far back the present rate looks: a limit with a longer window may be used up, and the rate not show it yet.
const rateSpan = time.Minute

// longWait returns how long the last waiting job waits at least for the limits whose windows the present rate says nothing of: a daily limit
// that is used up, or will be before all of them are called.
func longWait(ctx context.Context, c redis.UniversalClient, g config.Gateway, v Glance) (left time.Duration, err error) {
	jobs := waiting(v, g) - v.InFlight // those have their slots
	if jobs == 0 {
		return 0, nil
	}
	var long bool
	for _, l := range v.Limits {
		if l.Window > rateSpan {
			long = true
			left = max(left, span(float64(jobs-l.N)/rateOf(l)))
		}
	}
	if !long {
		return 0, nil
	}
	p, err := bucket.NewPacer(c, pacing(g, Limits{Limits: v.Limits}), bucket.NewMetrics(nil))
	if err != nil {
		return 0, err
	}
	defer p.Close(ctx)
	room, err := p.Room(ctx, jobs)
	return max(left, room.In), Coded(err)
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

// waiting is how many jobs there are that go by themselves.
func waiting(v Glance, g config.Gateway) int64 {
	n := v.Queued + v.InFlight + v.Scheduled + v.Retrying
	if g.Replay == config.ReplayAuto {
		n += v.Parked[job.Rejected]
	}
	return n
}

func eta(v Glance, g config.Gateway) time.Duration {
	jobs := waiting(v, g)
	if jobs == 0 {
		return 0
	}
	if v.Hold.Paused {
		return -1
	}
	rate := v.Rate
	if rate == 0 || v.Queued+v.InFlight == 0 {
		rate = pace(v.Limits)
	}
	left := span(float64(jobs) / rate)
	if g.Replay == config.ReplayAuto { // what is rejected comes through admission first, which may be the slower of the two
		left = max(left, span(float64(v.Parked[job.Rejected])/longRate(g.Admission.Limits)))
	}
	if v.Hold.HeldUntil.After(v.Now) {
		left += v.Hold.HeldUntil.Sub(v.Now)
	}
	return left
}

// pace is how fast a rested gateway is called, in calls a second: the limits of up to a minute hold it back, where there are any. The
// longer ones hold nobody back until they are used up, which is for longWait to say.
func pace(limits []config.Limit) float64 {
	var short []config.Limit
	quickest := 0.0
	for _, l := range limits {
		quickest = max(quickest, rateOf(l))
		if l.Window <= rateSpan {
			short = append(short, l)
		}
	}
	if len(short) == 0 {
		return quickest
	}
	return longRate(short)
}

// longRate is the most that the limits allow in the long run, in jobs a second.
func longRate(limits []config.Limit) float64 {
	rate := math.Inf(1)
	for _, l := range limits {
		rate = min(rate, rateOf(l))
	}
	return rate
}

func rateOf(l config.Limit) float64 { return float64(l.N) / l.Window.Seconds() }

// span is so many seconds, and a century where they are more.
func span(seconds float64) time.Duration {
	return time.Duration(min(seconds, 100*365*24*3600) * float64(time.Second))
}
