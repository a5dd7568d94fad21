package bucket

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// A call does not go out late where a window does not have its permit: that window would count it too early.
func TestALateCallWaitsForEachWindowToCountIt(t *testing.T) {
	t.Parallel()
	limits := []job.Limit{{N: 100, Window: time.Second}, {N: 1000, Window: 10 * time.Second}, {N: 1_000_000, Window: time.Hour}}
	for without := range len(limits) + 1 { // 0: each window has it
		for _, ahead := range []bool{false, true} {
			t.Run(fmt.Sprint("window ", without, " has no permit, told ahead ", ahead), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, testkit.Client(t), 7)
				p := w.pacer(PacerConfig{Limits: limits})
				s := w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}).slots[0]
				late := p.Due(s).Add(20 * time.Millisecond)
				if without > 0 && w.client.Del(t.Context(), w.keys.PaceWindow(without)).Val() != 1 {
					t.Fatal("the window is empty")
				}
				if ahead {
					calls := []lateCall{{p.plan.Load(), s, late.UnixMicro(), w.Now()}}
					p.late.begin(calls)
					p.announceAhead(calls)
				}
				w.now = late.UnixMicro()
				if got, want := p.TooLate(s, late), without > 0; got != want {
					t.Errorf("too late is %v, want %v", got, want)
				}
			})
		}
	}
}

// An announcement allows for the time that Redis's answers take, and a second one for four times that: what is allowed beyond the call's own lateness is lost to
// the limit.
func TestAnAnnouncementAllowsForWhatAnswersTake(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t), 7)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}})
	s := w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}).slots[0]
	w.now = s.At + 10_000
	const answer = 20 * time.Millisecond
	for _, most := range []time.Duration{answer, 4 * answer} {
		for range 100 {
			p.late.answered(answer)
		}
		now := p.bounds.notAfter(p.local(w.Now()))
		if !p.announceAll(&announcement{plan: p.plan.Load(), slots: []Slot{s}}) {
			t.Fatal("Redis did not hear of it")
		}
		allowed := time.Duration(p.late.edge(s)-now-p.plan.Load().epsilon) * time.Microsecond
		if allowed < most-most/20 || allowed > most+most/20 {
			t.Errorf("%v are allowed for an answer, want about %v", allowed, most)
		}
	}
}

// A slot is announced ahead where its job is usually ready too late, not where it is now and then.
func TestWhatIsSeldomLateIsNotAnnouncedAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t), 7)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}})
	slots := w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}).slots
	for usual, want := range map[float64]int{1000: 0, 60_000: 1} {
		p.pace = readiness{mean: usual, deviation: 20_000}
		if got := len(p.ahead(slots)); got != want {
			t.Errorf("ready after %v us on average: %d are announced, want %d", usual, got, want)
		}
		p.late.forget(slots...)
	}
}

// A call is written later than Redis was told ahead, before its answer is there: at whichever of the two moments Redis counts it, it comes to count it as
// late as it was.
func TestACallWhoseAnnouncementIsUnansweredIsReportedAtBothMoments(t *testing.T) {
	t.Parallel()
	for _, heard := range []bool{false, true} {
		for _, answered := range []bool{false, true} {
			t.Run(fmt.Sprint("heard ", heard, ", failed ", answered), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, testkit.Client(t), 7)
				p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}})
				p.done = true // what runs in the background runs at once
				s := w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}).slots[0]
				calls := []lateCall{{p.plan.Load(), s, s.At + 30_000, w.Now()}}
				p.late.begin(calls)
				if heard {
					if lost, err := p.reportOnce(calls, answerWithin); lost > 0 || err != nil {
						t.Fatal(lost, err)
					}
				}
				if answered {
					p.late.end(calls, false)
				}
				w.now = s.At + 100_000
				p.Written(s, w.Now())
				wrote := p.bounds.notAfter(p.local(w.Now()))
				if got, want := fmt.Sprint(p.pairs(t, 1)), fmt.Sprintf("[%d 1]", wrote); got != want {
					t.Errorf("Redis counts %s, want %s", got, want)
				}
				if len(p.late.told) != 0 {
					t.Errorf("%d slots are remembered", len(p.late.told))
				}
			})
		}
	}
}
