package redisdb

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// Instrument registers metrics of Redis's response times, failures and connections, as seen by this process.
func (db *DB) Instrument(reg prometheus.Registerer) {
	m := &meter{
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "spillway_redis_round_trip_seconds",
			Help:    "Time from a command, or a pipeline of them, to Redis's answer, waiting for a connection included.",
			Buckets: []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 3}}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{Name: "spillway_redis_errors_total",
			Help: "Commands, or pipelines, that Redis did not answer or refused."}),
	}
	db.Client.AddHook(m)
	reg.MustRegister(m.seconds, m.failed, pool{db.Client})
}

// meter is a client hook that measures. A missing key counts as a reply, not as a failure.
type meter struct {
	seconds prometheus.Histogram
	failed  prometheus.Counter
}

// DialHook implements redis.Hook.
func (m *meter) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (m *meter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		begun := time.Now()
		err := next(ctx, cmd)
		m.answered(begun, err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (m *meter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		begun := time.Now()
		err := next(ctx, cmds)
		m.answered(begun, err)
		return err
	}
}

func (m *meter) answered(begun time.Time, err error) {
	m.seconds.Observe(time.Since(begun).Seconds())
	if err != nil && !errors.Is(err, redis.Nil) && !errors.Is(err, context.Canceled) && !redis.HasErrorPrefix(err, "NOSCRIPT") {
		m.failed.Inc()
	}
}

// pool collects the metrics of connections.
type pool struct{ client redis.UniversalClient }

var (
	poolOpen = prometheus.NewDesc("spillway_redis_connections", "Connections to Redis that are open, by whether they are in use.", []string{"state"}, nil)
	poolWait = prometheus.NewDesc("spillway_redis_pool_timeouts_total", "Times that no connection to Redis became free in time.", nil, nil)
	poolMiss = prometheus.NewDesc("spillway_redis_pool_misses_total", "Times that a connection to Redis had to be opened, or waited for.", nil, nil)
)

// Describe implements prometheus.Collector.
func (p pool) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, out) }

// Collect implements prometheus.Collector.
func (p pool) Collect(out chan<- prometheus.Metric) {
	s := p.client.PoolStats()
	out <- prometheus.MustNewConstMetric(poolOpen, prometheus.GaugeValue, float64(s.IdleConns), "idle")
	out <- prometheus.MustNewConstMetric(poolOpen, prometheus.GaugeValue, float64(max(int64(s.TotalConns)-int64(s.IdleConns), 0)), "used")
	out <- prometheus.MustNewConstMetric(poolWait, prometheus.CounterValue, float64(s.Timeouts))
	out <- prometheus.MustNewConstMetric(poolMiss, prometheus.CounterValue, float64(s.Misses))
}
