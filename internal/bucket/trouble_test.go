package bucket

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/job"
)

// meets makes a call of a job meet trouble that took 20 ms.
func (f *failing) meets(kind job.Trouble, id string, outages, spent int) job.Fallout {
	f.t.Helper()
	return f.says(f.p, job.Failure{Kind: kind, Job: id, Outages: outages, Spent: spent, Written: true, Took: 20 * time.Millisecond, Why: "HTTP 403"})
}

// heals ends a hold: it passes, and the call that is sent ahead succeeds. first says that its job was never called before.
func (f *failing) heals(held time.Duration, first bool) {
	f.t.Helper()
	f.pass(held)
	f.p.Succeeded(f.ctx, f.probe(), first)
	if s := f.look(); s != (Standing{}) {
		f.t.Fatalf("still %+v", s)
	}
}

// A job whose own call caused a hold steps aside. If it meets trouble again after others succeeded, twice, the trouble is its own.
func TestTroubleThatComesAgainIsTheJobsOwn(t *testing.T) {
	for _, kind := range []job.Trouble{job.Deny, job.Wait} {
		t.Run(string(kind), func(t *testing.T) {
			f := failures(t)
			for outages := range 2 {
				out := f.meets(kind, "bad", outages, 0)
				if !out.Opened || out.Own || out.Outage.IsZero() || out.Held == 0 {
					t.Fatalf("outage %d: %+v, want a hold", outages+1, out)
				}
				f.heals(out.Held, true)
				f.pass(time.Minute * 11)
			}
			for spent := range 6 {
				if out := f.meets(kind, "bad", 2, spent); out.Opened || !out.Own || out.Held != 0 || !out.Outage.IsZero() {
					t.Errorf("after %d attempts: %+v, want the job's own trouble", spent, out)
				}
			}
			if s := f.look(); s != (Standing{}) {
				t.Errorf("%+v: other jobs must not wait for it", s)
			}
		})
	}
}

// While the gateway is held, the trouble of any job is the gateway's. Only failures of a job that met two outages count, so that it comes to an end.
func TestWhatIsForgivenWhileTheGatewayIsHeld(t *testing.T) {
	for _, tc := range []struct {
		kind    job.Trouble
		outages int
		own     bool
	}{{job.Deny, 0, false}, {job.Deny, 2, false}, {job.Wait, 2, false}, {job.Fail, 1, false}, {job.Fail, 2, true}} {
		t.Run(fmt.Sprint(tc.kind, tc.outages), func(t *testing.T) {
			f := failures(t)
			began := f.meets(job.Deny, "first", 0, 0).Outage
			for _, ahead := range []bool{false, true} {
				what := job.Failure{Kind: tc.kind, Job: "other", Outages: tc.outages, Slot: 1, Written: true, Why: "x"}
				if ahead {
					f.pass(time.Second)
					what.Slot = f.probe().At
				}
				if out := f.says(f.p, what); out.Own != tc.own || out.Outage.Equal(began) == tc.own {
					t.Errorf("sent ahead %v: %+v", ahead, out)
				}
			}
		})
	}
}

// A job that has failed before opens nothing, however often it fails and however many such jobs there are. It is not part of the share either.
func TestJobsThatFailedBeforeOpenNothing(t *testing.T) {
	f := failures(t)
	for i := range 200 {
		f.pass(10 * time.Millisecond)
		f.closed(f.meets(job.Fail, fmt.Sprint("bad", i), 0, 1))
		f.ends(1)
		if i%10 == 0 { // one call in eleven succeeds
			f.answers()
			f.ends(1)
		}
	}
	for range 19 {
		f.closed(f.row(1))
		f.ends(1)
	}
	if out := f.row(1); !out.Opened {
		t.Errorf("%+v: twenty jobs that never failed", out)
	}
}

// If a job that was never called succeeds as soon as it is sent ahead, the next opening takes four times as many failures in a row, and so does the one after that.
func TestACircuitThatOpenedInVainIsHarderToOpen(t *testing.T) {
	f := failures(t)
	for _, needed := range []int{5, 20, 80, 320, 320} {
		f.closed(f.row(needed - 1))
		out := f.row(1)
		if !out.Opened {
			t.Fatalf("not open after %d in a row", needed)
		}
		f.heals(out.Held, true)
		f.pass(5 * time.Second)
	}
	f.pass(10 * time.Minute)
	f.closed(f.row(4))
	if out := f.row(1); !out.Opened {
		t.Errorf("%+v: after ten minutes it is forgotten", out)
	}
}

