package e2e

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// TestUrgentJobsBehindAMillion posts urgent jobs one by one while many others wait. It measures the time from the start of the request to the arrival of the call's first
// byte at the provider, as the kernel stamps it. A slot is 10 ms.
func TestUrgentJobsBehindAMillion(t *testing.T) {
	t.Parallel()
	waiting, urgent := max(*million, 5000), 100
	if *million > 0 {
		urgent = 1000
	}
	w := newWorld(t, provider.Config{Limits: perSecond100}, "    leak: {limits: [100/s], jitter: 2ms}\n    admission: {burst: 2000000}\n"+
		"    priority: {classes: [urgent, normal, batch], default: normal, floors: {batch: 5%}}\n")
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("batch.ndjson", waiting), "--priority", "batch", "-q")
	api := "http://" + w.listening()
	testkit.Eventually(t, 20*time.Second, "calls at the limit", func() bool { return w.provider.Stats().Calls > 150 })
	posted, in := map[string]time.Time{}, map[string]time.Time{} // the beginning and the end of the request
	for i := range urgent {
		id := fmt.Sprintf("urgent-%04d", i)
		posted[id] = time.Now()
		w.post(api, `{"id":"`+id+`","priority":"urgent"}`)
		in[id] = time.Now()
		w.until(posted[id].Add(time.Duration(37+i%10) * time.Millisecond)) // at every place between two slots
	}
	w.observed(t, "the last call", func() bool { return w.calledAll(posted) })
	waits, behind := make([]time.Duration, 0, urgent), make([]int, 0, urgent) // behind: how many other calls came after the end of the request and before the job's own
	calls := w.provider.Calls()
	for i, c := range calls {
		if at, ok := posted[c.Key]; ok {
			waits = append(waits, time.UnixMicro(c.At).Sub(at))
			first, _ := slices.BinarySearchFunc(calls[:i], in[c.Key].UnixMicro(), func(c provider.CallLine, at int64) int { return cmp.Compare(c.At, at) })
			behind = append(behind, i-first)
		}
	}
	slices.Sort(waits)
	slices.Sort(behind)
	p50, p99 := waits[len(waits)/2], waits[len(waits)*99/100]
	t.Logf("%d urgent jobs behind %d: p50 %v, p99 %v, most %v from the request to the call", len(waits), waiting, p50, p99, waits[len(waits)-1])
	if s := w.provider.Stats(); len(waits) != urgent || s.TooMany > 0 {
		t.Errorf("%d of %d were called, and %d were too many", len(waits), urgent, s.TooMany)
	}
	if half := behind[len(behind)/2]; half > 100 { // of the thousands that wait; a second's slots, however long a busy machine takes for them
		t.Errorf("half of the urgent jobs were called behind %d others and more", half)
	}
}

// post sends one job, a line of NDJSON, to the API.
func (w *world) post(api, line string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, api+"/v1/gateways/stripe/jobs", strings.NewReader(line))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		w.t.Fatalf("%s: %s", line, answer.Status)
	}
}

// calledAll reports whether each of these jobs has been called.
func (w *world) calledAll(jobs map[string]time.Time) bool {
	n := 0
	for _, c := range w.provider.Calls() {
		if _, ok := jobs[c.Key]; ok {
			n++
		}
	}
	return n == len(jobs)
}
