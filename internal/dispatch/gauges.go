package dispatch

import (
	"context"
	"math/big"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/counts"
	"spillway/internal/feed"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
)

const scrapeWithin = 3 * time.Second // the longest that a scrape waits for Redis

// Gauges exports Redis's state of each gateway as it is at each scrape. Every process that serves a gateway
// exports the same values, so queries must use the maximum, not the sum.
type Gauges struct {
	redis    redis.UniversalClient
	gateways atomic.Pointer[[]config.Gateway]
	lanes    laneWatches
}

// NewGauges returns the gauges of some gateways.
func NewGauges(c redis.UniversalClient, gateways []config.Gateway) *Gauges {
	g := &Gauges{redis: c}
	g.Use(gateways)
	return g
}

// Use sets the gateways, from the next scrape on.
func (g *Gauges) Use(gateways []config.Gateway) { g.gateways.Store(&gateways) }

func gauge(name, help string, labels ...string) shown {
	return shown{prometheus.NewDesc("spillway_"+name, help, append([]string{"gateway"}, labels...), nil), labels}
}

// shown is a metric exported for each gateway, with its other labels.
type shown struct {
	*prometheus.Desc
	labels []string
}

var (
	gaugeRead        = gauge("books_read", "1 if Redis's books of the gateway could be read for this scrape; 0 else, and the rest is missing.")
	gaugeJobs        = gauge("jobs", "Jobs that wait or are in flight, by state, over all processes.", "state")
	gaugeLookAge     = gauge("pending_oldest_age_seconds", "How long ago the call ended that is in doubt for longest among pending jobs. 0 where no job is pending.")
	gaugeLookFails   = gauge("lookups_failing_seconds", "For how long the look-ups of a pending job have failed, of the one for which they do so for longest. 0 where none fails.")
	gaugeHead        = gauge("queue_head_age_seconds", "How long the job at the head of the queue has been in it. 0 when it is empty.")
	gaugeParked      = gauge("parked_jobs", "Jobs in the dead-letter store, by reason.", "reason")
	gaugeParkedBytes = gauge("parked_bytes", "Bytes of the parked jobs' payloads as they are stored, of all reasons together.")
	gaugeBytesMost   = gauge("parked_bytes_most", "How many bytes the parked jobs' payloads may come to for a newcomer to be parked. Missing where there is no bound.")
	gaugeMost        = gauge("parked_most", "How many parked jobs there may be, of all reasons together, for a newcomer to be parked. Missing where there is no bound.")
	gaugeOldest      = gauge("parked_oldest_age_seconds", "How long the oldest parked job has been there, by reason. 0 where none is.", "reason")
	gaugeMoney       = gauge("parked_money", "Money of the parked jobs in minor units, by reason and currency, where the gateway has an amount.", "reason", "currency")
	gaugeAccepted    = gauge("accepted_jobs_total", "Jobs ever accepted, over all producers.")
	gaugeDone        = gauge("done_jobs_total", "Jobs ever done, over all processes.")
	gaugeDiscarded   = gauge("discarded_jobs_total", "Jobs ever discarded.")
	gaugeRate        = gauge("call_rate", "Calls a second over the last minute, over all processes.")
	gaugeLimit       = gauge("limit_rate", "Calls a second that each limit in force allows.", "limit")
	gaugeHeld        = gauge("held_seconds", "How long the gateway is held yet. 0 while it is not.")
	gaugeDenied      = gauge("denied", "1 while the gateway is held because it refuses access (401, 403); 0 else.")
	gaugeBraked      = gauge("braked_seconds", "For how long the gateway has waited, as a brake has no room for the money of the next job. 0 while it does not.")
	gaugePaused      = gauge("paused", "1 while an operator's pause, doubt about Redis's data, or a reader of outcomes that is too far behind stops the gateway; 0 else.")
	gaugeStopped     = gauge("stopped_batches", "Batches that stopped themselves and about which nobody has decided since.")
	gaugeTold        = gauge("outcomes_told_total", "Outcomes of jobs and batches ever told to the gateway's feed. Missing where it has none.")
	gaugeToldHeld    = gauge("outcomes_held", "1 while the gateway is held, since a reader of its outcomes is too far behind; 0 else. Missing where it has no feed.")
	gaugeBehind      = gauge("outcomes_behind", "Outcomes that a reader has not acknowledged.", "reader")
	gaugeBehindAge   = gauge("outcomes_behind_seconds", "How long ago the first outcome was that a reader has not acknowledged. 0 where it has all.", "reader")
	gaugeDropped     = gauge("outcomes_dropped_total", "Outcomes that were dropped before a reader had them.", "reader")
	gaugeTrail       = gauge("trail_entries", "Entries of the trail that its chain has.")
	gaugeTrailHead   = gauge("trail_head", "The first 12 hexadecimal digits of the hash of the chain's last link, as a number. 0 where there is none.")
	gaugeETA         = gauge("eta_seconds", "When the last waiting job will have been called. Missing while unknown.")
)