// The circuit did not open in vain if several calls sent ahead failed, or if the outage ends with a job that had failed, or if connections were refused.
func TestAnOutageDoesNotMakeTheCircuitHarderToOpen(t *testing.T) {
	refused := func(f *failing) (last job.Fallout) {
		for i := range 5 {
			last = f.says(f.p, job.Failure{Job: fmt.Sprint("refused", i), Why: "connection refused"})
		}
		return last
	}
	row := func(f *failing) job.Fallout { return f.row(5) }
	for name, tc := range map[string]struct {
		open   func(f *failing) job.Fallout
		failed int
		first  bool
	}{"long": {row, 3, true}, "transient": {row, 0, false}, "refused": {refused, 0, true}} {
		t.Run(name, func(t *testing.T) {
			f := failures(t)
			out := tc.open(f)
			for i := range tc.failed {
				f.pass(out.Held)
				out = f.says(f.p, job.Failure{Job: fmt.Sprint("ahead", i), Slot: f.probe().At, Written: true})
			}
			f.heals(out.Held, tc.first)
			f.pass(10 * time.Second)
			f.closed(f.row(4))
			if out := f.row(1); !out.Opened {
				t.Errorf("%+v: five in a row open it as before", out)
			}
		})
	}
}

// However hard it became to open, refused connections open the circuit at once: they say nothing about jobs.
func TestRefusedConnectionsOpenTheCircuitAtAnyTime(t *testing.T) {
	f := failures(t)
	f.heals(f.row(5).Held, true)
	f.pass(5 * time.Second)
	for i := range 4 {
		f.closed(f.says(f.p, job.Failure{Job: fmt.Sprint("refused", i), Why: "connection refused"}))
	}
	if out := f.says(f.p, job.Failure{Job: "refused", Why: "connection refused"}); !out.Opened {
		t.Errorf("%+v", out)
	}
}

// If jobs are known to be bad, several are sent ahead one after the other. The first good one lets all others follow.
func TestSeveralAreSentAheadWhereJobsAreBad(t *testing.T) {
	f := failures(t)
	f.meets(job.Fail, "bad", 0, 1)
	f.closed(f.row(19)) // where jobs are bad, five in a row say little
	out := f.row(1)
	for round := range 2 {
		f.pass(out.Held)
		for i := range 7 {
			if out = f.says(f.p, job.Failure{Job: fmt.Sprint("ahead", round, i), Slot: f.probe().At, Written: true}); out.Held != 0 || out.Outage.IsZero() {
				t.Fatalf("call %d of round %d: %+v, want the next one to go at once", i, round, out)
			}
		}
		out = f.says(f.p, job.Failure{Job: fmt.Sprint("last", round), Slot: f.probe().At, Written: true})
		if out.Held == 0 {
			t.Fatalf("round %d: %+v, want a hold after eight", round, out)
		}
	}
	f.pass(out.Held)
	for i := range 2 {
		f.says(f.p, job.Failure{Job: fmt.Sprint("bad", i), Slot: f.probe().At, Written: true})
	}
	f.heals(0, true)
	f.expect(f.reserve(f.p, wish{want: 8, cost: 1}), stateOK, 8)
}

// A 500 may be about this one request. So a few others go ahead at once, even if no job is known to be bad. Any other failure is the gateway's.
func TestSomeAreSentAheadAfterA500(t *testing.T) {
	for why, want := range map[string]int{"HTTP 500": 4, "HTTP 503": 1, "no answer": 1} {
		t.Run(why, func(t *testing.T) {
			f := failures(t)
			f.pass(f.row(5).Held)
			sent := 1
			for ; f.says(f.p, job.Failure{Job: fmt.Sprint("ahead", sent), Slot: f.probe().At, Written: true, Why: why}).Held == 0; sent++ {
			}
			if sent != want {
				t.Errorf("%d were sent ahead, want %d", sent, want)
			}
		})
	}
}

// A job that was forgiven an outage does not count while others wait that were never called. Alone, it does.
func TestJobsThatMetAnOutageCountOnlyAmongThemselves(t *testing.T) {
	for _, others := range []int{0, 1} {
		t.Run(fmt.Sprint(others), func(t *testing.T) {
			f := failures(t)
			if others > 0 {
				fill(t, f.client, f.keys.Pending(), others)
			}
			var out job.Fallout
			for i := range 5 {
				out = f.meets(job.Fail, fmt.Sprint("met", i), 1, 0)
			}
			if out.Opened != (others == 0) {
				t.Errorf("with %d others: %+v", others, out)
			}
		})
	}
}

