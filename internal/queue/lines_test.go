package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"spillway/internal/job"
)

// line puts n tasks, named name1, name2 and so on, into one of the queue's lines.
func (r *rig) line(key, name string, n int) {
	r.t.Helper()
	for i := 1; i <= n; i++ {
		task := fmt.Sprintf("%s%d~1", name, i)
		r.c.HSet(r.t.Context(), r.keys.Task(task), "msg", "m", "state", "pending")
		r.c.LPush(r.t.Context(), key, task)
	}
}

// pulls returns the ids that one pull brings.
func (r *rig) pulls(n int, ahead bool) string {
	r.t.Helper()
	tasks, err := pull(r.t.Context(), r.c, newTaskKeys(r.gw), wanted{now: 1204_000_000, most: n, ahead: ahead})
	if err != nil {
		r.t.Fatal(err)
	}
	ids := make([]string, len(tasks))
	for i, p := range tasks {
		ids[i] = strings.TrimSuffix(p.id, "~1")
	}
	return strings.Join(ids, " ")
}

// Jobs that were never called get at least every second place, whatever else waits and however few jobs are pulled at once. Retries come before
// replays.
func TestJobsNeverCalledGetHalfOfThePlaces(t *testing.T) {
	t.Parallel()
	const want = "r1 n1 r2 n2 r3 n3 p1 n4 p2 n5 n6 n7"
	for _, step := range []int{1, 2, 3, 5, 12, 20} {
		r := setup(t)
		r.line(r.keys.Pending(), "n", 7)
		r.line(r.keys.Retries(), "r", 3)
		r.line(r.keys.Replays(), "p", 2)
		var got []string
		for len(got) < 12 {
			got = append(got, strings.Fields(r.pulls(step, false))...)
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%d at once: %s, want %s", step, text, want)
		}
		if more := r.pulls(step, false); more != "" {
			t.Errorf("an empty queue gave %s", more)
		}
		if n := r.c.LLen(t.Context(), r.keys.Active()).Val() + r.c.ZCard(t.Context(), r.keys.Lease()).Val(); n != 24 {
			t.Errorf("%d entries of active and lease, want one of each for twelve tasks", n)
		}
	}
}

// Scheduled jobs that are due come before all others that were never called, and take turns with retries.
func TestDueJobsGoBeforeOthersNeverCalled(t *testing.T) {
	t.Parallel()
	for retries, want := range map[int]string{0: "d1 d2 d3 n1 n2 n3 n4", 2: "r1 d1 r2 d2 d3 n1 n2 n3 n4", 6: "r1 d1 r2 d2 r3 d3 r4 n1 r5 n2 r6 n3 n4"} {
		for _, step := range []int{1, 2, 3, 5, 20} {
			r := setup(t)
			r.line(r.keys.Pending(), "n", 4)
			r.line(r.keys.Due(), "d", 3)
			r.line(r.keys.Retries(), "r", retries)
			var got []string
			for more := true; more; {
				ids := strings.Fields(r.pulls(step, false))
				got, more = append(got, ids...), len(ids) > 0
			}
			if text := strings.Join(got, " "); text != want {
				t.Errorf("%d at once: %s, want %s", step, text, want)
			}
		}
	}
}

// If no job waits that was never called, the others get every place.
func TestRetriesAndReplaysHaveEveryPlaceWhereNobodyElseWaits(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.line(r.keys.Retries(), "r", 3)
	r.line(r.keys.Replays(), "p", 2)
	if got := r.pulls(4, false) + " " + r.pulls(1, true); got != "r1 r2 r3 p1 p2" {
		t.Errorf("pulled %s", got)
	}
}

// A probe after a hold is never a job that was called before, unless there is no other.
func TestTheCallSentAheadIsOfAJobNeverCalled(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.line(r.keys.Pending(), "n", 3)
	r.line(r.keys.Retries(), "r", 3)
	got := []string{r.pulls(1, true), r.pulls(1, true), r.pulls(1, false), r.pulls(1, true), r.pulls(1, true)}
	if want := []string{"n1", "n2", "r1", "n3", "r2"}; !slices.Equal(got, want) {
		t.Errorf("pulled %v, want %v", got, want)
	}
}

// Bad jobs may be together at the head of the queue, so after a failed probe the next probe is the last job.
func TestEverySecondCallSentAheadIsOfTheLastJob(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.line(r.keys.Due(), "d", 2)
	r.line(r.keys.Pending(), "n", 2)
	r.line(r.keys.Retries(), "r", 1)
	var got []string
	for probed := range 4 {
		r.c.HSet(t.Context(), r.keys.Hold(), "probed", probed)
		got = append(got, r.pulls(1, true))
	}
	if text := strings.Join(got, " "); text != "d1 n2 d2 n1" {
		t.Errorf("sent ahead: %s", text)
	}
}

// A pull for slots of jobs with costs leaves word of the latest one, and no other pull does.
func TestAPullForCostlySlotsIsNoted(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for i, c := range []struct {
		slots []job.Slot
		want  string
	}{
		{[]job.Slot{{At: 5_000_000}}, ""},
		{[]job.Slot{{At: 5_000_000, Costly: true}, {At: 5_000_100, Costly: true}, {At: 6_000_000}}, "5000100"},
		{[]job.Slot{{At: 5_000_000, Costly: true}}, "5000100"}, // another process was ahead
		{[]job.Slot{{At: 3_000_000, Costly: true}}, "3000000"}, // Redis's clock was set back
	} {
		if _, err := r.srv.src.pull(c.slots); err != nil {
			t.Fatal(err)
		}
		if got := r.c.HGet(t.Context(), r.keys.Hold(), "pulled").Val(); got != c.want {
			t.Errorf("pull %d: the latest slot is %q, want %q", i, got, c.want)
		}
	}
}
