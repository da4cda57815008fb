package delaytopics

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kafka/tracing"
	"github.com/waterclock/waterclock/internal/timer"
)

// The lag of a fixed-delay topic is the rate times the delay. What is late is told by Overdue and Uncommitted: both
// grow from the moment at which the first record is due, and end when its step is committed.
func TestStatusTellsWhatIsLate(t *testing.T) {
	t.Parallel()
	c := newCore(t, newSetup(t))
	late := func(what string, want time.Duration, pending int64) {
		t.Helper()
		if s := c.p.Status(); s.Overdue != want || s.Uncommitted != want || s.Pending != pending {
			t.Errorf("%s: overdue %s, uncommitted %s, %d pending, want %s and %d", what, s.Overdue, s.Uncommitted,
				s.Pending, want, pending)
		}
	}
	late("an empty topic", 0, 0)
	c.write(0)
	c.write(50)
	c.write(0, "timer-target-topic", "mail")
	c.deliver(3)
	late("before anything is due", 0, 3)
	c.now += delay
	late("when the first is due", 0, 3)
	c.now += 20
	late("20 ms later", 20*time.Millisecond, 3)
	if s := c.seal(10); len(s.Emissions) != 1 {
		t.Fatalf("%d emissions, want that of the first record", len(s.Emissions))
	}
	c.now += 20
	late("before the step is committed", 40*time.Millisecond, 3)
	c.ends(emitter.Committed)
	late("when it is committed, and the second is not due", 0, 2)

	c.health.Trip(map[timer.TopicPartition]error{{Topic: "mail"}: errors.New("silent")})
	c.now += 10
	c.seal(10)
	c.ends(emitter.Committed)
	c.now += 1000
	if s := c.seal(10); s != nil {
		t.Fatalf("%d emissions for an unhealthy target", len(s.Emissions))
	}
	late("behind an unhealthy target", time.Second, 1)
}

// Each record that is passed on begins a trace, linked to that of the record. Its span is exported if its transaction
// commits.
func TestEmissionsBeginTraces(t *testing.T) {
	t.Parallel()
	c := newCore(t, newSetup(t))
	spans := tracetest.NewInMemoryExporter()
	c.o.Traces = tracing.Linked(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer(tracing.ScopeName))
	c.take()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
	c.write(-delay, tracing.Traceparent, parent)
	c.write(-delay, tracing.Traceparent, parent[:len(parent)-1]+"0") // not sampled
	c.deliver(2)

	for _, outcome := range []emitter.Outcome{emitter.Aborted, emitter.Committed} {
		c.seal(2)
		recs := [2]*kgo.Record{c.share.Emissions[0].Record, c.share.Emissions[1].Record}
		recs[0].Offset = 7
		c.ends(outcome)
		got := spans.GetSpans()
		if outcome == emitter.Aborted {
			if len(got) != 0 {
				t.Errorf("an aborted step exported %d spans", len(got))
			}
			continue
		}
		if len(got) != 1 {
			t.Fatalf("%d spans, want one", len(got))
		}
		s := got[0]
		if s.Name != "send orders" || s.SpanKind != trace.SpanKindProducer || len(s.Links) != 1 ||
			s.Links[0].SpanContext.TraceID().String() != parent[3:35] {
			t.Errorf("%+v", s)
		}
		header := func(r *kgo.Record, name string) (v string) {
			for _, h := range r.Headers {
				if h.Key == name {
					v = string(h.Value)
				}
			}
			return v
		}
		own := "00-" + s.SpanContext.TraceID().String() + "-" + s.SpanContext.SpanID().String() + "-01"
		if header(recs[0], tracing.Traceparent) != own || header(recs[0], waterclock.HeaderTraceparent) != parent ||
			own[3:35] == parent[3:35] {
			t.Errorf("the emission has %v, want its own %s, and %s of the record", recs[0].Headers, own, parent)
		}
		if header(recs[1], waterclock.HeaderTraceparent) != "" {
			t.Errorf("one that is not sampled has %v", recs[1].Headers)
		}
	}
}
