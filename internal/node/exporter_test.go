package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/tracing"
)

// lines counts lines of a log. mu guards b.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// The SDK takes numbers from the environment as they are: it panics on some, and with others it exports without a
// pause.
func TestBadNumbersHaveNoEffect(t *testing.T) {
	for name, values := range map[string][]string{
		"OTEL_BSP_MAX_QUEUE_SIZE":        {"-1", "0", "2000000000", "many"},
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": {"-1", "0", "2000000000"},
		"OTEL_BSP_SCHEDULE_DELAY":        {"-5", "0", "5s"},
		"OTEL_BSP_EXPORT_TIMEOUT":        {"-1"},
	} {
		for _, value := range values {
			t.Run(name+"="+value, func(t *testing.T) {
				t.Setenv("OTEL_TRACES_EXPORTER", "none")
				t.Setenv(name, value)
				e, err := newExporter(t.Context(), "0", "a", slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				if err := e.Stop(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	for _, o := range []sdktrace.BatchSpanProcessorOptions{
		{MaxQueueSize: -1, MaxExportBatchSize: -1, BatchTimeout: -1},
		{MaxQueueSize: 2_000_000_000, MaxExportBatchSize: 2_000_000_000},
	} {
		usable(&o)
		if o.MaxQueueSize != 2048 || o.MaxExportBatchSize != 512 || o.BatchTimeout != 5*time.Second {
			t.Errorf("%+v", o)
		}
	}
	own := sdktrace.BatchSpanProcessorOptions{MaxQueueSize: 7, MaxExportBatchSize: 3, BatchTimeout: time.Millisecond}
	was := own
	if usable(&own); own != was {
		t.Errorf("%+v, want %+v", own, was)
	}
}

// Without a collector, many batches may fail in a second. The log says so once a minute.
func TestFailuresAreLoggedRarely(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+gone.Addr().String())
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1000")
	var log lines
	e, err := newExporter(t.Context(), "0", "a", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		_, span := e.Firings().Start(context.Background(), "send", trace.WithNewRoot())
		span.End()
	}
	if err := e.Stop(); err != nil {
		t.Log(err)
	}
	if n := log.count("cannot export traces"); n < 1 || n > 3 {
		t.Errorf("%d lines", n)
	}
}

// BenchmarkExport measures all that a sampled firing costs: its span, and the export to a collector that throws it
// away. The processor time is that of all threads.
func BenchmarkExport(b *testing.B) {
	collector := httptest.NewServer(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer collector.Close()
	b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	to, err := spanExporter(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(to, sdktrace.WithBlocking())) // none is dropped
	f := tracing.Linked(provider.Tracer(tracing.ScopeName))
	r := &kgo.Record{Topic: "orders", Key: []byte("order-4711"), Value: make([]byte, 300), Timestamp: time.Now()}
	for name, value := range map[string]string{
		"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "content-type": "application/json",
		waterclock.HeaderID: "order-4711", waterclock.HeaderDue: "1700000000000", waterclock.HeaderOccurrence: "1",
		waterclock.HeaderSource: "timers/3/123456789", waterclock.HeaderEvent: "AAAAAAAAAAAAAAAAAAAAAA.3.123456789.1",
	} {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	headers, before := r.Headers, processorTime(b)
	for b.Loop() {
		r.Headers = headers
		tracing.Commit(f.Fire(nil, r, largest{}), 0)
	}
	if err := provider.Shutdown(context.Background()); err != nil {
		b.Error(err)
	}
	b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

type largest struct{}

func (largest) BatchMaxBytes(string) int32 { return 1 << 20 }

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// The environment names the exporter and its protocol. An unknown name is an error that lists the known ones.
func TestExporterIsNamedByTheEnvironment(t *testing.T) {
	for _, c := range []struct{ exporter, protocol, signal, want string }{
		{"", "", "", "*otlptrace.Exporter"},
		{"otlp", "grpc", "", "*otlptrace.Exporter"},
		{"otlp", "udp", "http/protobuf", "*otlptrace.Exporter"},
		{"console", "", "", "*stdouttrace.Exporter"},
		{"none", "", "", "*tracetest.NoopExporter"},
		{"jaeger", "", "", `OTEL_TRACES_EXPORTER is "jaeger": otlp, console and none are known`},
		{"", "udp", "", `OTEL_EXPORTER_OTLP_PROTOCOL is "udp": grpc and http/protobuf are known`},
	} {
		t.Setenv("OTEL_TRACES_EXPORTER", c.exporter)
		t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", c.protocol)
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", c.signal)
		to, err := spanExporter(t.Context())
		got := fmt.Sprintf("%T", to)
		if err != nil {
			got = err.Error()
		} else if err := to.Shutdown(t.Context()); err != nil {
			t.Errorf("%+v: shutdown: %v", c, err)
		}
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
