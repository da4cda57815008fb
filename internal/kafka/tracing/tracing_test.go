package tracing

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/wire"
)

const (
	traceID    = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID     = "00f067aa0ba902b7"
	sampled    = "00-" + traceID + "-" + spanID + "-01"
	notSampled = "00-" + traceID + "-" + spanID + "-00"
)

func linked() (*Firings, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	return Linked(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer(ScopeName)), spans
}

// limit is the same limit for all topics.
type limit int32

func (l limit) BatchMaxBytes(string) int32 { return int32(l) }

func emission(parents ...string) *kgo.Record {
	r := &kgo.Record{Topic: "orders", Partition: 3, Key: []byte("k"), Value: []byte("value"),
		Timestamp: time.UnixMilli(1_700_000_000_000)}
	header := func(key, text string) { r.Headers = append(r.Headers, kgo.RecordHeader{Key: key, Value: []byte(text)}) }
	header("first", "1")
	for _, p := range parents {
		header(Traceparent, p)
		header(tracestate, "vendor=1")
	}
	header("last", "2")
	header(waterclock.HeaderID, "a1")
	header(waterclock.HeaderEvent, "x.3.17.1")
	return r
}

func names(r *kgo.Record) (all []string) {
	for _, h := range r.Headers {
		all = append(all, h.Key)
	}
	return all
}

func TestAFiringBeginsATraceThatIsLinkedToItsRequest(t *testing.T) {
	f, spans := linked()
	r := emission(sampled)
	before := slices.Clone(r.Headers)
	had := r.Headers
	firings := f.Fire(nil, r, limit(1<<20))
	if want := []string{Traceparent, waterclock.HeaderTraceparent, "first", "last", waterclock.HeaderID,
		waterclock.HeaderEvent}; !slices.Equal(names(r), want) {
		t.Errorf("headers %q, want %q", names(r), want)
	}
	for i := range before {
		if had[i].Key != before[i].Key || !bytes.Equal(had[i].Value, before[i].Value) {
			t.Fatal("the headers that the record had were changed: they are parts of a slab")
		}
	}
	if got := string(value(r.Headers, waterclock.HeaderTraceparent)); got != sampled {
		t.Errorf("context of the request %q, want %q", got, sampled)
	}
	if len(spans.GetSpans()) != 0 {
		t.Fatal("the span has ended before its transaction")
	}
	r.Offset = 42
	r.Key[0], r.Headers[4].Value[0] = 'X', 'X' // the slab is used again
	Commit(firings, 5*time.Millisecond)
	got := spans.GetSpans()
	if len(got) != 1 {
		t.Fatalf("%d spans", len(got))
	}
	s := got[0]
	if s.Name != "send orders" || s.SpanKind != trace.SpanKindProducer || s.Parent.IsValid() {
		t.Errorf("span %s, kind %v, parent %v", s.Name, s.SpanKind, s.Parent)
	}
	if own := string(value(r.Headers, Traceparent)); !strings.Contains(
		own, s.SpanContext.TraceID().String()+"-"+s.SpanContext.SpanID().String()) || strings.Contains(own, traceID) {
		t.Errorf("the emission has %s, the span is %v", own, s.SpanContext)
	}
	if len(s.Links) != 1 || s.Links[0].SpanContext.TraceID().String() != traceID ||
		s.Links[0].SpanContext.SpanID().String() != spanID {
		t.Errorf("links %v", s.Links)
	}
	if s.StartTime.UnixMilli() != 1_700_000_000_000 || s.EndTime.Sub(s.StartTime) != 5*time.Millisecond {
		t.Errorf("from %v to %v", s.StartTime, s.EndTime)
	}
	as := map[string]string{}
	for _, a := range s.Attributes {
		as[string(a.Key)] = a.Value.String()
	}
	for name, want := range map[string]string{
		"messaging.system": "kafka", "messaging.operation.name": "send", "messaging.operation.type": "send",
		"messaging.destination.name":         "orders",
		"messaging.destination.partition.id": "3", "messaging.kafka.offset": "42", "messaging.kafka.message.key": "k",
		"messaging.message.body.size": "5", "waterclock.id": "a1", "waterclock.event": "x.3.17.1",
	} {
		if as[name] != want {
			t.Errorf("%s is %q, want %q", name, as[name], want)
		}
	}
}