// One refused connection is enough for a round: it says nothing about its job.
func TestOneIsSentAheadWhereNobodyAnswers(t *testing.T) {
	f := failures(t)
	f.meets(job.Fail, "bad", 0, 1)
	f.pass(f.row(20).Held)
	if out := f.says(f.p, job.Failure{Job: "ahead", Slot: f.probe().At, Why: "connection refused"}); out.Held == 0 {
		t.Errorf("%+v, want a hold", out)
	}
}

// A gateway that does not let a job in is called again within the circuit's longest back-off, however long that lasts.
func TestAGatewayThatLetsNobodyInIsAskedAgain(t *testing.T) {
	f := failures(t)
	out := f.meets(job.Deny, "first", 0, 0)
	for i, want := range []time.Duration{1, 2, 4, 5, 5, 5} {
		if out.Held != want*time.Second || f.look().Reason != "HTTP 403" {
			t.Fatalf("hold %d: %v, %+v, want %d s", i, out.Held, f.look(), want)
		}
		f.pass(out.Held)
		out = f.says(f.p, job.Failure{Kind: job.Deny, Job: fmt.Sprint("ahead", i), Slot: f.probe().At, Written: true, Why: "HTTP 403"})
	}
}

// A gateway that fails before it has let anybody in again is down, whatever the hold began with: people have to be told.
func TestAHoldWhoseProbesFailIsAnOpenCircuit(t *testing.T) {
	for _, kind := range []job.Trouble{job.Deny, job.Wait} {
		t.Run(string(kind), func(t *testing.T) {
			f := failures(t)
			out := f.meets(kind, "first", 0, 0)
			if s := f.look(); s.Circuit {
				t.Fatalf("%+v before any failure", s)
			}
			for i, want := range []string{"circuit open: HTTP 503 from the call sent ahead", "circuit open: HTTP 503 from the call sent ahead, too"} {
				f.pass(out.Held)
				out = f.says(f.p, job.Failure{Job: fmt.Sprint("ahead", i), Slot: f.probe().At, Written: true})
				if s := f.look(); !s.Circuit || !s.Endless || s.Denied || s.Reason != want {
					t.Errorf("%+v, want %s", s, want)
				}
			}
			f.pass(out.Held)
			out = f.says(f.p, job.Failure{Kind: job.Deny, Job: "denied", Slot: f.probe().At, Written: true, Why: "HTTP 401"})
			if s := f.look(); !s.Denied || s.Reason != "HTTP 401" {
				t.Errorf("%+v, want one that is not let in", s)
			}
			f.heals(out.Held, true)
		})
	}
}

// If single jobs were not let in and others were, one more such job causes no hold. Several in a row do.
func TestJobsThatAreNotLetInHoldNobodyForLong(t *testing.T) {
	f := failures(t)
	f.heals(f.meets(job.Deny, "bad", 0, 0).Held, true)
	for i := range 12 {
		f.pass(time.Second)
		f.closed(f.meets(job.Deny, fmt.Sprint("other", i), 0, 0))
		f.ends(5)
		f.answers()
	}
	f.pass(10 * time.Second)
	for i := range 3 {
		f.closed(f.meets(job.Deny, fmt.Sprint("row", i), 0, 0))
	}
	if out := f.meets(job.Deny, "row4", 0, 0); !out.Opened {
		t.Errorf("%+v: four in a row, and no other job was let in", out)
	}
}

// A wait is believed at once, until a job is found that is told to wait for its own reasons. Then it takes several jobs, or a quarter of all calls.
func TestAWaitIsBelievedUntilAJobHadItForItself(t *testing.T) {
	f := failures(t)
	for i := range 5 {
		out := f.meets(job.Wait, fmt.Sprint("limited", i), 0, 0)
		if !out.Opened {
			t.Fatalf("wait %d: %+v", i, out)
		}
		f.heals(out.Held, true)
		f.pass(40 * time.Second)
	}
	f.meets(job.Wait, "bad", 2, 0)
	for i := range 8 { // one call in ten
		f.pass(time.Second)
		f.closed(f.meets(job.Wait, fmt.Sprint("other", i), 0, 0))
		f.answers()
		f.ends(10)
	}
	f.pass(10 * time.Second)
	opened := false
	for i := range 20 { // every second call
		f.pass(100 * time.Millisecond)
		f.ends(2)
		f.answers()
		opened = opened || f.meets(job.Wait, fmt.Sprint("half", i), 0, 0).Opened
	}
	if !opened {
		t.Error("every second call is told to wait, and the gateway is called as before")
	}
}
