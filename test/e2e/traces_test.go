package e2e

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// payloadCanary is in every payload. No span may hold it.
const payloadCanary = "CARD-4242-CANARY"

// tracing makes the programs of the story send their traces to a collector at once.
func (w *world) tracing(more ...string) *testkit.Collector {
	c := testkit.NewCollector(w.t)
	w.more = append([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_BSP_SCHEDULE_DELAY=50"}, more...)
	return c
}

func tracedJobs(w *world, ids ...string) string {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, `{"id":%q,"payload":{"amount":100,"currency":"EUR","card":%q}}`+"\n", id, payloadCanary)
	}
	return w.file("traced.ndjson", b.String())
}

// TestAJobIsOneTraceFromEnqueueThroughReplayToDone follows a job through three processes: enqueue, run and dlq replay.
func TestAJobIsOneTraceFromEnqueueThroughReplayToDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{Decline: 1}, "    leak: {limits: [100/s]}\n    amount: {field: amount, currency: currency}\n")
	c := w.tracing("TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	run := w.dispatcher()
	w.ok("enqueue", "-g", "stripe", "-f", tracedJobs(w, "inv-1", "inv-2"), "--batch", "nov", "-q")
	w.settled(30 * time.Second)
	w.provider.Set(provider.Config{})
	w.ok("dispatcher", "dlq", "replay", "--id", "inv-1", "--yes", "--why", "the bank is back", "-q")
	w.emptied(t, 30*time.Second, 1)
	run.stop() // sends what is left

	roots := c.Spans("enqueue")
	if len(roots) != 2 || roots[0].Trace == roots[1].Trace {
		t.Fatalf("the jobs' roots: %+v", roots)
	}
	root := roots[0]
	if root.About["spillway.job"] != "inv-1" {
		root = roots[1]
	}
	file := c.Spans("enqueue file")
	if len(file) != 1 || file[0].Trace != "0af7651916cd43dd8448eb211c80319c" || len(root.Links) != 1 || root.Links[0] != file[0].Trace {
		t.Errorf("the file's span %+v, and the job's root has links to %v", file, root.Links)
	}
	var story []string
	byID := map[string]testkit.Span{}
	for _, s := range c.Spans() {
		byID[s.ID] = s
	}
	for _, s := range c.Spans("enqueue", "attempt", "call", "park", "replay") {
		if s.Trace != root.Trace {
			continue
		}
		story = append(story, strings.TrimSpace(fmt.Sprint(s.Name, " ", s.About["spillway.verdict"], s.About["http.response.status_code"], s.About["spillway.outcome"])))
		if above := byID[s.Parent].Name; s.Name != "enqueue" && above != map[string]string{"attempt": "enqueue", "replay": "enqueue", "call": "attempt", "park": "attempt"}[s.Name] {
			t.Errorf("%s is below %q", s.Name, above)
		}
	}
	const want = "enqueue|attempt refused402|call 402|park refused|replay|attempt done200|call 200"
	if got := strings.Join(story, "|"); got != want {
		t.Errorf("the job's trace tells\n%s\nwant\n%s", got, want)
	}
	if !strings.Contains(run.text(), "trace_id="+root.Trace) {
		t.Error("no line of the log names the trace")
	}
	if got := c.Received(); strings.Contains(got, payloadCanary) || strings.Contains(got, canary) {
		t.Error("a payload or a secret is in a span")
	}
}

func TestAnAPICallersTraceLeadsToTheJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, "    leak: {limits: [100/s]}\n")
	c := w.tracing()
	at := w.listening()
	for query, status := range map[string]int{"?q=" + payloadCanary: http.StatusBadRequest, "?on_full=park": http.StatusAccepted} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+at+"/v1/gateways/stripe/jobs"+query,
			strings.NewReader(`{"id":"inv-1","payload":{"card":"`+payloadCanary+`"}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if status == http.StatusAccepted {
			r.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Fatalf("%s: status %d, want %d", query, resp.StatusCode, status)
		}
	}
	w.emptied(t, 30*time.Second, 1)
	w.runs[0].stop()
	request, root, attempt := c.Spans("POST /v1/gateways/{gateway}/jobs"), c.Spans("enqueue"), c.Spans("attempt")
	request = slices.DeleteFunc(request, func(s testkit.Span) bool { return len(s.Links) == 0 })
	if len(request) != 1 || len(root) != 1 || len(attempt) != 1 {
		t.Fatalf("%d requests, %d roots, %d attempts, want one of each: %+v", len(request), len(root), len(attempt), c.Spans())
	}
	if request[0].Trace != "0af7651916cd43dd8448eb211c80319c" || len(request[0].Links) != 1 || request[0].Links[0] != root[0].Trace || root[0].Links[0] != request[0].Trace {
		t.Errorf("the request %+v and the job's root %+v do not lead to each other", request[0], root[0])
	}
	if attempt[0].Trace != root[0].Trace || attempt[0].Parent != root[0].ID {
		t.Errorf("the attempt %+v is not below the root %+v", attempt[0], root[0])
	}
	if strings.Contains(c.Received(), payloadCanary) {
		t.Error("a payload or a query is in a span")
	}
}

// Nothing is traced unless somebody asks for it, and a collector that is away stops nothing.
func TestWithoutACollectorJobsGoOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, "    leak: {limits: [100/s]}\n")
	c := w.tracing("OTEL_SDK_DISABLED=true")
	off := w.dispatcher()
	w.ok("enqueue", "-g", "stripe", "-f", tracedJobs(w, "inv-1"), "-q")
	w.emptied(t, 30*time.Second, 1)
	off.stop()
	if n := c.Requests(); n != 0 || strings.Contains(off.text(), "trace") {
		t.Errorf("disabled, and the collector got %d requests; the log:\n%s", n, off.text())
	}
	w.more = []string{fmt.Sprintf("OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:%d", testkit.FreePort(t)), "OTEL_BSP_SCHEDULE_DELAY=50"}
	away := w.dispatcher()
	w.ok("enqueue", "-g", "stripe", "-f", tracedJobs(w, "inv-2"), "-q")
	w.emptied(t, 30*time.Second, 2)
	away.stop()
	w.more = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}
	if r := w.do("enqueue", "-g", "stripe", "-f", os.DevNull); r.code != 2 || !strings.Contains(r.err, "http/protobuf") {
		t.Errorf("asked for gRPC: exit code %d, %s", r.code, r.err)
	}
}
