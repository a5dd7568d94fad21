package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"spillway/internal/admission"
	"spillway/internal/job"
	"spillway/internal/testkit"
	"spillway/internal/tracing"
)

type noRoom struct{}

func (noRoom) Admit(_ context.Context, _ string, jobs []job.Job, _ admission.Mode) ([]admission.Answer, error) {
	answers := make([]admission.Answer, len(jobs))
	for i := range answers {
		answers[i] = admission.Answer{Outcome: job.Full, Room: &job.Room{}}
	}
	return answers, nil
}

// observedAPI returns an API, its log from level info on, and its metrics.
func observedAPI(t *testing.T, ready error) (*API, *bytes.Buffer, *prometheus.Registry) {
	t.Helper()
	reg, log := prometheus.NewRegistry(), &bytes.Buffer{}
	return New(Config{Guard: NewGuard("s3cret"), Gateways: map[string]Gateway{"stripe": {MaxCost: 9}}, Door: noRoom{},
		Ready:   func(context.Context) error { return ready },
		Metrics: http.NotFoundHandler(), Requests: NewMetrics(reg, Operation{Method: "GET", Path: "/v1/status"}), Log: slog.New(slog.NewTextHandler(log, nil))}), log, reg
}

func send(api *API, method, target, body string) int {
	r := httptest.NewRequest(method, "http://localhost"+target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer s3cret")
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	return w.Code
}

func TestEachRequestHasALineAndIsCounted(t *testing.T) {
	t.Parallel()
	api, log, reg := observedAPI(t, nil)
	if code := send(api, "POST", "/v1/gateways/stripe/jobs?on_full=fail", `{"id":"a","payload":{"card":"CANARY"}}`); code != 429 {
		t.Fatalf("status %d, want 429", code)
	}
	line := log.String()
	for _, want := range []string{"msg=request", "method=POST", "route=/v1/gateways/{gateway}/jobs", "path=/v1/gateways/stripe/jobs",
		"status=429", "took=", "bytes=", "remote=192.0.2.1:1234"} {
		if !strings.Contains(line, want) {
			t.Errorf("the line lacks %q: %s", want, line)
		}
	}
	if strings.Count(line, "\n") != 1 || strings.Contains(line, "CANARY") || strings.Contains(line, "s3cret") {
		t.Errorf("the log holds more than one line, or what it must not: %s", line)
	}
	const want = `spillway_http_requests_total{code="429",method="POST",route="/v1/gateways/{gateway}/jobs"} 1` + "\n"
	if got := shown(t, reg); !strings.Contains(got, want) || !strings.Contains(got, `spillway_http_request_duration_seconds_count{route="/v1/gateways/{gateway}/jobs"} 1`+"\n") {
		t.Errorf("the metrics lack that request:\n%s", got)
	}
	if code := send(api, "POST", "/v1/gateways/stripe/jobs?token=CANARY", `{"id":"a"}`); code != 400 || strings.Contains(log.String(), "CANARY") {
		t.Errorf("status %d, want 400; the log: %s", code, log)
	}
}

// shown returns the metrics as Prometheus reads them.
func shown(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func TestWhatMachinesAskIsLoggedOnlyWhenItFails(t *testing.T) {
	t.Parallel()
	well, log, _ := observedAPI(t, nil)
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		send(well, "GET", path, "")
	}
	if log.Len() > 0 {
		t.Errorf("logged: %s", log)
	}
	ill, log, _ := observedAPI(t, errors.New("Redis is away"))
	if send(ill, "GET", "/readyz", ""); !strings.Contains(log.String(), "route=/readyz") || !strings.Contains(log.String(), "status=503") {
		t.Errorf("a dispatcher that is not ready says: %q", log)
	}
}

// Unknown paths and methods must not make new series in Prometheus.
func TestCallersInventNoLabels(t *testing.T) {
	t.Parallel()
	api, log, reg := observedAPI(t, nil)
	before := strings.Count(shown(t, reg), "\n")
	for _, path := range []string{"/v1/gateways/x1/jobs", "/v1/gateways/x2/jobs", "/v1/gateways/x3/jobs", "/v1/gateways/x4/jobs"} {
		send(api, "BREW"+path[14:15], path, "")
		send(api, "POST", path, "{}")
	}
	send(api, "GET", "/"+strings.Repeat("a", 5000), "")
	if after := strings.Count(shown(t, reg), "\n"); after > before+3 {
		t.Errorf("%d lines of metrics became %d", before, after)
	}
	if len(log.String()) > 9*400+600 {
		t.Errorf("a long path makes a long line: %d bytes in all", log.Len())
	}
}

func TestTheMetricsOfHTTPAreZeroFromTheStart(t *testing.T) {
	t.Parallel()
	_, _, reg := observedAPI(t, nil)
	got := shown(t, reg)
	for _, want := range []string{
		`spillway_http_requests_total{code="202",method="POST",route="/v1/gateways/{gateway}/jobs"} 0`,
		`spillway_http_requests_total{code="503",method="POST",route="/v1/gateways/{gateway}/jobs"} 0`,
		`spillway_http_requests_total{code="200",method="GET",route="/v1/status"} 0`,
		`spillway_http_requests_total{code="200",method="GET",route="/"} 0`,
		`spillway_http_request_duration_seconds_count{route="/readyz"} 0`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// A handler can still flush, and set deadlines of its own, through the writer that counts.
func TestAnObservedAnswerIsStillAConnection(t *testing.T) {
	t.Parallel()
	var flushed error
	api := New(Config{}).observed(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("a"))
		flushed = http.NewResponseController(w).Flush()
	}))
	w := httptest.NewRecorder()
	api.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if flushed != nil || !w.Flushed {
		t.Errorf("flush: %v, it came through: %v", flushed, w.Flushed)
	}
}

// A request without a valid token makes no span, and its traceparent does not decide which traces are kept.
func TestOnlyWhoIsLetInIsTraced(t *testing.T) {
	c := testkit.NewCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	traces, err := tracing.Open(t.Context(), "spillway", os.Getenv, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	api := New(Config{Guard: NewGuard("s3cret"), Traces: traces, Log: slog.New(traces.LogHandler(slog.NewTextHandler(&log, nil)))})
	for i, token := range []string{"", "wrong", "s3cret"} {
		visit(api, "/v1/nothing", func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("traceparent", fmt.Sprintf("00-0af7651916cd43dd8448eb211c8031%02d-b7ad6b7169203331-01", i))
		})
	}
	if err := traces.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	const in = "0af7651916cd43dd8448eb211c803102"
	if spans := c.Spans(); len(spans) != 1 || spans[0].Trace != in || spans[0].Parent != "b7ad6b7169203331" || spans[0].About["http.response.status_code"] != "404" {
		t.Errorf("%+v", spans)
	}
	if lines := strings.Split(log.String(), "\n"); strings.Count(log.String(), "trace_id=") != 1 || !strings.Contains(lines[2], "trace_id="+in) {
		t.Errorf("the log names another trace: %s", log.String())
	}
}
