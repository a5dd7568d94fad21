package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/access"
	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/feed"
	"spillway/internal/incarnation"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// Glance is a snapshot of one gateway, with everything that status shows.
type Glance struct {
	record.Standing
	Hold   bucket.Standing
	Limits []job.Limit
	// Admission is the limits in force at admission.
	Admission []job.Limit
	// ETA is when the last waiting job will have been called, at the present rate or else at the limits. It is
	// negative if unknown; Stopped then says why.
	ETA time.Duration
	// Stopped says why the gateway is not called, if the end of that is unknown: it is paused, it fails or
	// denies access, or no dispatcher serves it. It is empty otherwise.
	Stopped string
	// Refuses says why Redis takes no writes, if no dispatcher gives a sign of life: it can't write one then.
	Refuses string
	// Since is since when the gateway is held, paused or not served; zero if unknown.
	Since time.Time
	// ParkedNear is the bounds on parked jobs of which at least four fifths are used; others are zero.
	ParkedNear job.ParkedBound
	// Slow are the dispatchers that serve the gateway and reported in the last ten seconds that they are too
	// slow for its limits.
	Slow []ledger.SlowSince
	// Asking is the state of the look-ups of pending jobs. While the gateway is paused, no look-up counts as
	// failing.
	Asking ledger.Asking
	// Outcomes is the state of the outcome feed; nil if the gateway has none.
	Outcomes *feed.Standing
	// Parts is the queue by route, class and lane.
	Parts Parts
	// ETALeast says that for some lanes ETA may be too early.
	ETALeast bool
}

// AllParked returns how many jobs are parked, for whatever reason.
func (v Glance) AllParked() (n int64) {
	for _, jobs := range v.Parked {
		n += jobs
	}
	return n
}

// ForRoom returns how many jobs wait for room at admission.
func (v Glance) ForRoom() int64 { return v.Parked[job.Rejected] }

// What can limit a gateway's throughput in the long run.
const (
	BottleneckLeak      = "leak"
	BottleneckAdmission = "admission"
)

// Bottleneck returns which limits determine the throughput in the long run: admission's if they are lower than
// the leak's, else the leak's.
func Bottleneck(admission, leak []job.Limit) string {
	if job.PerSecond(admission) < job.PerSecond(leak)*(1-1e-6) {
		return BottleneckAdmission
	}
	return BottleneckLeak
}

// Bottleneck returns which limits determine the gateway's throughput in the long run.
func (v Glance) Bottleneck() string { return Bottleneck(v.Admission, v.Limits) }

// Look returns a snapshot of a gateway.
func Look(ctx context.Context, c redis.UniversalClient, g config.Gateway) (Glance, error) {
	s, err := ledger.Look(ctx, c, g.Name)
	if err != nil {
		return Glance{}, err
	}
	h, sign, told, err := hold(ctx, c, g)
	if err != nil {
		return Glance{}, err
	}
	now, err := CurrentLimits(ctx, c, g)
	if err != nil {
		return Glance{}, err
	}
	v := Glance{Standing: s, Hold: h, Outcomes: told, Limits: now.Limits, Admission: AdmissionAt(g, now).Limits}
	v.ParkedNear = job.ParkedBound{Jobs: nearly(v.AllParked(), g.Parked.Most), Bytes: nearly(v.ParkedBytes, g.Parked.Bytes)}
	alone, err := unserved(ctx, c, sign)
	if err != nil {
		return v, err
	}
	if alone {
		if v.Refuses, err = redisdb.Refuses(ctx, c, g.Name); err != nil && !redis.IsPermissionError(err) { // a viewer may not write
			return v, err
		}
	}
	v.Stopped, v.Since = endless(h, sign, alone, v.Refuses), since(h, sign, alone)
	if v.Slow, err = ledger.SlowOnes(ctx, c, g.Name, s.Now); err != nil {
		return v, err
	}
	if v.Pending > 0 {
		if v.Asking, err = Books(c, g).Asking(ctx); err != nil {
			return v, err
		}
		if h.Paused { // nobody makes look-ups, and the pause says so
			v.Asking = ledger.Asking{Next: v.Asking.Next, Oldest: v.Asking.Oldest}
		}
	}
	if v.Parts, err = lookAtParts(ctx, c, g, v.Queued); err != nil {
		return v, err
	}
	if err := outsideHolds(ctx, c, g, &v); err != nil {
		return v, err
	}
	v.ETA, v.ETALeast, err = lastCall(ctx, c, g, v)
	return v, err
}

// nearly returns most if more than four fifths of it are used, else 0.
func nearly(used, most int64) int64 {
	if float64(used) > 0.8*float64(most) {
		return most
	}
	return 0
}

// lastCall returns when the last waiting job will have been called; negative if unknown. least says that it may
// be later, because not all lanes were read.
func lastCall(ctx context.Context, c redis.UniversalClient, g config.Gateway, v Glance) (left time.Duration, least bool, err error) {
	if left = eta(v, g); left <= 0 {
		return left, false, nil
	}
	long, err := longWait(ctx, c, g, v)
	if err != nil {
		return left, false, err
	}
	beside, least, err := besideWait(ctx, c, g, v.Parts)
	return max(left, long, beside), least, err
}

// neverServed is the reason for a configured gateway that no dispatcher has ever served.
const neverServed = "no dispatcher has ever served the gateway: start one with \"dispatcher run\""

