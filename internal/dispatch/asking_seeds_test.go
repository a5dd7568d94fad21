package dispatch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/double"
	"spillway/internal/testkit"
)

// doubts is one run: the events that put outcomes in doubt, and how the bank tells outcomes.
type doubts struct {
	seed uint64
	teller
	lag       time.Duration
	processes int
	jobs      int
	fates     []string
	deaths    []time.Duration
	outage    spell // of the bank, payments and look-ups; none where it has no length
}

func (d doubts) String() string {
	return fmt.Sprintf("seed %d: %d jobs, %d processes, %s, keys %v, saved 500s %v, lag %s, deaths at %v, outage from %s to %s\n  %s", d.seed, d.jobs, d.processes, d.how, d.keys, d.saves, d.lag, d.deaths,
		d.outage.from, d.outage.to, strings.Join(d.fates, "\n  "))
}

// drawDoubts makes the run of a seed. A payment is made within a minute of its call, and the bank finds it within a minute after that: a payment that is not found three minutes
// after the call was not made.
func drawDoubts(seed uint64) doubts {
	rng := rand.New(rand.NewPCG(seed, 18))
	d := doubts{seed: seed, processes: 1 + rng.IntN(3), jobs: 60 + rng.IntN(80), lag: one(rng, 0, 5*time.Second, 30*time.Second, time.Minute)}
	d.teller = teller{perSecond: one(rng, 10, 20, 40), keys: rng.IntN(3) == 0, saves: rng.IntN(2) == 0, timeout: 5 * time.Second, how: one(rng, "search", "search", "list"), after: 3 * time.Minute}
	share := func(fate string, most int, more string) {
		if n := rng.IntN(most + 1); n > 0 {
			d.fates = append(d.fates, fmt.Sprintf("%s=share=%d%%,seed=%d%s", fate, n, seed, more))
		}
	}
	within := func(most time.Duration) string { // to the double, 0s is no bound at all
		return fmt.Sprint(max(time.Duration(1+rng.Int64N(int64(most))).Round(time.Second), time.Second))
	}
	share("cut-after-charge", 15, "")
	share("cut-before-charge", 10, "")
	share("not-found-yet", 8, ",delay="+within(time.Minute-time.Second))
	share("slow", 6, ",delay="+within(55*time.Second))
	share("5xx", 5, ",charge=false")
	share("5xx", 5, ",charge=true")
	share("decline", 5, "")
	share("2xx-later", 8, ",delay="+within(10*time.Minute)+",final="+one(rng, "paid", "failed"))
	share("unavailable", 3, "")
	calls := func() string { return fmt.Sprintf(",calls=%d", 1+rng.IntN(3)) }
	share("look-absent", 30, fmt.Sprintf(",calls=%d,delay=%s", 1+rng.IntN(5), within(time.Minute-time.Second)))
	share("look-another", 20, calls())
	share("look-5xx", 15, calls())
	share("look-429", 5, "")
	share("look-down", 8, calls())
	share("look-cut", 15, calls())
	share("look-truncated", 15, calls())
	share("look-slow", 8, calls()+",delay="+within(20*time.Second))
	for range rng.IntN(4) {
		d.deaths = append(d.deaths, time.Duration(1000+rng.IntN(90_000))*time.Millisecond)
	}
	slices.Sort(d.deaths)
	if rng.IntN(3) == 0 {
		d.outage.from = time.Duration(1000+rng.IntN(20_000)) * time.Millisecond
		d.outage.to = d.outage.from + time.Duration(1000+rng.IntN(60_000))*time.Millisecond
	}
	return d
}

// play runs it with the program, or a mutant of it, and returns what is wrong.
func (d doubts) play(t *testing.T, m mutant) (wrong []string) {
	t.Helper()
	openMutant(t, d.table(t), double.Options{Service: 20 * time.Millisecond, Lag: d.lag}, d.file(), m, func(s *shop) {
		s.arm(d.fates...)
		for range d.processes {
			s.hire()
		}
		ids := s.bill(0, d.jobs/2)
		s.upset(d)
		ids = append(ids, s.bill(d.jobs/2, d.jobs-d.jobs/2)...)
		s.settled(3 * 24 * time.Hour)
		booked := s.bookings()
		for _, id := range ids {
			if fault := s.untrue(s.record(id), booked[id]); fault != "" {
				wrong = append(wrong, fault+s.story(id))
			}
		}
		if fault := s.overrun(); fault != "" {
			wrong = append(wrong, fault)
		}
		if fault := s.shares(d.perSecond); fault != "" {
			wrong = append(wrong, fault)
		}
	})
	return wrong
}

// upset kills processes, replaces each three seconds later, and makes the bank unavailable for a while.
func (s *shop) upset(d doubts) {
	type act struct {
		at time.Duration
		do func()
	}
	var acts []act
	for _, at := range d.deaths {
		acts = append(acts, act{at, func() { s.all[len(s.all)-1].dead.Store(true) }}, act{at + 3*time.Second, func() { s.hire() }})
	}
	if d.outage.to > 0 {
		acts = append(acts, act{d.outage.from, func() { s.double.Disarm(); s.arm("unavailable=job=*,calls=all", "look-down=job=*,calls=all") }},
			act{d.outage.to, func() { s.double.Disarm(); s.arm(d.fates...) }})
	}
	slices.SortStableFunc(acts, func(a, b act) int { return int(a.at - b.at) })
	for _, a := range acts {
		s.wait(a.at)
		a.do()
	}
}

// overrun describes a call or look-up that the bank refused above the limit; empty: none.
func (s *shop) overrun() string {
	for _, c := range s.double.Calls() {
		if c.Status == 429 && c.Fate == "" {
			return fmt.Sprintf("above the limit, %s after the beginning: %s %s of %s", c.At.Sub(s.began), c.Method, c.Path, c.Job)
		}
	}
	return ""
}

// Whatever puts outcomes in doubt, and however the bank tells them, each verdict agrees with the ledger, no job is charged twice, and no outcome that the bank can tell is
// left to a person. Calls and look-ups together keep the limit, and look-ups keep their share.
func TestWhatTheGatewayCanTellIsSettledAsItSays(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testkit.Often(8, 500)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			d := drawDoubts(seed)
			if wrong := d.play(t, nil); len(wrong) > 0 {
				t.Errorf("%d wrong:\n%s\n%v", len(wrong), strings.Join(shortened(wrong), "\n"), d)
			}
		})
	}
}