// Describe implements prometheus.Collector.
func (g *Gauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []shown{gaugeRead, gaugeJobs, gaugeLookAge, gaugeLookFails, gaugeHead, gaugeParked, gaugeParkedBytes, gaugeBytesMost, gaugeMost, gaugeOldest, gaugeMoney, gaugeAccepted, gaugeDone,
		gaugeDiscarded, gaugeRate, gaugeLimit, gaugeHeld, gaugeDenied, gaugeBraked, gaugePaused, gaugeStopped, gaugeTold, gaugeToldHeld, gaugeBehind, gaugeBehindAge, gaugeDropped, gaugeTrail, gaugeTrailHead, gaugeETA,
		gaugeRoute, gaugeRouteHeld, gaugeRoutePause, gaugeClass, gaugeLanes, gaugeThrottled, gaugeInLanes, gaugeLane, gaugeOtherLanes, gaugeLanesHeld, gaugeStuck} {
		out <- d.Desc
	}
}

// Collect implements prometheus.Collector.
func (g *Gauges) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeWithin)
	defer cancel()
	gateways := *g.gateways.Load()
	found, errs := make([][]prometheus.Metric, len(gateways)), make([]error, len(gateways))
	redisdb.Abreast(ctx, g.redis, len(gateways), func(c redis.UniversalClient, i int) {
		found[i], errs[i] = g.read(ctx, c, gateways[i])
	})
	for i, gateway := range gateways {
		read := 1.0
		if errs[i] != nil {
			read, found[i] = 0, nil
		}
		out <- &counts.Sample{Of: gaugeRead.Desc, Labels: counts.Gateway(gateway.Name), Value: read}
		for _, m := range found[i] {
			out <- m
		}
	}
}

// read returns all metrics of a gateway, or nothing if it can't be read.
func (g *Gauges) read(ctx context.Context, c redis.UniversalClient, gateway config.Gateway) ([]prometheus.Metric, error) {
	v, err := Look(ctx, c, gateway)
	if err != nil {
		return nil, err
	}
	books := ledger.New(c, ledger.Config{Gateway: gateway.Name})
	var head time.Time
	if v.Queued > 0 {
		if head, err = books.HeadSince(ctx); err != nil {
			return nil, err
		}
	}
	money, err := books.ParkedMoney(ctx)
	if err != nil {
		return nil, err
	}
	stopped, err := books.Braked(ctx)
	if err != nil {
		return nil, err
	}
	trail, err := Store(c, gateway).Head(ctx)
	if err != nil {
		return nil, err
	}
	r := reading{gateway: gateway.Name, of: counts.Gateway(gateway.Name), now: v.Now}
	r.gauge(gaugeTrail, float64(trail.Entries))
	r.gauge(gaugeTrailHead, trail.Number())
	r.standing(v, head)
	r.parked(v, money)
	r.told(v.Outcomes)
	if err := r.parts(ctx, c, gateway, v, g.lanes.of(gateway.Name)); err != nil {
		return nil, err
	}
	r.gauge(gaugeStopped, float64(len(stopped)))
	r.gauge(gaugeParkedBytes, float64(v.ParkedBytes))
	if most := gateway.Parked.Most; most > 0 {
		r.gauge(gaugeMost, float64(most))
	}
	if most := gateway.Parked.Bytes; most > 0 {
		r.gauge(gaugeBytesMost, float64(most))
	}
	return r.all, nil
}

