package dispatch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// Thousands of jobs wait when the scheduled time of a file comes. Its jobs are called next, in their order and at the full rate. Only retries are called beside
// them, and get at most every second slot.
func TestTheJobsOfAMomentGoBeforeABacklog(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{3, 1}[:testkit.Often(1, 2)] {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			t.Parallel()
			const moment = 20 * time.Second
			const more = "    circuit: off\n    retry: {first: 16s, max: 16s}\n"
			play(t, processes, momentLimit, more, nil, func(r *trial) {
				r.enqueueFor(r.gw.began.Add(moment), momentFates(momentJobs))
				for range 5 {
					r.enqueue(momentFates(1000))
				}
				r.till(moment + (2*momentJobs/momentLimit+5)*time.Second)
			}, func(t *testing.T, r *trial, _ map[string]job.Reason) { momentCalled(t, r, moment) })
		})
	}
}

const (
	momentLimit = 100
	momentJobs  = 1000
	near        = 64 // jobs that were pulled when the moment came, and places by which calls may pass one another
)

// momentFates returns the fates of n jobs that all fail once, so that retries are always due.
func momentFates(n int) []fate { return slices.Repeat([]fate{once}, n) }

// momentCalled judges the calls from moment until the last of the file's jobs, which were accepted first.
func momentCalled(t *testing.T, r *trial, moment time.Duration) {
	t.Helper()
	place := map[string]int{}
	for i, id := range r.gw.order[:momentJobs] {
		place[id] = i
	}
	n, others, retries := 0, 0, 0
	var last time.Duration
	for _, c := range r.gw.calls {
		p, ours := place[c.job]
		switch {
		case ours && c.first && c.at < moment:
			t.Errorf("%s was called %v early", c.job, moment-c.at)
		case ours && c.first:
			if p < n-near || p > n+near {
				t.Fatalf("call %d of the file is that of its job %d", n, p)
			}
			if n++; n == momentJobs {
				last = c.at
			}
		case c.at < moment || n == momentJobs:
		case c.first:
			others++
		default:
			retries++
		}
	}
	t.Logf("%d jobs called by %v, beside them %d that waited and %d retries", n, last, others, retries)
	if n < momentJobs || others > near || retries < n-near || retries > n+near {
		t.Errorf("%d jobs of the file were called, beside them %d that waited and %d retries", n, others, retries)
	}
	full := time.Duration(n+others+retries) * time.Second / momentLimit
	if took := last - moment; took > full+time.Second {
		t.Errorf("the calls took %v, at the full rate they take %v", took, full)
	}
}
