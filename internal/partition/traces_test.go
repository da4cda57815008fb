package partition

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/waterclock/waterclock/internal/kafka/tracing"
)

// If a step was aborted, it is made again, together with the spans of its firings. Only the spans of the committed step
// end, and its emissions name those.
func TestOneSpanForEachCommittedFiring(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.p.o.Traces = tracing.Linked(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer(tracing.ScopeName))
	for id := range 3 {
		r := c.schedule(id, -10)
		flags := "01"
		if id == 2 {
			flags = "00" // not sampled
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: tracing.Traceparent,
			Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-" + flags)})
	}
	c.deliver(3)
	c.open()
	parents := func() map[string]bool {
		all := map[string]bool{}
		for _, e := range c.share.Emissions {
			all[parentOf(e.Record)] = true
		}
		return all
	}
	sealed := func() {
		t.Helper()
		for range 10 {
			c.work()
			c.load()
			c.park()
			c.look(time.Second)
			if c.seal(10); c.share != nil && len(c.share.Emissions) == 3 {
				return
			}
			c.commit()
			c.apply()
		}
		t.Fatal("nothing fires")
	}
	sealed()
	first := parents()
	c.abort()
	if n := len(spans.GetSpans()); n != 0 {
		t.Fatalf("%d spans of an aborted step have ended", n)
	}
	sealed()
	second := parents()
	c.commit()
	got := spans.GetSpans()
	if len(got) != 2 {
		t.Fatalf("%d spans have ended, want 2", len(got))
	}
	for _, s := range got {
		own := "00-" + s.SpanContext.TraceID().String() + "-" + s.SpanContext.SpanID().String() + "-" +
			s.SpanContext.TraceFlags().String()
		if !second[own] || first[own] {
			t.Errorf("%s is not named by a committed emission: %v", own, second)
		}
	}
	c.apply()
	c.finish()
	if n := len(spans.GetSpans()); n != 2 {
		t.Errorf("%d spans at the end", n)
	}
}

func parentOf(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == tracing.Traceparent {
			return string(h.Value)
		}
	}
	return ""
}
