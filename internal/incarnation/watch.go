package incarnation

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"spillway/internal/clock"
	"spillway/internal/redisdb"
)

const (
	// objectWithin is how long no calls are made after a silence: a dispatcher that has seen more than this data
	// contains can object within that time.
	objectWithin = 3 * time.Second
	// sayEvery is how often it is logged that a gateway's data is in doubt.
	sayEvery = time.Minute
	// lookMost is how often a look is repeated at once because another process was faster; the next pulse looks again.
	lookMost = 5
)

// unfit is a version that no data has: a script called with it refuses.
const unfit = "?"

// Params configure a Watch.
type Params struct {
	Gateway string
	// Past is what this machine has seen before, under this name and under others. Nil: nothing.
	Past *Past
	// NowMicros replaces Redis's clock. For tests; nil means Redis's own.
	NowMicros redisdb.Clock
	Clock     clock.Clock
	Metrics   *Metrics
	Log       *slog.Logger
}

// Watch watches the age of one gateway's data. It permits no calls until Meet has found the data in order. It is safe
// for concurrent use.
type Watch struct {
	p      Params
	client redis.UniversalClient
	keys   []string // alive, pace, feed, counters

	mu      sync.Mutex
	memory  Memory
	version string // of data in order; unfit while that is not known
	marks   string
	doubt   doubt
	quiet   time.Time     // no calls before
	free    chan struct{} // closed when the data is in order
	isFree  bool
	said    time.Time // when a doubt was last logged
	newer   string    // the data's format, if it is newer than this program knows
}

// NewWatch returns a Watch that permits no calls until Meet.
func NewWatch(c redis.UniversalClient, p Params) *Watch {
	k := redisdb.NewKeys(p.Gateway)
	seen, _ := p.Past.Of(p.Gateway)
	return &Watch{p: p, client: c, keys: []string{k.Alive(), k.Pace(), k.Feed(), k.Counters()}, memory: seen, version: unfit,
		free: make(chan struct{})}
}

// Meet reads the data's age and compares it with what was seen before. An error means that Redis could not be asked.
func (w *Watch) Meet(ctx context.Context) error {
	for range lookMost {
		d, err := w.look(ctx)
		if err != nil {
			return err
		}
		found, lacking := judgeAll(w.Memory(), w.p.Past.others(w.p.Gateway, d.line), d)
		switch {
		case found == calm && d.format == redisdb.Format:
			w.adopt(d)
			return nil
		case found == calm:
			if err := w.run(ctx, raiseScript, d.v, redisdb.Format); err != nil {
				return err
			}
			continue
		case found == doubted:
			w.hold(lacking)
			return nil
		case found == missing:
			w.hold(lacking) // at once, even if recording it fails
		}
		if err := w.write(ctx, found, d, lacking); err != nil {
			return err
		}
	}
	return nil
}

// look reads the data's age. It returns an error, and permits no calls, if the gateway is being renamed or forgotten,
// or if its data has a newer format.
func (w *Watch) look(ctx context.Context) (data, error) {
	d, err := look(ctx, w.client, w.p.Gateway, w.p.NowMicros.Now())
	if err != nil || d.moving == "" && !redisdb.Newer(d.format) {
		return d, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.moving != "" {
		w.version = unfit
		return d, redisdb.LeavingError(w.p.Gateway, d.moving)
	}
	w.newer = d.format
	w.stop()
	return d, w.refusal()
}

// refusal returns the error for data of a newer format. The caller holds w.mu.
func (w *Watch) refusal() error { return redisdb.NewerError(w.p.Gateway, w.newer) }

// Newer returns an error if the data has a newer format than this program knows, or nil.
func (w *Watch) Newer() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.newer == "" {
		return nil
	}
	return w.refusal()
}

// write records what was found. If another process was faster, the next look shows it.
func (w *Watch) write(ctx context.Context, found finding, d data, lacking doubt) error {
	switch found {
	case fresh:
		return w.begin(ctx)
	case silent:
		return w.run(ctx, wakeScript, d.v)
	default:
		return w.run(ctx, doubtScript, d.v, lacking.from, lacking.seen, lacking.line)
	}
}

// begin starts an incarnation in empty data. What was seen before stays in its line, so that a snapshot of that time is
// recognised if it is restored later.
func (w *Watch) begin(ctx context.Context) error {
	before := w.Memory()
	if before.Line != "" {
		w.emptied(before)
	}
	return w.run(ctx, beginScript, strings.TrimSpace(before.Line+" "+newName()), redisdb.Format)
}

func (w *Watch) emptied(before Memory) {
	w.p.Log.Error("Redis knows nothing of what a dispatcher saw in it: it was emptied, or is another one. Jobs accepted before are gone, and jobs done "+
		"before are not known any more", "gateway", w.p.Gateway, "seen", clockTime(before.At),
		"hint", "see what the gateway has charged since before you enqueue a file again")
}

func (w *Watch) run(ctx context.Context, s *redisdb.Script, args ...any) error {
	return s.Run(ctx, w.client, w.keys, append([]any{w.p.NowMicros.Now()}, args...)...).Err()
}

