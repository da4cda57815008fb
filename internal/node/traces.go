package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/waterclock/waterclock/internal/kafka/tracing"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/ops"
)

// traces is an instance's handling of trace contexts; see the setting tracing.
type traces struct {
	firings *tracing.Firings // nil: emissions carry the trace context of their requests
	calls   trace.Tracer     // of the API; nil: calls have no spans
	stop    func()
}

// openTraces reads OpenTelemetry's environment variables if the settings ask for spans. Otherwise nothing is exported.
func (in *instance) openTraces(ctx context.Context) error {
	in.traces.stop = func() {}
	switch in.cfg.Tracing {
	case config.TracingOff:
		in.traces.firings = tracing.NoContext()
	case config.TracingLink:
		to, err := newExporter(ctx, ops.ReadBuild().Version, in.name(), in.log)
		if err != nil {
			return err
		}
		in.log = slog.New(tracing.LogHandler(in.log.Handler()))
		in.traces = traces{firings: tracing.Linked(to.Firings()), calls: to.Calls(), stop: func() {
			if err := to.Stop(); err != nil {
				in.log.Warn("cannot export the last traces", "err", err)
			}
		}}
	}
	return nil
}

// stopWait is how long Stop waits for the collector to take the last spans.
const stopWait = 5 * time.Second

// exporter exports spans as OpenTelemetry's standard environment variables say: OTEL_TRACES_EXPORTER,
// OTEL_EXPORTER_OTLP_ENDPOINT and their like. By default they go to a collector at localhost:4318. When the collector
// is slow or unreachable, spans are dropped beyond OTEL_BSP_MAX_QUEUE_SIZE; nothing waits for them.
type exporter struct{ calls, firings *sdktrace.TracerProvider }

// maxQueue bounds OTEL_BSP_MAX_QUEUE_SIZE. The SDK allocates 16 bytes for each place in the queue at the start.
const maxQueue = 1_000_000

// usable puts the SDK's defaults in place of numbers from OTEL_BSP_* that the SDK does not check: it panics on a
// negative size, and without a delay it exports in a loop that never pauses.
func usable(o *sdktrace.BatchSpanProcessorOptions) {
	if o.MaxQueueSize < 1 || o.MaxQueueSize > maxQueue {
		o.MaxQueueSize = sdktrace.DefaultMaxQueueSize
	}
	if o.MaxExportBatchSize < 1 || o.MaxExportBatchSize > o.MaxQueueSize {
		o.MaxExportBatchSize = min(sdktrace.DefaultMaxExportBatchSize, o.MaxQueueSize)
	}
	if o.BatchTimeout <= 0 {
		o.BatchTimeout = sdktrace.DefaultScheduleDelay * time.Millisecond
	}
}

// failuresEvery is how often the log says that spans are not exported. Without a collector, every batch fails
// immediately.
const failuresEvery = time.Minute

// New reads the environment. Version and instance describe this process, unless OTEL_RESOURCE_ATTRIBUTES or
// OTEL_SERVICE_NAME say otherwise.
func newExporter(ctx context.Context, version, instance string, log *slog.Logger) (*exporter, error) {
	to, err := spanExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	of, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName("waterclock"), semconv.ServiceVersion(version),
			semconv.ServiceInstanceID(instance)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("export traces: read the resource's attributes: %w", err)
	}
	failures := &rate.Sometimes{Interval: failuresEvery}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		failures.Do(func() { log.Warn("cannot export traces", "err", err) })
	}))
	spans := sdktrace.NewBatchSpanProcessor(to, usable)
	return &exporter{
		calls: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithResource(of)),
		firings: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithResource(of),
			sdktrace.WithSampler(sdktrace.AlwaysSample())),
	}, nil
}

// spanExporter returns the exporter that OTEL_TRACES_EXPORTER names. OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, or else
// OTEL_EXPORTER_OTLP_PROTOCOL, is the protocol of otlp. OpenTelemetry's autoexport does the same, but it also links the
// exporters of metrics and logs.
func spanExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	switch name := os.Getenv("OTEL_TRACES_EXPORTER"); name {
	case "none":
		return tracetest.NewNoopExporter(), nil
	case "console":
		return stdouttrace.New()
	case "", "otlp":
	default:
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: otlp, console and none are known", name)
	}
	protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"))
	switch protocol {
	case "grpc":
		return otlptracegrpc.New(ctx)
	case "", "http/protobuf":
		return otlptracehttp.New(ctx)
	}
	return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q: grpc and http/protobuf are known", protocol)
}

// Calls returns the tracer of API calls. OTEL_TRACES_SAMPLER says which are sampled.
func (e *exporter) Calls() trace.Tracer {
	return e.calls.Tracer(tracing.ScopeName, trace.WithSchemaURL(semconv.SchemaURL))
}

// Firings returns the tracer of firings. It samples all: a firing has a span if its request was sampled.
func (e *exporter) Firings() trace.Tracer {
	return e.firings.Tracer(tracing.ScopeName, trace.WithSchemaURL(semconv.SchemaURL))
}

// Stop exports the ended spans, and stops.
func (e *exporter) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWait)
	defer cancel()
	return errors.Join(e.firings.Shutdown(ctx), e.calls.Shutdown(ctx))
}