// reading is the result of one scrape for one gateway.
type reading struct {
	gateway string
	of      counts.Labels
	now     time.Time
	all     []prometheus.Metric
}

func (r *reading) add(d shown, v float64, counter bool, labels ...string) {
	of := r.of
	for i, value := range labels {
		of = of.With(label(d.labels[i], value))
	}
	r.all = append(r.all, &counts.Sample{Of: d.Desc, Labels: of, Value: v, Counts: counter})
}

func (r *reading) gauge(d shown, v float64, labels ...string) { r.add(d, v, false, labels...) }

func (r *reading) counter(d shown, v float64, labels ...string) { r.add(d, v, true, labels...) }

// label returns a label. Those that every gateway has are shared.
func label(name, value string) *dto.LabelPair {
	if l := usual()[value]; l != nil && l.GetName() == name {
		return l
	}
	return counts.Label(name, value)
}

var usual = sync.OnceValue(func() map[string]*dto.LabelPair {
	all := make(map[string]*dto.LabelPair)
	for _, state := range []job.State{job.Queued, job.InFlight, job.Scheduled, job.Retrying, job.Pending} {
		all[string(state)] = counts.Label("state", string(state))
	}
	for _, reason := range job.Reasons() {
		all[string(reason)] = counts.Label("reason", string(reason))
	}
	return all
})

// age returns how long ago a time was; 0 for the zero time.
func (r *reading) age(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return max(r.now.Sub(at).Seconds(), 0)
}

func (r *reading) standing(v Glance, head time.Time) {
	for state, n := range map[job.State]int64{job.Queued: v.Queued, job.InFlight: v.InFlight, job.Scheduled: v.Scheduled, job.Retrying: v.Retrying, job.Pending: v.Pending} {
		r.gauge(gaugeJobs, float64(n), string(state))
	}
	r.gauge(gaugeLookAge, r.age(v.Asking.Oldest))
	r.gauge(gaugeLookFails, r.age(v.Asking.Failing))
	r.gauge(gaugeHead, r.age(head))
	r.counter(gaugeAccepted, float64(v.Accepted))
	r.counter(gaugeDone, float64(v.Done))
	r.counter(gaugeDiscarded, float64(v.Discarded))
	r.gauge(gaugeRate, v.Rate)
	for _, l := range v.Limits {
		r.gauge(gaugeLimit, float64(l.N)/l.Window.Seconds(), l.String())
	}
	r.gauge(gaugeHeld, max(v.Hold.HeldUntil.Sub(v.Now).Seconds(), 0))
	r.gauge(gaugeDenied, map[bool]float64{true: 1}[v.Hold.Denied])
	r.gauge(gaugeBraked, r.age(v.Hold.Braked))
	r.gauge(gaugePaused, map[bool]float64{true: 1}[v.Hold.Paused])
	if v.ETA >= 0 {
		r.gauge(gaugeETA, v.ETA.Seconds())
	}
}

// told adds the metrics of the outcome feed, if the gateway has one.
func (r *reading) told(s *feed.Standing) {
	if s == nil {
		return
	}
	r.counter(gaugeTold, float64(s.Told))
	r.gauge(gaugeToldHeld, map[bool]float64{false: 1}[s.Held.IsZero()])
	for _, one := range s.Readers {
		r.gauge(gaugeBehind, float64(one.Behind), one.Reader)
		r.gauge(gaugeBehindAge, r.age(one.Since), one.Reader)
		r.counter(gaugeDropped, float64(one.Dropped), one.Reader)
	}
}

// currency matches what may become a label: payloads must not create any number of labels.
var currency = regexp.MustCompile(`^[A-Za-z]{3}$`)

func (r *reading) parked(v Glance, money map[job.Reason]job.Totals) {
	for _, reason := range job.Reasons() {
		r.gauge(gaugeParked, float64(v.Parked[reason]), string(reason))
		r.gauge(gaugeOldest, r.age(v.Oldest[reason]), string(reason))
		for c, minor := range money[reason].Amount {
			if currency.MatchString(c) {
				sum, _ := new(big.Float).SetInt(minor).Float64()
				r.gauge(gaugeMoney, sum, string(reason), c)
			}
		}
	}
}
