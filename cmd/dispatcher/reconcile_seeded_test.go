package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway/internal/job"
	"spillway/internal/reconcile"
)

// There are fifty differences of each kind among jobs that agree, in a random order with a fixed seed. The command finds these and no others. It
// resolves the parked jobs that the report makes clear.
func TestReconcileFindsEachOfManyDifferences(t *testing.T) {
	t.Parallel()
	const each = 50
	r := newRig(t)
	r.lookups()
	r.served()
	rng := rand.New(rand.NewPCG(18, 5))
	want := map[reconcile.Kind]map[string]bool{}
	var lines []string
	line := func(id string, minor int, currency, status, reference string) {
		lines = append(lines, fmt.Sprintf("%s;%d,%02d;%s;%s;%s", id, minor/100, minor%100, currency, status, reference))
	}
	differs := func(kind reconcile.Kind, n, minor int) job.Job {
		id := fmt.Sprintf("%s-%d", kind, n)
		if want[kind] == nil {
			want[kind] = map[string]bool{}
		}
		want[kind][id] = true
		return charge(id, fmt.Sprint(minor), "b1")
	}
	done := func(j job.Job, reference string) string {
		r.accept(r.manual(r.one), job.Enqueued, j)
		r.succeed(r.one, reference)
		return j.ID
	}
	settles, pending := 0, 0
	for n := range each {
		minor := 1 + rng.IntN(100_000)
		agrees := done(charge(fmt.Sprint("agrees-", n), fmt.Sprint(minor), "b1"), fmt.Sprint("pi_", n))
		line(agrees, minor, "EUR", "paid", fmt.Sprint("pi_", n))
		twice := done(differs(reconcile.ChargedTwice, n, minor), "")
		line(twice, minor, "EUR", "paid", "pi_a")
		line(twice, minor, "EUR", "paid", "pi_b")
		done(differs(reconcile.DoneNotCharged, n, minor), "")
		line(done(differs(reconcile.OtherAmount, n, minor), ""), minor+1, "EUR", "paid", "")
		line(done(differs(reconcile.OtherCurrency, n, minor), ""), minor, "GBP", "paid", "")
		line(differs(reconcile.NotOurs, n, minor).ID, minor, "EUR", "paid", "")
		doubt := differs(reconcile.RefusedInDoubt, n, minor)
		r.park(r.one, doubt, job.UnknownOutcome, 0, "timed out")
		line(doubt.ID, minor, "EUR", "failed", "")
		open := differs(reconcile.ChargedNotDone, n, minor)
		switch n % 3 {
		case 0:
			r.park(r.one, open, job.UnknownOutcome, 0, "timed out")
			settles++
		case 1:
			r.park(r.one, open, job.Refused, 402, "HTTP 402")
		default:
			r.pend(open)
			pending++
		}
		line(open.ID, minor, "EUR", "paid", "")
	}
	rng.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	report, path := r.reported("id;gross;currency;status;charge\r\n"+strings.Join(lines, "\r\n")), filepath.Join(t.TempDir(), "differ.ndjson")
	got := r.reconcile(report, "--differences", path, "--resolve", "--yes", "-o", "json")
	var v reconciled
	r.must(json.Unmarshal([]byte(got.out), &v))
	if got.code != 3 || v.Agree.Jobs != each || v.Bad != 0 || v.ByState[string(job.Pending)].Jobs != int64(pending) || v.GoesOn.Jobs != 0 {
		t.Errorf("%d: %s", got.code, got.out)
	}
	text, err := os.ReadFile(path)
	r.must(err)
	found := map[reconcile.Kind]map[string]bool{}
	for text := range strings.Lines(string(text)) {
		var d reconcile.Difference
		r.must(json.Unmarshal([]byte(text), &d))
		if found[d.Kind] == nil {
			found[d.Kind] = map[string]bool{}
		}
		found[d.Kind][d.ID] = true
	}
	for _, kind := range reconcile.Differences() {
		if !maps.Equal(found[kind], want[kind]) || len(want[kind]) != each || v.Differences[kind].Jobs != each {
			t.Errorf("%s: %d found, %d counted, want %d: %v", kind, len(found[kind]), v.Differences[kind].Jobs, each, slices.Sorted(maps.Keys(found[kind]))[:min(5, len(found[kind]))])
		}
	}
	// The report does not resolve pending jobs: look-ups do that.
	if v.Resolve == nil || v.Resolve.Done.Jobs != int64(settles) || v.Resolve.NotDone.Jobs != 0 || r.record(r.one, "charged_not_done-2").State != job.Pending {
		t.Errorf("settled %+v; the pending one is %s", v.Resolve, r.record(r.one, "charged_not_done-2").State)
	}
}
