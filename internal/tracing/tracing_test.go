package tracing

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// to returns a tracer whose spans the collector gets one by one.
func to(t *testing.T, c *testkit.Collector, options ...sdk.TracerProviderOption) *Tracer {
	t.Helper()
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(c.URL+"/v1/traces"))
	if err != nil {
		t.Fatal(err)
	}
	tr := newTracer(append(options, sdk.WithSyncer(exporter))...)
	t.Cleanup(func() { _ = tr.Close(context.Background()) })
	return tr
}

func all(a job.Admittance) func(int) job.Admittance { return func(int) job.Admittance { return a } }

// Three processes that share nothing but the job's id make one trace.
func TestAJobHasOneTraceInEveryProcess(t *testing.T) {
	t.Parallel()
	c := testkit.NewCollector(t)
	j := job.Job{ID: "inv-1", Gateway: "stripe", Batch: "nov"}
	to(t, c).Accepted(t.Context(), []job.Job{j}, all(job.Enqueued), time.Now().Add(-time.Second), time.Now())
	ctx, span := to(t, c).Attempt(t.Context(), "stripe", "inv-1", 1)
	Step(ctx, "call", true, time.Now(), time.Now(), attribute.Int("http.response.status_code", 402))
	Note(ctx, true, attribute.String("spillway.verdict", "refused"))
	span.End()
	to(t, c).Replayed(t.Context(), "stripe", []job.Return{{ID: "inv-1", Generation: 1, Reason: job.Refused}, {ID: "inv-2"}}, []job.Admittance{job.Enqueued, job.Full}, time.Now())

	spans := map[string]testkit.Span{}
	for _, s := range c.Spans() {
		spans[s.Name] = s
	}
	first := spans["enqueue"]
	if len(c.Spans()) != 4 || first.Parent != "" || first.About["spillway.batch"] != "nov" {
		t.Fatalf("spans: %+v", c.Spans())
	}
	for name, parent := range map[string]string{"attempt": first.ID, "call": spans["attempt"].ID, "replay": first.ID} {
		if s := spans[name]; s.Trace != first.Trace || s.Parent != parent {
			t.Errorf("%s is in trace %s below %s, want %s below %s", name, s.Trace, s.Parent, first.Trace, parent)
		}
	}
	if a := spans["attempt"]; !a.Failed || a.About["spillway.verdict"] != "refused" || a.About["spillway.generation"] != "1" || a.About["spillway.job"] != "inv-1" {
		t.Errorf("the attempt: %+v", a)
	}
	if took := first.Ended.Sub(first.Begun); took < time.Second {
		t.Errorf("the job was taken in within %v, want the second that it took", took)
	}
}

func TestOnlyWhatWasTakenInBeginsATrace(t *testing.T) {
	t.Parallel()
	c := testkit.NewCollector(t)
	became := []job.Admittance{job.Enqueued, job.Duplicate, job.ParkedNow, job.Full, ""}
	jobs := make([]job.Job, len(became))
	for i := range jobs {
		jobs[i] = job.Job{ID: "inv-" + string(rune('0'+i)), Gateway: "stripe"}
	}
	tr := to(t, c)
	ctx, run := tr.Begin(t.Context(), "file", trace.SpanKindInternal)
	tr.Accepted(ctx, jobs, func(i int) job.Admittance { return became[i] }, time.Now(), time.Now())
	run.End()
	got := c.Spans("enqueue")
	if len(got) != 2 || got[0].About["spillway.result"] != "enqueued" || got[1].About["spillway.result"] != "parked" || got[0].Trace == got[1].Trace {
		t.Fatalf("spans: %+v", got)
	}
	if file := c.Spans("file")[0]; len(got[0].Links) != 1 || got[0].Links[0] != file.Trace || got[0].Trace == file.Trace {
		t.Errorf("the job's trace %s has links %v, want one of its own with a link to %s", got[0].Trace, got[0].Links, file.Trace)
	}
}

