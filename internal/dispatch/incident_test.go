package dispatch

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"spillway/internal/clock"
	"spillway/internal/deadletter"
	"spillway/internal/double"
	"spillway/internal/job"
)

// The incident: for 10 s, a gateway saves a 500 under three of ten new keys. Otherwise it works.
const (
	incidentJobs  = 3000
	incidentLimit = 100 // calls a second
	illFrom       = 5 * time.Second
	illTo         = 15 * time.Second
	// wellFrom is when the limit must be fully used again.
	wellFrom = illTo + 6*time.Second
)

// incidentFile is the configuration of a Stripe gateway with the limits of another account.
const incidentFile = "    %s\n    request: {url: \"http://gateway.invalid/v1/payment_intents\", headers: {Authorization: Bearer sk_1}, encoding: form, key_lifetime: 24h}\n    leak: {limits: [100/s]}\n"

// incident runs the incident with two processes until all jobs have settled.
func incident(t *testing.T, file string, mark map[string]string, verdict func(s *shop, ids []string)) {
	t.Helper()
	table, err := double.Load("stripe/v1")
	if err != nil {
		t.Fatal(err)
	}
	limit, err := job.ParseLimit(fmt.Sprintf("%d/s", incidentLimit))
	if err != nil {
		t.Fatal(err)
	}
	table.Limits = []double.Limit{{Limit: &limit, Over: "account", Answer: "429-global-rate"}}
	table.Saved.Mark = mark
	open(t, table, double.Options{Service: 50 * time.Millisecond}, fmt.Sprintf(incidentFile, file), func(s *shop) {
		ids, jobs := make([]string, incidentJobs), make([]job.Job, incidentJobs)
		for i := range ids {
			ids[i] = fmt.Sprintf("inv-%04d", i)
			jobs[i] = job.Job{ID: ids[i], Gateway: s.g.Name, Payload: payload(table, ids[i]), Cost: 1}
		}
		s.hire()
		s.hire()
		for chunk := range slices.Chunk(jobs, 500) {
			s.take(chunk...)
		}
		s.wait(illFrom)
		s.arm("saved-500=share=30%")
		s.wait(illTo)
		s.double.Disarm()
		s.settled(time.Hour)
		s.keepsTheLimit()
		s.used(wellFrom)
		verdict(s, ids)
	})
}

// keepsTheLimit fails the test if the double refused a call above the limit, unless others had used up the limit.
func (s *shop) keepsTheLimit() {
	s.t.Helper()
	for _, c := range s.double.Calls() {
		switch {
		case c.Status != 429:
		case c.Fate == "long-windows":
			return
		case c.Fate == "":
			s.t.Errorf("a call above the limit, %s after the beginning", c.At.Sub(s.began))
			return
		}
	}
}

// used fails the test if, from a moment on and while jobs wait that were never called, less than 95 % of the limit is used, or less than half of the calls are of such jobs.
func (s *shop) used(from time.Duration) {
	s.t.Helper()
	seen, last := map[string]bool{}, time.Duration(0)
	var all, first []time.Duration
	for _, c := range s.double.Calls() {
		at := c.At.Sub(s.began)
		all = append(all, at)
		if !seen[c.Job] {
			seen[c.Job], last = true, at
			first = append(first, at)
		}
	}
	in := func(times []time.Duration, from, to time.Duration) (n int) {
		for _, at := range times {
			if at >= from && at < to {
				n++
			}
		}
		return n
	}
	least, n := used*incidentLimit*stretch.Seconds()-1, 0
	for ; from+stretch <= last; from += step {
		calls, new := in(all, from, from+stretch), in(first, from, from+stretch)
		if n++; float64(calls) < least || float64(new) < least/2 {
			s.t.Errorf("%s to %s: %d calls, %d of them of jobs that were never called, want %.0f and %.0f", from, from+stretch, calls, new, least, least/2)
		}
	}
	s.t.Logf("%d calls, the last job was called first after %s, %d stretches were looked at", len(all), last, n)
	if n == 0 {
		s.t.Error("no job waited so long: nothing was looked at")
	}
}

// Without look-ups, jobs with a saved 500 are called at most twice and end as unknown. After a person has looked them up, each is charged once.
func TestAnIncidentLeavesNothingButUnknowns(t *testing.T) {
	t.Parallel()
	incident(t, "like: stripe/v1\n    lookup: off", map[string]string{"Idempotent-Replayed": "true"}, func(s *shop, ids []string) {
		saved := map[string]int{}
		for _, c := range s.double.Calls() {
			if c.Fate == "saved-500" {
				saved[c.Job]++
			}
		}
		var charged, not []string
		paid := s.charges()
		for _, id := range ids {
			rec := s.record(id)
			switch {
			case saved[id] == 0 && (rec.State != job.Done || paid[id] != 1), saved[id] > 2, saved[id] > 0 && rec.Reason != job.UnknownOutcome:
				s.t.Errorf("%s is %s %s, charged %d times: %s%s", id, rec.State, rec.Reason, paid[id], rec.Error, s.story(id))
			case saved[id] > 0 && paid[id] == 1:
				charged = append(charged, id)
			case saved[id] > 0:
				not = append(not, id)
			}
		}
		s.t.Logf("%d jobs have a saved 500: %d of them were charged", len(saved), len(charged))
		if len(charged) < 50 || len(not) < 50 {
			s.t.Errorf("only %d and %d jobs have a saved 500 with and without a charge", len(charged), len(not))
		}
		s.resolve(charged, not)
		paid = s.charges()
		for _, id := range ids {
			if rec := s.record(id); rec.State != job.Done || paid[id] != 1 {
				s.t.Errorf("resolved, %s is %s %s and charged %d times%s", id, rec.State, rec.Reason, paid[id], s.story(id))
			}
		}
	})
}

// The same without marks and rules: nothing shows that a 500 is a repeated one. Jobs that were never called still get their share of the limit.
func TestAnIncidentWithoutMarksLeavesRoomForNewJobs(t *testing.T) {
	t.Parallel()
	incident(t, "answers: default", nil, func(s *shop, ids []string) {
		for _, id := range ids {
			if fault := s.judged(id); fault != "" {
				s.t.Error(fault, s.story(id))
			}
		}
	})
}

// charges returns how often each job was charged.
func (s *shop) charges() map[string]int {
	n := map[string]int{}
	for _, e := range s.double.Ledger() {
		n[e.Job]++
	}
	return n
}

// resolve settles jobs in doubt like a person who has looked them up, and replays those that were not charged.
func (s *shop) resolve(charged, not []string) {
	s.t.Helper()
	rules, err := Rules(context.Background(), s.v.db.Client, s.g)
	s.must(err)
	clearing := func(ids []string) deadletter.BulkRun {
		return deadletter.BulkRun{Store: Store(s.v.db.Client, s.g), Clock: clock.Real{}, Filter: deadletter.Filter{IDs: ids}}
	}
	done, err := clearing(charged).Done(context.Background(), rules, s.g.Dedupe, "")
	s.must(err)
	again, err := clearing(not).NotDone(context.Background(), Books(s.v.db.Client, s.g), rules)
	s.must(err)
	if done.Taken != len(charged) || again.Taken != len(not) {
		s.t.Errorf("resolved %+v of %d and %+v of %d", done, len(charged), again, len(not))
	}
	s.settled(time.Hour)
}