func TestOnlySampledRequestsHaveSpans(t *testing.T) {
	f, spans := linked()
	for _, parent := range []string{"", notSampled, "01", strings.Repeat("-", 60), "00-" + strings.Repeat("0", 32) +
		"-" + spanID + "-01", "zz" + sampled[2:]} {
		for _, r := range []*kgo.Record{emission(parent), emission()} {
			want := names(r)
			if firings := f.Fire(nil, r, limit(1<<20)); firings != nil || !slices.Equal(names(r), want) {
				t.Errorf("%q: %d spans, headers %q, want %q", parent, len(firings), names(r), want)
			}
		}
	}
	if len(spans.GetSpans()) != 0 {
		t.Error("spans were exported")
	}
}

// An emission must not become too large for its target because its request was sampled.
func TestNoSpanMakesAnEmissionTooLarge(t *testing.T) {
	f, spans := linked()
	traced := emission(sampled)
	f.Fire(nil, traced, limit(1<<20))
	for largest, want := range map[limit]int{limit(wire.StoredBytes(traced)): 1,
		limit(wire.StoredBytes(traced) - 1): 0} {
		r := emission(sampled)
		had := names(r)
		firings := f.Fire(nil, r, largest)
		if len(firings) != want || want == 0 && !slices.Equal(names(r), had) {
			t.Errorf("of %d bytes at most: %d spans, headers %q", largest, len(firings), names(r))
		}
		Commit(firings, 0)
		if got := len(spans.GetSpans()); got != want {
			t.Errorf("of %d bytes at most: %d spans were exported", largest, got)
		}
		spans.Reset()
	}
}

func TestNoContextRemovesTheContext(t *testing.T) {
	r := emission(sampled, notSampled)
	if firings := NoContext().Fire(nil, r, limit(1<<20)); firings != nil {
		t.Error("there are spans")
	}
	if want := []string{"first", "last", waterclock.HeaderID, waterclock.HeaderEvent}; !slices.Equal(names(r), want) {
		t.Errorf("headers %q, want %q", names(r), want)
	}
}

func TestLogLinesNameTheirTrace(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(LogHandler(slog.NewTextHandler(&b, nil))).With("a", 1)
	tid, _ := trace.TraceIDFromHex(traceID)
	sid, _ := trace.SpanIDFromHex(spanID)
	ctx := trace.ContextWithSpanContext(context.Background(),
		trace.NewSpanContext(trace.SpanContextConfig{TraceID: tid, SpanID: sid, TraceFlags: trace.FlagsSampled}))
	log.InfoContext(ctx, "x")
	if !strings.Contains(b.String(), "trace_id="+traceID+" span_id="+spanID) {
		t.Error(b.String())
	}
	b.Reset()
	if log.Info("x"); strings.Contains(b.String(), "trace_id") {
		t.Error(b.String())
	}
	if Parent(ctx) != sampled || Parent(context.Background()) != "" {
		t.Errorf("parent %q", Parent(ctx))
	}
	if id := ID(emission(sampled).Headers); id != traceID {
		t.Errorf("ID %q", id)
	}
	if id := ID(emission("x").Headers) + ID(nil) + ID(emission(strings.Repeat("x", 55)).Headers); id != "" {
		t.Errorf("ID %q", id)
	}
}

// Requests that are not sampled, or without a context to be removed, only cost reading their headers.
func TestFiringsThatAreNotSampledAllocateNothing(t *testing.T) {
	link, _ := linked()
	for _, x := range []struct {
		f *Firings
		r *kgo.Record
	}{{link, emission()}, {link, emission(notSampled)}, {NoContext(), emission()}} {
		if n := testing.AllocsPerRun(100, func() { x.f.Fire(nil, x.r, limit(1<<20)) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

// A traceparent of a later version of the format may be longer. Only the part common to all versions is passed on.
func TestALongerTraceparentIsCut(t *testing.T) {
	f, _ := linked()
	later := "01" + sampled[2:]
	r := emission(later + "-\xff\x00" + strings.Repeat("x", 1000))
	f.Fire(nil, r, limit(1<<20))
	if got := string(value(r.Headers, waterclock.HeaderTraceparent)); got != later {
		t.Errorf("context of the request %q, want %q", got, later)
	}
}