// endless says why a gateway is not called, if the end of that is unknown. It alone decides whether there is an
// ETA.
func endless(h bucket.Standing, sign incarnation.Sign, unserved bool, refuses string) string {
	switch {
	case h.Paused:
		return "the gateway is paused: " + h.PauseWhy
	case h.Denied:
		return "the gateway does not let calls in, " + Cause(h) + "; " + triedAgain(h)
	case h.NoToken:
		return h.Reason + "; one is asked for again at " + job.Moment(h.HeldUntil)
	case h.Endless:
		return "the gateway is held until it answers as it should, and " + triedAgain(h) + ": " + h.Reason
	case refuses != "":
		return "Redis takes no writes, so nothing is called, and no dispatcher can say that it serves the gateway: " + refuses
	case sign.Last.IsZero():
		return neverServed
	case unserved:
		return fmt.Sprintf("no dispatcher serves the gateway since %s: start one with \"dispatcher run\"", job.Moment(sign.Last))
	}
	return ""
}

// since returns since when the gateway is held, paused or not served; zero if unknown, or if it is none of
// these.
func since(h bucket.Standing, sign incarnation.Sign, unserved bool) time.Time {
	switch {
	case h.Paused, h.Endless, !h.HeldUntil.IsZero():
		return h.Since
	case unserved:
		return sign.Last
	}
	return time.Time{}
}

// Cause says why the gateway is held and, if an operator has to act, how.
func Cause(h bucket.Standing) string {
	if h.Denied {
		return h.Reason + ": check the credentials"
	}
	return h.Reason
}

func triedAgain(h bucket.Standing) string {
	if h.HeldUntil.IsZero() {
		return "one call goes ahead to see"
	}
	return "it is tried again at " + job.Moment(h.HeldUntil)
}

// unmeasured is for pacers that only read.
var unmeasured = bucket.NewMetrics(nil)

// rateSpan is how far back the present rate looks. A limit with a longer window may be used up without an
// effect on it so far.
const rateSpan = time.Minute

// longWait returns the least time that the last waiting job waits for limits with windows longer than rateSpan:
// a daily limit that is used up, or will be before all jobs are called.
func longWait(ctx context.Context, c redis.UniversalClient, g config.Gateway, v Glance) (left time.Duration, err error) {
	jobs := waiting(v, g) - v.InFlight // those have their slots
	if jobs == 0 {
		return 0, nil
	}
	var long bool
	for _, l := range v.Limits {
		if l.Window > rateSpan {
			long = true
			left = max(left, span(float64(jobs-l.N)/l.PerSecond()))
		}
	}
	if !long {
		return 0, nil
	}
	p, err := bucket.NewPacer(c, pacing(g, Limits{Limits: v.Limits}), unmeasured)
	if err != nil {
		return 0, err
	}
	defer p.Close(ctx)
	room, err := p.Room(ctx, jobs)
	return max(left, room.In), err
}

// staleWhy says why no calls are made while the limits in Redis are older than those that the pacer has seen.
const staleWhy = "Redis has lost the version of the limits that the pacer keeps, and no dispatcher has mended it: set them again, dispatcher limit set or limit reset"

// Hold returns what holds a gateway's calls back. Doubtful data shows as a pause that resume does not end. So
// do a lost version of the limits, and a reader of outcomes that is too far behind.
func Hold(ctx context.Context, c redis.UniversalClient, g config.Gateway) (bucket.Standing, error) {
	h, _, _, err := hold(ctx, c, g)
	return h, err
}

// hold is Hold, and also returns the data's sign of life and the state of the outcome feed, if there is one.
func hold(ctx context.Context, c redis.UniversalClient, g config.Gateway) (h bucket.Standing, sign incarnation.Sign, told *feed.Standing, err error) {
	if h, err = bucket.Look(ctx, c, g.Name); err != nil {
		return h, sign, nil, err
	}
	if g.Request.OAuth2.On {
		token, err := access.Look(ctx, c, g.Name)
		if err != nil {
			return h, sign, nil, err
		}
		if token.Why != "" {
			h.HeldUntil, h.Reason, h.NoToken = token.Again, token.Why, true
			h.Endless, h.Probing, h.Circuit, h.Denied = true, true, false, false
		}
	}
	if sign, err = incarnation.Look(ctx, c, g.Name); err == nil {
		told, err = lookAtFeed(ctx, c, g)
	}
	why := sign.Doubt
	if why == "" && h.Stale {
		why = staleWhy
	}
	var from time.Time // it is unknown since when data has been in doubt
	if why == "" && !h.Paused && told != nil && !told.Held.IsZero() {
		why, from = feedHeld(g, *told), told.Held
	}
	if why != "" {
		h.Paused, h.Barred, h.PauseWhy, h.Since = true, true, why, from
	}
	return h, sign, told, err
}

// waiting returns how many jobs continue by themselves. A pending job takes a slot for its look-up.
func waiting(v Glance, g config.Gateway) int64 {
	n := v.Queued + v.InFlight + v.Scheduled + v.Retrying + v.Pending
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
	if v.Stopped != "" {
		return -1
	}
	rate := foreseen(v)
	left := span(float64(jobs) / rate)
	if g.Replay == config.ReplayAuto { // rejected jobs go through admission first, which may be slower
		left = max(left, span(float64(v.Parked[job.Rejected])/job.PerSecond(v.Admission)))
	}
	if v.Hold.HeldUntil.After(v.Now) {
		left += v.Hold.HeldUntil.Sub(v.Now)
	}
	if jobs == v.Pending { // only look-ups are made
		left = max(left, v.Asking.Next.Sub(v.Now))
	}
	return left
}

// span converts seconds to a duration of at most a century.
func span(seconds float64) time.Duration {
	return time.Duration(min(seconds, 100*365*24*3600) * float64(time.Second))
}
