package incarnation

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

const beyond = "2" // the format after the one that this program knows

// raise does what a program of a newer format does with the data.
func (w *world) raise() {
	w.t.Helper()
	v := w.c.HGet(w.t.Context(), w.key, "v").Val()
	n, err := raiseScript.Run(w.t.Context(), w.c, []string{w.key}, w.now.Load(), v, beyond).Int()
	if err != nil || n != 1 {
		w.t.Fatalf("raised: %d, %v", n, err)
	}
}

func (w *world) format() string { return w.c.HGet(w.t.Context(), w.key, "format").Val() }

// refuses checks that an error says what was found, what is known and what to do.
func (w *world) refuses(err error) {
	w.t.Helper()
	e, coded := errors.AsType[*job.Error](err)
	if !errors.Is(err, redisdb.ErrNewer) || !coded || e.Code != job.CodeUsage {
		w.t.Fatalf("data of a newer format: %v", err)
	}
	for _, want := range []string{w.gateway, "format " + beyond, "up to " + redisdb.Format} {
		if !strings.Contains(e.Message, want) {
			w.t.Errorf("%q does not say %q", e.Message, want)
		}
	}
	if !strings.Contains(e.Hint, "docs/upgrading.md") {
		w.t.Errorf("the hint is %q", e.Hint)
	}
}

func TestTheFirstDispatcherWritesTheFormat(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	a := w.dispatcher(Memory{})
	if got := w.format(); got != redisdb.Format {
		t.Fatalf("the format is %q", got)
	}
	v := w.snapshot()["v"]
	b := w.dispatcher(Memory{})
	w.live(3, a, b)
	if w.snapshot()["v"] != v {
		t.Error("a second one of the same format has changed the data")
	}
	w.c.Del(t.Context(), w.key) // as FLUSHALL does
	w.live(1, a, b)
	w.free(true, a, b)
	if got := w.format(); got != redisdb.Format {
		t.Errorf("after Redis was emptied the format is %q", got)
	}
}

// Data from before the format had a number is read as it is, and gets the number. A running dispatcher looks once and continues.
func TestAnOlderFormatIsRaised(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	a := w.dispatcher(Memory{})
	w.c.HDel(t.Context(), w.key, "format")
	b := w.dispatcher(Memory{})
	if got := w.format(); got != redisdb.Format {
		t.Errorf("the format is %q", got)
	}
	w.live(1, a, b)
	w.free(true, a, b)
}

// A format number that was written in another notation is the same number.
func TestAFormatIsANumberHoweverItIsWritten(t *testing.T) {
	t.Parallel()
	for text, newer := range map[string]bool{"01": false, " 1": false, "1.0": false, "+1": false, "one": false, "-3": false, "1.5": true, "1e3": true, " 2": true, "99999999999999999999": true} {
		w := newWorld(t, testkit.Client(t))
		a := w.dispatcher(Memory{})
		w.c.HSet(t.Context(), w.key, "format", text)
		err := w.stranger().Meet(t.Context())
		if newer != errors.Is(err, redisdb.ErrNewer) || !newer && err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if got := w.format(); !newer && got != redisdb.Format {
			t.Errorf("%q is %q after somebody has met it", text, got)
		}
		if !newer {
			w.live(1, a)
			w.free(true, a)
		}
		if err := redisdb.CheckFormat(t.Context(), w.c, []string{w.gateway}); newer != errors.Is(err, redisdb.ErrNewer) {
			t.Errorf("%q: a producer is told %v", text, err)
		}
	}
}