// With a share of traces, a job has all of its spans or none, whichever process makes them.
func TestASampledJobIsSampledWhole(t *testing.T) {
	t.Parallel()
	c := testkit.NewCollector(t)
	half := sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(0.5)))
	in, out := to(t, c, half), to(t, c, half)
	const n = 200
	for i := range n {
		id := "inv-" + strings.Repeat("x", i)
		in.Accepted(t.Context(), []job.Job{{ID: id, Gateway: "g"}}, all(job.Enqueued), time.Now(), time.Now())
		_, span := out.Attempt(t.Context(), "g", id, 1)
		span.End()
	}
	roots := map[string]bool{}
	for _, s := range c.Spans("enqueue") {
		roots[s.Trace] = true
	}
	attempts := c.Spans("attempt")
	if len(roots) < n/4 || len(roots) > n*3/4 || len(attempts) != len(roots) {
		t.Fatalf("of %d jobs %d have a root and %d an attempt, want about half, and as many", n, len(roots), len(attempts))
	}
	for _, a := range attempts {
		if !roots[a.Trace] {
			t.Errorf("trace %s has an attempt and no root", a.Trace)
		}
	}
}

func TestOffThereIsNothing(t *testing.T) {
	t.Parallel()
	for _, env := range []map[string]string{
		{}, {"OTEL_SERVICE_NAME": "x"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
	} {
		if tr, err := Open(t.Context(), "s", func(k string) string { return env[k] }, nil); tr != nil || err != nil {
			t.Errorf("%v: %v, %v", env, tr, err)
		}
	}
	var off *Tracer
	h := slog.NewTextHandler(&bytes.Buffer{}, nil)
	if off.LogHandler(h) != slog.Handler(h) || off.Close(t.Context()) != nil {
		t.Error("a nil tracer does something")
	}
}

// Not parallel: allocations are counted.
func TestOffNothingIsPaid(t *testing.T) {
	var off *Tracer
	jobs, ctx := []job.Job{{ID: "a"}}, t.Context()
	if n := testing.AllocsPerRun(100, func() {
		off.Accepted(ctx, jobs, nil, time.Time{}, time.Time{})
		on, span := off.Attempt(ctx, "g", "a", 1)
		if Traced(on) {
			t.Error("traced")
		}
		span.End()
	}); n != 0 {
		t.Errorf("%v allocations for nothing", n)
	}
}

func TestWhatCanNotBeHadIsAnError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, value, want string }{
		{"OTEL_TRACES_EXPORTER", "zipkin", "OTEL_TRACES_EXPORTER"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "4318"},
		{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "4318"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"},
	} {
		env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", c.name: c.value}
		_, err := Open(t.Context(), "s", func(k string) string { return env[k] }, nil)
		e, ok := errors.AsType[*job.Error](err)
		if !ok || e.Code != job.CodeUsage || !strings.Contains(e.Message+e.Hint, c.want) {
			t.Errorf("%s=%s: %v", c.name, c.value, err)
		}
	}
}

func TestTheLogNamesTheTrace(t *testing.T) {
	t.Parallel()
	tr := to(t, testkit.NewCollector(t))
	var out bytes.Buffer
	log := slog.New(tr.LogHandler(slog.NewTextHandler(&out, nil))).With("gateway", "g")
	ctx, span := tr.Attempt(t.Context(), "g", "a", 1)
	log.InfoContext(ctx, "attempt")
	log.Info("other")
	if lines := strings.Split(out.String(), "\n"); !strings.Contains(lines[0], "trace_id="+span.SpanContext().TraceID().String()) || strings.Contains(lines[1], "trace_id") {
		t.Errorf("%s", out.String())
	}
}

func TestARequestGoesOnItsCallersTrace(t *testing.T) {
	t.Parallel()
	c := testkit.NewCollector(t)
	r := httptest.NewRequest("POST", "/v1/x?secret=1", nil)
	r.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	_, span := to(t, c).Request(r)
	Answered(span, "POST", "/v1/{x}", 202)
	if s := c.Spans()[0]; s.Trace != "0af7651916cd43dd8448eb211c80319c" || s.Parent != "b7ad6b7169203331" || s.Name != "POST /v1/{x}" || s.About["http.response.status_code"] != "202" {
		t.Errorf("%+v", s)
	}
	if strings.Contains(c.Received(), "secret") {
		t.Error("the query is in the span")
	}
}
