package incarnation

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/clock"
	"spillway/internal/redisdb"
)

const (
	// objectWithin is how long nobody calls after a silence: a dispatcher that has seen more than this data knows has so long to say so.
	objectWithin = 3 * time.Second
	// sayEvery is how often the log says that a gateway's data is doubted.
	sayEvery = time.Minute
	// lookMost is how often a look is repeated at once because somebody else was faster; the next pulse looks again.
	lookMost = 5
)

// unfit is a version that no data has: whoever asks with it is told to look.
const unfit = "?"

// Params say whose data is watched.
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

// Watch watches the age of one gateway's data. Until Meet has found it in order, nobody may call. Safe for concurrent use.
type Watch struct {
	p      Params
	client redis.UniversalClient
	keys   []string // alive, pace, feed, counters

	mu      sync.Mutex
	memory  Memory
	version string // of the data that is in order; unfit while it is not known to be
	marks   string
	doubt   doubt
	quiet   time.Time     // nobody calls before
	free    chan struct{} // closes when the data is in order
	isFree  bool
	said    time.Time // when the log last said what is wrong
	newer   string    // the format of the data, where it is newer than this program knows
}

// NewWatch returns a watch that lets nobody call until Meet.
func NewWatch(c redis.UniversalClient, p Params) *Watch {
	k := redisdb.NewKeys(p.Gateway)
	seen, _ := p.Past.Of(p.Gateway)
	return &Watch{p: p, client: c, keys: []string{k.Alive(), k.Pace(), k.Feed(), k.Counters()}, memory: seen, version: unfit,
		free: make(chan struct{})}
}

// Meet looks at the data and compares it with what was seen before. An error means that Redis could not be asked.
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
			w.hold(lacking) // at once, whatever becomes of writing it down
		}
		if err := w.write(ctx, found, d, lacking); err != nil {
			return err
		}
	}
	return nil
}

// look asks the data for its age. Of a gateway that is being renamed or forgotten, or whose data is of a newer format, it is an error, and nobody calls it.
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

// refusal says that the data is of a newer format than this program knows. w.mu is held.
func (w *Watch) refusal() error { return redisdb.NewerError(w.p.Gateway, w.newer) }

// Newer returns an error where the data is of a newer format than this program knows, or nil.
func (w *Watch) Newer() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.newer == "" {
		return nil
	}
	return w.refusal()
}

// write writes down what was found; that somebody else was faster shows at the next look.
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

// begin begins data that is empty. What was seen in it before stays in its line: so a snapshot of that time, put back after all, is known
// for one.
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

// Felt takes in what a pulse found: the last sign of life in µs, or a negative number if the data is not what was seen.
func (w *Watch) Felt(ctx context.Context, at int64) error {
	if at < 0 {
		return w.Meet(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.memory.At = max(w.memory.At, at)
	return nil
}

// Confirm says, for an operator, that Redis was restored and that calls may go on: what the data does not know may have been called. It
// reports whether there was something to confirm: a doubt, or data in which nobody gave a sign of life lately. While other
// dispatchers are at work on data that nobody doubts there is not.
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
			confirmed = true // also if the answer is lost: the next look shows whether it ran
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

// Age returns what the scripts ask of the data before they let anybody call (alive.lua): its version, the least sign of life in µs, and the
// marks of confirmed restores.
func (w *Watch) Age() (version string, least int64, marks string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.version, w.memory.At - tolerance, w.marks
}

// Free says whether calls may go: the data is in order.
func (w *Watch) Free() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isFree && !w.p.Clock.Now().Before(w.quiet)
}

// Doubted says whether something was seen that the data doesn't know, and no operator has settled it.
func (w *Watch) Doubted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.doubt.from > 0
}

// Wait waits until calls may go. It returns ctx.Err() when ctx ends first.
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

// adopt takes data in order for what was seen. After a silence it waits, unless the data is as it was seen last: then nobody is
// likely to have seen more.
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

// hold lets nobody call until an operator has settled the doubt.
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

// stop lets nobody call until data was adopted. w.mu is held.
func (w *Watch) stop() {
	w.version = unfit
	if w.isFree {
		w.isFree, w.free = false, make(chan struct{})
	}
}

// newName names an incarnation.
func newName() string { return strings.ToLower(rand.Text()[:10]) }