// A dispatcher that knows only older formats stops at its next look at the data, and before the next call, whose script checks the version. It continues when a backup of the
// older format is restored.
func TestANewerFormatStopsWhoIsAtWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	a := w.dispatcher(Memory{})
	w.live(3, a)
	old := w.snapshot()
	w.raise()
	version, least, _ := a.Age()
	at, err := beat.Run(t.Context(), w.c, []string{w.key}, w.now.Load(), version, least).Int64()
	if err != nil || at >= 0 {
		t.Fatalf("the version that it knows is still in force: %d, %v", at, err)
	}
	w.refuses(a.Felt(t.Context(), at))
	w.refuses(a.Newer())
	w.free(false, a)
	if version, _, _ := a.Age(); version != unfit {
		t.Errorf("it has the version %q", version)
	}
	if _, err := a.Confirm(t.Context()); !errors.Is(err, redisdb.ErrNewer) {
		t.Errorf("--after-restore: %v", err)
	}
	if got := w.format(); got != beyond {
		t.Errorf("the format is %q", got)
	}
	w.restore(old)
	w.live(1, a)
	w.free(true, a)
	if err := a.Newer(); err != nil {
		t.Error(err)
	}
}

// Two programs with different formats start at once. Whichever writes first, the older one is refused.
func TestTwoFormatsStartAtOnce(t *testing.T) {
	t.Parallel()
	begin := func(w *world, format string) int {
		t.Helper()
		k := redisdb.NewKeys(w.gateway)
		n, err := beginScript.Run(t.Context(), w.c, []string{k.Alive(), k.Pace(), k.Feed(), k.Counters()}, w.now.Load(), "a", format).Int()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	newerFirst := newWorld(t, testkit.Client(t))
	if begin(newerFirst, beyond) != 1 || begin(newerFirst, redisdb.Format) != 0 {
		t.Error("not one of them was the first")
	}
	newerFirst.refuses(newerFirst.stranger().Meet(t.Context()))
	olderFirst := newWorld(t, testkit.Client(t))
	if begin(olderFirst, "0") != 1 {
		t.Error("it was not the first")
	}
	if err := olderFirst.stranger().Meet(t.Context()); err != nil || olderFirst.format() != redisdb.Format {
		t.Errorf("%v; the format is %q", err, olderFirst.format())
	}
}

// stranger returns a dispatcher that has not read the data.
func (w *world) stranger() *Watch {
	return NewWatch(w.c, Params{Gateway: w.gateway, NowMicros: w.now.Load, Clock: w, Metrics: NewMetrics(prometheus.NewRegistry(), nil)})
}

// A producer may not write the key of the data's age. If it comes before any dispatcher, it writes its format into the counters.
func TestAProducersFormatCountsUntilADispatcherComes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	counters := redisdb.NewKeys(w.gateway).Counters()
	w.c.HSet(t.Context(), counters, "format", beyond)
	w.refuses(w.stranger().Meet(t.Context()))
	if n := w.c.Exists(t.Context(), w.key).Val(); n != 0 {
		t.Error("it has begun the data")
	}
	w.c.HSet(t.Context(), counters, "format", redisdb.Format)
	a := w.dispatcher(Memory{})
	w.c.HSet(t.Context(), counters, "format", beyond) // from now on no producer decides
	w.live(20, a)
	w.free(true, a)
}

func TestARenameKeepsTheNewerFormat(t *testing.T) {
	t.Parallel()
	c, ctx := testkit.Client(t), t.Context()
	for _, names := range [][2]string{{beyond, redisdb.Format}, {redisdb.Format, beyond}, {beyond, ""}, {"", beyond}} {
		m := Move{Old: testkit.Gateway(t), New: testkit.Gateway(t), Silence: -time.Hour}
		for name, format := range map[string]string{m.Old: names[0], m.New: names[1]} {
			c.HSet(ctx, redisdb.NewKeys(name).Alive(), "line", name, "at", moment, "v", "5")
			if format != "" {
				c.HSet(ctx, redisdb.NewKeys(name).Alive(), "format", format)
			}
		}
		_, err := m.Leave(ctx, c)
		if err := errors.Join(err, m.Arrive(ctx, c)); err != nil {
			t.Fatal(err)
		}
		if d, err := look(ctx, redis.UniversalClient(c), m.New, 0); err != nil || d.format != beyond {
			t.Errorf("formats %q: %q, %v", names, d.format, err)
		}
	}
}
