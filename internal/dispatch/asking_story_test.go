package dispatch

import (
	"slices"
	"testing"
	"time"

	"spillway/internal/double"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// At 500/s, one answer in a hundred is lost, half of them before the charge. The gateway has no keys, and its search is a minute behind. With look-ups, no job is left to a
// person. Without, all those whose answers were lost are.
func TestLostAnswersAreSettledByThemselves(t *testing.T) {
	t.Parallel()
	const perSecond, lag = 500, time.Minute
	n := testkit.Often(1000, 20_000)
	for _, how := range []string{"search", ""} {
		t.Run(map[string]string{"search": "asked", "": "not asked"}[how], func(t *testing.T) {
			t.Parallel()
			a := teller{perSecond: perSecond, timeout: 10 * time.Second, how: how, after: lag + 4*time.Second}
			open(t, a.table(t), double.Options{Service: 50 * time.Millisecond, Lag: lag}, a.file(), func(s *shop) {
				s.arm("cut-after-charge=share=0.5%,seed=18", "cut-before-charge=share=0.5%,seed=18")
				s.hire()
				s.hire()
				ids := s.bill(0, n)
				at := s.settled(time.Hour)
				took := time.Since(s.began)
				looks, first := s.asked()
				lost := 0
				for _, c := range s.double.Calls() {
					if c.Status == 0 {
						lost++
					}
				}
				t.Logf("%d jobs, %d answers lost, %d look-ups; the last first call after %s, all at an end after %s; %d left to a person", n, lost, len(looks), slices.Max(first).Round(time.Second),
					took.Round(time.Second), at.Parked[job.UnknownOutcome])
				if lost < n/200 || lost > n/50 {
					t.Errorf("%d of %d answers were lost", lost, n)
				}
				s.keepsTheLimit()
				if how == "" {
					if at.Parked[job.UnknownOutcome] != int64(lost) || len(looks) > 0 {
						t.Errorf("%d are left to a person, want all of the %d", at.Parked[job.UnknownOutcome], lost)
					}
					return
				}
				if most := slices.Max(first) + time.Minute + lag; took > most {
					t.Errorf("all are at an end after %s, want %s", took, most)
				}
				s.trueToTheLedger(ids)
				if fault := s.shares(perSecond); fault != "" {
					t.Error(fault)
				}
			})
		})
	}
}

// trueToTheLedger fails the test if a job's end contradicts the bank's ledger.
func (s *shop) trueToTheLedger(ids []string) {
	s.t.Helper()
	booked, wrong := s.bookings(), 0
	for _, id := range ids {
		if fault := s.untrue(s.record(id), booked[id]); fault != "" {
			if wrong++; wrong < 5 {
				s.t.Error(fault, s.story(id))
			}
		}
	}
	if wrong > 0 {
		s.t.Errorf("%d of %d jobs", wrong, len(ids))
	}
}

// For a while each answer is lost, then the gateway is down for 10 s. While jobs wait that were never called, look-ups get a tenth of the limit, and these jobs the rest.
func TestAnIncidentsLookupsKeepToTheirShare(t *testing.T) {
	t.Parallel()
	const perSecond, lag, down = 100, 10 * time.Second, 10 * time.Second
	doubt, more := testkit.Often(500, 5000), testkit.Often(2500, 20_000)
	a := teller{perSecond: perSecond, timeout: 10 * time.Second, how: "search", after: 30 * time.Second, more: "    circuit: off\n"}
	open(t, a.table(t), double.Options{Service: 50 * time.Millisecond, Lag: lag}, a.file(), func(s *shop) {
		s.arm("cut-after-charge=share=50%,seed=18", "cut-before-charge=job=*")
		s.hire()
		s.hire()
		ids := s.bill(0, doubt)
		lost := func() int { return s.double.Stats().Cut }
		for lost() < doubt {
			<-time.After(100 * time.Millisecond)
		}
		ids = append(ids, s.bill(doubt, more)...)
		s.double.Disarm()
		s.arm("unavailable=job=*,calls=all", "look-down=job=*,calls=all")
		<-time.After(down)
		s.double.Disarm()
		well := time.Since(s.began)
		s.settled(24 * time.Hour)
		looks, first := s.asked()
		from, to := well+5*time.Second, slices.Max(first)
		t.Logf("%d in doubt, %d more jobs waited until %s; %d look-ups in all, %d of them meanwhile, %d first calls; all at an end after %s", doubt, more, to.Round(time.Second), len(looks),
			within(looks, from, to), within(first, from, to), time.Since(s.began).Round(time.Second))
		for at := from; at+10*time.Second < to; at += 5 * time.Second {
			if n := within(first, at, at+10*time.Second); n < 85*perSecond/10 {
				t.Errorf("from %s on: %d calls of new jobs in 10 s, want %d", at, n, 85*perSecond/10)
			}
		}
		if n, least := within(looks, from, to), int((to-from).Seconds())*perSecond/10*8/10; n < least {
			t.Errorf("%d look-ups while jobs waited, want %d: they don't use their share", n, least)
		}
		if fault := s.shares(perSecond); fault != "" {
			t.Error(fault)
		}
		s.keepsTheLimit()
		s.trueToTheLedger(ids)
	})
}
