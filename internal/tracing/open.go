package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"spillway/internal/job"
)

// queued is the most spans waiting to be sent, unless OTEL_BSP_MAX_QUEUE_SIZE is set; others are dropped.
const queued = 16384

// Open returns the tracer configured by OpenTelemetry's environment variables, or nil if neither
// OTEL_EXPORTER_OTLP_ENDPOINT nor OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set: then nothing is set up. service is
// the service name unless OTEL_SERVICE_NAME is set. log logs what could not be sent. An error is a usage error.
func Open(ctx context.Context, service string, getenv func(string) string, log *slog.Logger) (*Tracer, error) {
	if on, err := wanted(getenv); err != nil || !on {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, usage("OTEL_EXPORTER_OTLP_ENDPOINT: the exporter of traces can't be set up", "write a URL like http://collector:4318")
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", service)), resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, usage("OTEL_RESOURCE_ATTRIBUTES: "+err.Error(), "write key=value,key=value")
	}
	otel.SetErrorHandler(&complaints{log: log})
	var batch []sdk.BatchSpanProcessorOption
	if getenv("OTEL_BSP_MAX_QUEUE_SIZE") == "" {
		batch = append(batch, sdk.WithMaxQueueSize(queued))
	}
	return newTracer(sdk.WithBatcher(exporter, batch...), sdk.WithResource(about)), nil
}

// wanted reports whether the environment asks for traces. Unsupported settings are an error, because silently
// missing traces would not be noticed.
func wanted(getenv func(string) string) (bool, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return false, nil
	}
	switch exporter := getenv("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return false, nil
	case "", "otlp":
	default:
		return false, usage(fmt.Sprintf("OTEL_TRACES_EXPORTER is %q", exporter), "otlp and none are all there is")
	}
	protocol := getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		// The exporter would take an invalid one for localhost.
		if u, err := url.Parse(getenv(name)); getenv(name) != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return false, usage(name+" is not a URL", "write one like http://collector:4318")
		}
	}
	if protocol != "" && protocol != "http/protobuf" {
		return false, usage(fmt.Sprintf("OTEL_EXPORTER_OTLP_PROTOCOL is %q", protocol), "traces go out as http/protobuf alone: a collector takes it on port 4318")
	}
	return true, nil
}

func usage(message, hint string) error {
	return &job.Error{Code: job.CodeUsage, Message: message, Hint: hint}
}

// complainEvery is how often failures to send traces are logged.
const complainEvery = time.Minute

// complaints logs failures to send, rarely enough that an unreachable collector does not fill the log.
type complaints struct {
	log *slog.Logger

	mu   sync.Mutex
	last time.Time
}

// Handle implements otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.last) >= complainEvery {
		c.last = now
		c.log.Warn("traces can't be sent: they are lost, jobs are not", "error", err)
	}
}
