package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
)

// A thousand jobs of one file wait for the same moment. Their ids sort in another order than the file, and thousands of other jobs already wait when the moment
// comes. The file's jobs are called next, in the file's order. Only calls that are under way together may pass one another.
func TestAFileOfOneMomentIsCalledInItsOrder(t *testing.T) {
	t.Parallel()
	const jobs, backlog = 1000, 5000
	const together = 64 // 16 calls are under way, and a slot that a busy machine misses is a few places later
	w := newWorld(t, provider.Config{Limits: []provider.Limit{{N: 400, Window: time.Second}}}, `    leak: {limits: [400/s], max_in_flight: 16}
    admission: {burst: 10000}
`)
	var file strings.Builder
	place := map[string]int{}
	for i := range jobs {
		id := fmt.Sprintf("inv-%d", i*617%jobs)
		place[id] = i
		fmt.Fprintf(&file, `{"id":%q,"payload":{"amount":100,"currency":"EUR"}}`+"\n", id)
	}
	at := time.Now().Add(8 * time.Second)
	w.ok("enqueue", "-f", w.file("at.ndjson", file.String()), "-g", "stripe", "--at", at.UTC().Format(time.RFC3339Nano))
	var others strings.Builder
	for i := range backlog {
		fmt.Fprintf(&others, `{"id":"other-%d","payload":{"amount":100,"currency":"EUR"}}`+"\n", i)
	}
	w.ok("enqueue", "-f", w.file("backlog.ndjson", others.String()), "-g", "stripe")
	w.dispatcher()
	w.emptied(t, 2*time.Minute, jobs+backlog)
	n, far, before := 0, 0, 0
	for _, c := range w.provider.Calls() {
		if !c.First {
			continue
		}
		if _, ours := place[c.Key]; !ours {
			if n > 0 && n < jobs {
				before++
			}
			continue
		}
		if c.At < at.UnixMicro() {
			t.Errorf("%s was called %v early", c.Key, time.Duration(at.UnixMicro()-c.At)*time.Microsecond)
		}
		if p := place[c.Key]; p < n-together || p > n+together {
			far++
		}
		n++
	}
	if far > jobs/10 { // calls whose thread had no processor for a while; in the order of the ids it would be nearly all
		t.Errorf("%d of %d calls came more than %d places from their line in the file", far, n, together)
	}
	if n != jobs {
		t.Errorf("%d of %d jobs were called", n, jobs)
	}
	if before > together {
		t.Errorf("%d of the others were called before the last job of the file", before)
	}
	w.strict()
}
