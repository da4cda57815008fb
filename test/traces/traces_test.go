package traces

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// patience is how long something may take on a busy machine.
const patience = 2 * time.Minute

// freeAddress returns an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// collect starts a collector: OpenTelemetry's receiver, and a list of what it got.
func collect(t *testing.T) (address string, sink *consumertest.TracesSink) {
	t.Helper()
	address, sink = freeAddress(t), new(consumertest.TracesSink)
	factory := otlpreceiver.NewFactory()
	cfg := factory.CreateDefaultConfig()
	settings := confmap.NewFromStringMap(
		map[string]any{"protocols": map[string]any{"http": map[string]any{"endpoint": address}}})
	if err := settings.Unmarshal(cfg); err != nil {
		t.Fatal(err)
	}
	r, err := factory.CreateTraces(t.Context(), receivertest.NewNopSettings(factory.Type()), cfg, sink)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context(), componenttest.NewNopHost()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Shutdown(context.Background()) })
	return address, sink
}

// dev runs "waterclock dev", which exports to a collector, until the end of the test.
func dev(t *testing.T, collector string) (broker, api string) {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "waterclock")
	build := exec.Command("go", "build", "-o", binary, "./cmd/waterclock")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	broker, api = freeAddress(t), freeAddress(t)
	cmd := exec.Command(binary, "dev", "--tracing", "link", "--demo=false", "--listen", broker, "--api", api, "--http",
		"", "--data-dir", filepath.Join(dir, "data"))
	// Variables that steer tests look like settings to the program.
	steered := func(kv string) bool { return strings.HasPrefix(kv, "WATERCLOCK_") }
	cmd.Env = append(slices.DeleteFunc(os.Environ(), steered), "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+collector,
		"OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	until(t, "the API answers", func() bool {
		r, err := http.Get("http://" + api + "/v1/topics/timers/timers/none")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusNotFound
	})
	return broker, "http://" + api
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	end := time.After(patience)
	for tick := time.NewTicker(50 * time.Millisecond); !holds(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// headers are the trace context of a record. It implements propagation.TextMapCarrier.
type headers struct{ r *kgo.Record }

func (h headers) Get(key string) string {
	for _, one := range h.r.Headers {
		if one.Key == key {
			return string(one.Value)
		}
	}
	return ""
}
func (h headers) Set(key, value string) {
	h.r.Headers = append(h.r.Headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
}
func (h headers) Keys() []string { return nil }

// spans returns what the collector has by the name of the spans.
func spans(sink *consumertest.TracesSink) map[string][]ptrace.Span {
	all := map[string][]ptrace.Span{}
	for _, td := range sink.AllTraces() {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					all[s.Name()] = append(all[s.Name()], s)
				}
			}
		}
	}
	return all
}

// A producer schedules a timer over Kafka, another one over HTTP, both in a sampled trace, and a third one in a trace
// that is not sampled. Each sampled timer has two traces: that of its producer, and a new one of its firing, in which
// its consumer takes part. The second one is linked to the first.
func TestScheduleFireConsume(t *testing.T) {
	collector, sink := collect(t)
	broker, api := dev(t, collector)
	to, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpoint(collector), otlptracehttp.WithInsecure())
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(to))
	shop, w3c := provider.Tracer("shop"), propagation.TraceContext{}

	cl, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumeTopics("orders"), kgo.AllowAutoTopicCreation(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	schedule := func(id string) (*kgo.Record, context.Context, trace.Span) {
		ctx, span := shop.Start(t.Context(), "schedule "+id)
		r := &kgo.Record{Topic: "timers", Key: []byte(id), Value: []byte("v"), Headers: []kgo.RecordHeader{
			{Key: "timer-after", Value: []byte("500ms")}, {Key: "timer-target-topic", Value: []byte("orders")},
		}}
		return r, ctx, span
	}
	kafka, ctx, span := schedule("kafka")
	w3c.Inject(ctx, headers{kafka})
	span.End()
	quiet, _, quietSpan := schedule("quiet")
	quietSpan.End()
	quiet.Headers = append(quiet.Headers, kgo.RecordHeader{Key: "traceparent",
		Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")})
	if err := cl.ProduceSync(t.Context(), kafka, quiet).FirstErr(); err != nil {
		t.Fatal(err)
	}
	_, ctx, span = schedule("http")
	call, err := http.NewRequestWithContext(ctx, http.MethodPut, api+"/v1/topics/timers/timers/http",
		strings.NewReader("v"))
	if err != nil {
		t.Fatal(err)
	}
	call.Header.Set("timer-after", "500ms")
	call.Header.Set("timer-target-topic", "orders")
	w3c.Inject(ctx, propagation.HeaderCarrier(call.Header))
	answer, err := http.DefaultClient.Do(call)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	span.End()
	if answer.StatusCode != http.StatusCreated {
		t.Fatal(answer.Status)
	}

	parents := map[string]string{} // of emissions, by ID
	deadline, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(parents) < 3 {
		got := cl.PollFetches(deadline)
		if deadline.Err() != nil {
			t.Fatalf("of three timers %d have fired", len(parents))
		}
		got.EachRecord(func(r *kgo.Record) {
			_, s := shop.Start(w3c.Extract(t.Context(), headers{r}), "process "+string(r.Key),
				trace.WithSpanKind(trace.SpanKindConsumer))
			s.End()
			parents[string(r.Key)] = headers{r}.Get("traceparent")
		})
	}
	want := (headers{quiet}).Get("traceparent")
	if parents["quiet"] != want {
		t.Errorf("a trace that is not sampled: %s has become %s", want, parents["quiet"])
	}

	const put = "PUT /v1/topics/{topic}/timers/{id}"
	until(t, "the collector has all spans", func() bool {
		all := spans(sink)
		return len(all["send orders"]) == 2 && len(all[put]) == 1 && len(all["process kafka"]) == 1 &&
			len(all["process http"]) == 1
	})
	all := spans(sink)
	// These spans' contexts are in the request records.
	requests := map[string]ptrace.Span{"kafka": all["schedule kafka"][0], "http": all[put][0]}
	if s := all[put][0]; s.ParentSpanID() != all["schedule http"][0].SpanID() ||
		s.TraceID() != all["schedule http"][0].TraceID() {
		t.Error("the call does not continue its caller's trace")
	}
	for id, request := range requests {
		i := slices.IndexFunc(all["send orders"],
			func(s ptrace.Span) bool { v, _ := s.Attributes().Get("waterclock.id"); return v.Str() == id })
		if i < 0 {
			t.Fatalf("no firing of %s", id)
		}
		firing, consumed := all["send orders"][i], all["process "+id][0]
		if !firing.ParentSpanID().IsEmpty() || firing.TraceID() == request.TraceID() ||
			firing.Kind() != ptrace.SpanKindProducer {
			t.Errorf("%s: the firing begins no trace of its own", id)
		}
		if firing.Links().Len() != 1 || firing.Links().At(0).TraceID() != request.TraceID() ||
			firing.Links().At(0).SpanID() != request.SpanID() {
			t.Errorf("%s: the firing is not linked to its request", id)
		}
		if consumed.TraceID() != firing.TraceID() || consumed.ParentSpanID() != firing.SpanID() {
			t.Errorf("%s: the consumer does not continue the firing's trace", id)
		}
		if want := fmt.Sprintf("00-%v-%v-", firing.TraceID(), firing.SpanID()); !strings.HasPrefix(parents[id], want) {
			t.Errorf("%s: the emission has %s, the firing is %s", id, parents[id], want)
		}
	}
}
