package redisdb

import (
	"context"
	"crypto/tls"
	_ "embed" // for the scripts
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// lostError is a reply that did not arrive: whether the command has run is unknown.
//
// It hides its cause from errors.Is and errors.As on purpose. MaxRetries -1 keeps go-redis from resending a command,
// but its cluster client has a loop of its own, meant for MOVED, that also resends after anything like a timeout or an
// EOF: a script that takes a slot would run twice. It does not resend after an error that it does not recognise.
type lostError struct{ cause error }

func (e *lostError) Error() string { return "no answer from Redis: " + e.cause.Error() }

// carefulConn turns every failure of an established connection into a lostError.
type carefulConn struct{ net.Conn }

func (c carefulConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, lost(err)
}

func (c carefulConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, lost(err)
}

// carefulSocket also exposes its file descriptor, with which the driver detects that an idle connection was closed.
type carefulSocket struct {
	carefulConn
	syscall.Conn
}

func lost(err error) error {
	if err == nil {
		return nil
	}
	return &lostError{err}
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

func careful(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if socket, ok := conn.(syscall.Conn); ok {
			return carefulSocket{carefulConn{conn}, socket}, nil
		}
		return carefulConn{conn}, nil
	}
}

// dialTo returns a dialler that differs from the driver's in that ctx bounds the TLS handshake, too.
func dialTo(t *target, opt Options) dialer {
	d := &net.Dialer{Timeout: opt.DialTimeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}
	if !t.tls {
		return d.DialContext
	}
	conf := opt.TLS
	if conf == nil {
		conf = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return (&tls.Dialer{NetDialer: d, Config: conf}).DialContext
}

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

//go:embed mark.lua
var markLua string

type replicatedKey struct{}

// Replicated returns a context under which a command or script succeeds only when Options.WaitReplicas replicas have
// what it wrote, and everything written before it. Otherwise its error is ErrAway, although it has run: run it again,
// on whatever is the primary by then, to get the same guarantee. It applies to commands sent one by one, not to
// pipelines and transactions. Without replicas to wait for, it changes nothing.
func Replicated(ctx context.Context) context.Context {
	return context.WithValue(ctx, replicatedKey{}, true)
}

// replicas is a client hook that waits for replicas. As a hook, it also works for wrapped clients.
type replicas struct {
	n      int
	within time.Duration // less than the read timeout, so that Redis can report how many there were
	client redis.UniversalClient
}

// DialHook implements redis.Hook.
func (r replicas) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (r replicas) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (r replicas) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if ctx.Value(replicatedKey{}) == nil {
			return next(ctx, cmd)
		}
		ctx = context.WithValue(ctx, replicatedKey{}, nil) // the driver's own commands on a new connection pass through here, too
		err := r.run(ctx, cmd)
		if cluster, ok := r.client.(*redis.ClusterClient); ok && says(err, notPrimary) { // nothing has run
			_ = cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil }) // updates which node holds what
			err = r.run(ctx, cmd)
		}
		cmd.SetErr(err)
		return err
	}
}

// notPrimary are the prefixes of replies of a server that does not hold the key, or no longer.
var notPrimary = []string{"READONLY", "MOVED"}

// run sends the command and the wait for replicas over one connection, in one round trip. WAIT concerns what its own
// connection has written, and newer Redis versions ignore a command that changed nothing, such as a repeated one whose
// reply was lost. The mark between the two is always a write, and a replica that has it has everything before it.
func (r replicas) run(ctx context.Context, cmd redis.Cmder) error {
	key := firstKey(cmd)
	node, err := r.primary(ctx, key)
	if err != nil {
		return err
	}
	var mark *redis.Cmd
	have := redis.NewIntCmd(ctx, "wait", r.n, r.within.Milliseconds())
	_, _ = node.Pipelined(ctx, func(p redis.Pipeliner) error {
		_ = p.Process(ctx, cmd)
		mark = p.Eval(ctx, markLua, markKeys(key))
		return p.Process(ctx, have)
	})
	for _, err := range []error{cmd.Err(), mark.Err(), have.Err()} {
		if err != nil && err != redis.Nil {
			return err
		}
	}
	if have.Val() < int64(r.n) {
		return &Error{Kind: ErrAway, Message: fmt.Sprintf("of the %d replicas that must have each job (wait_replicas), %d have it after %s",
			r.n, have.Val(), r.within), Hint: "bring the replicas back, or take wait_replicas out of the configuration"}
	}
	return cmd.Err()
}

// primary returns the server that holds the key.
func (r replicas) primary(ctx context.Context, key string) (redis.UniversalClient, error) {
	if cluster, ok := r.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return r.client, nil
}

// firstKey returns the key that determines a command's server.
func firstKey(cmd redis.Cmder) string {
	at := 1
	if name := cmd.Name(); name == "eval" || name == "evalsha" {
		at = 3
	}
	if args := cmd.Args(); at < len(args) {
		return fmt.Sprint(args[at])
	}
	return ""
}

// markKeys returns the keys of mark.lua, on the server of the key.
func markKeys(key string) []string {
	tag := key
	if _, rest, ok := strings.Cut(key, "{"); ok {
		tag, _, _ = strings.Cut(rest, "}")
	}
	return []string{prefix + tag + "}:mark", prefix + tag + "}:none"}
}