// Felt takes the result of a pulse: the last sign of life in µs, or a negative number if the data is not what was seen.
func (w *Watch) Felt(ctx context.Context, at int64) error {
	if at < 0 {
		return w.Meet(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.memory.At = max(w.memory.At, at)
	return nil
}

// Confirm records the operator's confirmation that Redis was restored and that calls may continue: what the data does
// not know may have been called. It reports whether there was something to confirm: a doubt, or data without a recent
// sign of life. There is not while other dispatchers use data that is not in doubt.
func (w *Watch) Confirm(ctx context.Context) (bool, error) {
	confirmed := false
	for range lookMost {
		d, err := w.look(ctx)
		if err != nil {
			return confirmed, err
		}
		found, lacking := judgeAll(w.Memory(), w.p.Past.others(w.p.Gateway, d.line), d)
		switch found {
		case fresh, calm:
			return confirmed, w.Meet(ctx)
		case silent:
			lacking = doubt{from: d.at, seen: d.at, line: d.line}
			fallthrough
		case missing:
			err = w.run(ctx, doubtScript, d.v, lacking.from, lacking.seen, lacking.line)
		case doubted:
			confirmed = true // even if the reply is lost: the next look shows whether it ran
			err = w.run(ctx, confirmScript, d.v, newName())
		}
		if err != nil {
			return confirmed, err
		}
	}
	return confirmed, w.Meet(ctx)
}

// Memory returns what this process has seen.
func (w *Watch) Memory() Memory {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.memory
}

// Age returns what scripts require of the data before a call (alive.lua): its version, the least sign of life in µs,
// and the marks of confirmed restores.
func (w *Watch) Age() (version string, least int64, marks string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.version, w.memory.At - tolerance, w.marks
}

// Free reports whether calls are permitted, because the data is in order.
func (w *Watch) Free() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isFree && !w.p.Clock.Now().Before(w.quiet)
}

// Doubted reports whether the data lacks something that was seen, and no operator has settled it.
func (w *Watch) Doubted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.doubt.from > 0
}

// Wait waits until calls are permitted. It returns ctx.Err() if ctx ends first.
func (w *Watch) Wait(ctx context.Context) error {
	for !w.Free() {
		w.mu.Lock()
		free, left := w.free, w.quiet.Sub(w.p.Clock.Now())
		if w.isFree {
			free = nil
		}
		w.mu.Unlock()
		var over <-chan time.Time
		if free == nil {
			over = w.p.Clock.After(left)
		}
		select {
		case <-free:
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return ctx.Err()
}

// adopt accepts data in order as seen. After a silence it waits, unless the data is as it was last seen: then it is
// unlikely that anyone has seen more.
func (w *Watch) adopt(d data) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.memory.Line != "" && strangers(w.memory, d) {
		w.emptied(w.memory)
	}
	seen := w.memory
	w.memory = seen.with(d.line, d.at)
	w.version, w.marks, w.newer = d.v, d.marks, ""
	if n := len(d.gaps); n > 0 && (!seen.sees(d.line) || seen.At < d.gaps[n-1].from-tolerance) {
		left := time.Duration(d.gaps[n-1].to-d.now)*time.Microsecond + objectWithin
		w.quiet = w.p.Clock.Now().Add(min(left, objectWithin))
	}
	if w.doubt.from > 0 {
		w.p.Log.Warn("an operator has settled that Redis was restored, or it is the one that was seen again: calls go on", "gateway", w.p.Gateway)
	}
	w.doubt = doubt{}
	w.p.Metrics.set(w.p.Gateway, 0)
	if !w.isFree {
		w.isFree = true
		close(w.free)
	}
}

// hold permits no calls until an operator has settled the doubt.
func (w *Watch) hold(b doubt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doubt = b
	w.p.Metrics.set(w.p.Gateway, 1)
	w.stop()
	now := w.p.Clock.Now()
	if w.said.IsZero() || now.Sub(w.said) >= sayEvery {
		w.said = now
		message, hint := b.words([]string{w.p.Gateway})
		w.p.Log.Error(message, "gateway", w.p.Gateway, "hint", hint)
	}
}

// stop permits no calls until data was adopted. The caller holds w.mu.
func (w *Watch) stop() {
	w.version = unfit
	if w.isFree {
		w.isFree, w.free = false, make(chan struct{})
	}
}

// newName returns a name for an incarnation.
func newName() string { return strings.ToLower(rand.Text()[:10]) }

// Metrics are the metrics of all watches of a process.
type Metrics struct{ doubted *prometheus.GaugeVec }

// NewMetrics registers the metrics, zero from the start for each gateway.
func NewMetrics(reg prometheus.Registerer, gateways []string) *Metrics {
	m := &Metrics{doubted: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "spillway_data_doubted",
		Help: "1 while nothing is called because Redis's data is older than what was seen of it, until run --after-restore."}, []string{"gateway"})}
	reg.MustRegister(m.doubted)
	for _, g := range gateways {
		m.set(g, 0)
	}
	return m
}

// Forget removes a gateway that is no longer served.
func (m *Metrics) Forget(gateway string) { m.doubted.DeleteLabelValues(gateway) }

func (m *Metrics) set(gateway string, v float64) { m.doubted.WithLabelValues(gateway).Set(v) }
