package e2e

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
)

const (
	circuitMax = 5 * time.Second // the default
	wave       = 4 * time.Second
	ownRate    = 100 // calls a second
)

// stretch counts the calls of some time.
type stretch struct{ calls, first int }

// watch is what is compared with the promise: the provider's record, and the end of the trouble.
type watch struct {
	calls  []provider.CallLine
	over   time.Time // the end of the trouble
	until  time.Time // the end of the record
	jobs   int
	jitter time.Duration
}

// most returns how many calls the jitter allowance leaves in some time.
func (w watch) most(in time.Duration) float64 {
	return ownRate * in.Seconds() * time.Second.Seconds() / (time.Second + w.jitter).Seconds()
}

// between counts the calls in [from, to).
func (w watch) between(from, to time.Time) (s stretch) {
	at := func(t time.Time) int {
		i, _ := slices.BinarySearchFunc(w.calls, t.UnixMicro(), func(c provider.CallLine, t int64) int { return cmp.Compare(c.At, t) })
		return i
	}
	for _, c := range w.calls[at(from):at(to)] {
		s.calls++
		if c.First {
			s.first++
		}
	}
	return s
}

// waves returns the stretches that begin circuit.max and a second after the end of the trouble, as long as jobs wait for their first call at the end of a
// stretch. Jobs that are so few that they may be in hand do not count.
func (w watch) waves() (list []stretch) {
	for from := w.over.Add(circuitMax + time.Second); !from.Add(wave).After(w.until); from = from.Add(wave) {
		if w.jobs-w.between(time.Time{}, from.Add(wave)).first < ownRate/2 {
			break
		}
		list = append(list, w.between(from, from.Add(wave)))
	}
	return list
}

// reached returns how long after the trouble the first 3 s with 95 % of the allowed calls began; negative if there were none.
func (w watch) reached() time.Duration {
	for after := time.Duration(0); w.over.Add(after).Before(w.until); after += 100 * time.Millisecond {
		from := w.over.Add(after)
		if float64(w.between(from, from.Add(3*time.Second)).calls) >= 0.95*w.most(3*time.Second) {
			return after
		}
	}
	return -1
}

// charged counts the charges in the minute after the trouble.
func (w watch) charged() (n int) {
	for _, c := range w.calls {
		if at := time.UnixMicro(c.At).Sub(w.over); c.Status == http.StatusOK && at >= 0 && at < time.Minute {
			n++
		}
	}
	return n
}

// used returns the rate in some stretches, in % of the limit. firsts returns the share of first calls, in %.
func (w watch) used(list ...stretch) float64 {
	return 100 * float64(sum(list).calls) / (w.most(wave) * float64(len(list)))
}

func firsts(list ...stretch) float64 {
	return 100 * float64(sum(list).first) / float64(max(sum(list).calls, 1))
}

func sum(list []stretch) (s stretch) {
	for _, one := range list {
		s.calls, s.first = s.calls+one.calls, s.first+one.first
	}
	return s
}

// ahead is how many slots may be given out and not yet called at the ends of a stretch: those of 100 ms.
const ahead = ownRate / 10

// kept reports whether some stretches keep the promise.
func (w watch) kept(list ...stretch) bool {
	return w.used(list...) >= 95 && 2*sum(list).first >= sum(list).calls-ahead
}

// faults says what breaks the promise. If strict, each stretch must keep it, and all of them together. A busy machine keeps it roughly: then only all stretches together
// count, and that no job starves. Jobs that starve others leave them a twentieth.
func (w watch) faults(strict bool) (faults []string) {
	list := w.waves()
	if len(list) == 0 {
		return []string{"no job waited any more when the promise begins: this shows nothing"}
	}
	short := slices.DeleteFunc(slices.Clone(list), func(s stretch) bool { return w.kept(s) })
	if strict && (len(short) > 0 || !w.kept(list...)) {
		faults = append(faults, fmt.Sprintf("%d of %d stretches of %v have less than 95 %% of the limit, or less than 50 %% first calls: %v; all together %.1f %% and %.1f %%",
			len(short), len(list), wave, short, w.used(list...), firsts(list...)))
	}
	if w.used(list...) < 40 || firsts(list...) < 45 {
		faults = append(faults, fmt.Sprintf("from %v after the trouble on: %.1f %% of the limit, want 40 at the very least; %.1f %% of the calls were first ones, want 45",
			circuitMax+time.Second, w.used(list...), firsts(list...)))
	}
	return faults
}

// String returns a line of figures.
func (w watch) String() string {
	var b strings.Builder
	reached := "never"
	if r := w.reached(); r >= 0 {
		reached = r.String()
	}
	fmt.Fprintf(&b, "at 95 %% after %s; each %v after that, %% of the limit / %% first calls:", reached, wave)
	for _, s := range w.waves() {
		fmt.Fprintf(&b, " %.0f/%.0f", w.used(s), firsts(s))
	}
	fmt.Fprintf(&b, "; %d charged in its first minute", w.charged())
	return b.String()
}

func TestTheJudgeOfLiveness(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	for _, tc := range []struct {
		name   string
		every  time.Duration // between calls
		again  int           // of ten calls, how many are to jobs that were called before
		silent time.Duration // after the trouble
		loose  bool          // whether it is enough on a busy machine
		strict bool
	}{
		{"all first calls at the limit", 10500 * time.Microsecond, 0, 0, true, true},
		{"half of them again", 10500 * time.Microsecond, 5, 0, true, true},
		{"silent for as long as it may be", 10500 * time.Microsecond, 5, 6 * time.Second, true, true},
		{"silent for longer", 10500 * time.Microsecond, 5, 8 * time.Second, true, false},
		{"silent for much longer", 10500 * time.Microsecond, 5, 16 * time.Second, false, false},
		{"more than half of them again", 10500 * time.Microsecond, 6, 0, false, false},
		{"somewhat slow", 12 * time.Millisecond, 0, 0, true, false},
		{"slow", 30 * time.Millisecond, 0, 0, false, false},
	} {
		w := watch{over: start, until: start.Add(22 * time.Second), jobs: 3000, jitter: 50 * time.Millisecond}
		for i := range 10000 {
			if at := start.Add(time.Duration(i) * tc.every); at.Before(w.until) && at.Sub(start) >= tc.silent {
				w.calls = append(w.calls, provider.CallLine{At: at.UnixMicro(), First: i%10 >= tc.again, Status: http.StatusOK})
			}
		}
		if loose, strict := w.faults(false), w.faults(true); (len(loose) == 0) != tc.loose || (len(strict) == 0) != tc.strict {
			t.Errorf("%s: %q, and strictly %q; %v", tc.name, loose, strict, w)
		}
	}
	if f := (watch{over: start, until: start.Add(time.Minute), jobs: 10, jitter: jitter}).faults(false); len(f) != 1 {
		t.Errorf("with nothing to see: %q", f)
	}
}
