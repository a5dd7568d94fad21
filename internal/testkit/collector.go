package testkit

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is an OpenTelemetry span that a Collector received. Ids are in hex; Parent is empty for the root of a trace.
type Span struct {
	Service, Name     string
	Trace, ID, Parent string
	Links             []string // trace ids
	About             map[string]string
	Failed            bool
	Begun, Ended      time.Time
}

// Collector is a receiver of OTLP over HTTP.
type Collector struct {
	// URL is for OTEL_EXPORTER_OTLP_ENDPOINT.
	URL string

	mu       sync.Mutex
	spans    []Span
	received strings.Builder
	requests int
}

// NewCollector starts a collector, which ends with the test.
func NewCollector(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var batch collect.ExportTraceServiceRequest
		if r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" || err != nil || proto.Unmarshal(body, &batch) != nil {
			t.Errorf("the collector got %s %s, %d bytes, %v", r.URL.Path, r.Header.Get("Content-Type"), len(body), err)
			http.Error(w, "no traces", http.StatusBadRequest)
			return
		}
		c.take(body, &batch)
	}))
	t.Cleanup(srv.Close)
	c.URL = srv.URL
	return c
}

func (c *Collector) take(body []byte, batch *collect.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	c.received.Write(body)
	for _, r := range batch.ResourceSpans {
		service := attributes(r.Resource.GetAttributes())["service.name"]
		for _, s := range r.ScopeSpans {
			for _, span := range s.Spans {
				c.spans = append(c.spans, spanOf(service, span))
			}
		}
	}
}

func spanOf(service string, s *traces.Span) Span {
	span := Span{Service: service, Name: s.Name, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
		About: attributes(s.Attributes), Failed: s.GetStatus().GetCode() == traces.Status_STATUS_CODE_ERROR,
		Begun: time.Unix(0, int64(s.StartTimeUnixNano)), Ended: time.Unix(0, int64(s.EndTimeUnixNano))}
	for _, l := range s.Links {
		span.Links = append(span.Links, hex.EncodeToString(l.TraceId))
	}
	return span
}

func attributes(all []*common.KeyValue) map[string]string {
	about := map[string]string{}
	for _, a := range all {
		switch v := a.Value.GetValue().(type) {
		case *common.AnyValue_IntValue:
			about[a.Key] = strconv.FormatInt(v.IntValue, 10)
		default:
			about[a.Key] = a.Value.GetStringValue()
		}
	}
	return about
}

// Spans returns the spans received so far that have one of the names, or all spans if there are no names, in the order of their beginnings.
func (c *Collector) Spans(names ...string) []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []Span
	for _, s := range c.spans {
		if len(names) == 0 || slices.Contains(names, s.Name) {
			found = append(found, s)
		}
	}
	slices.SortStableFunc(found, func(a, b Span) int { return a.Begun.Compare(b.Begun) })
	return found
}

// Received returns all bytes received so far.
func (c *Collector) Received() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.received.String()
}

// Requests returns how many requests were received.
func (c *Collector) Requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}
