package kafkatest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// quietTime is how long a test watches that nothing happens.
const quietTime = 300 * time.Millisecond

// wired is a client of the shared cluster behind a wire, a topic of one partition, and a collector that sees the topic
// without the wire.
func wired(t *testing.T, opts ...kgo.Opt) (w *Wire, cl *kgo.Client, topic string, col *Collector) {
	t.Helper()
	c := Shared(t)
	topic = c.CreateTopic(t, 1, nil)
	w = NewWire()
	t.Cleanup(w.Close) // after the client's own close
	cl = c.Client(t, append([]kgo.Opt{kgo.Dialer(w.Dial), kgo.DefaultProduceTopic(topic)}, opts...)...)
	return w, cl, topic, Collect(t, c, topic)
}

// wantOnce checks that exactly one record came and that no other follows.
func wantOnce(t *testing.T, col *Collector) {
	t.Helper()
	if got := col.WaitFor(1, waitLimit); len(got) != 1 {
		t.Errorf("collected %d records, want 1", len(got))
	}
	col.Quiet(quietTime)
}

func TestWireDropsARequest(t *testing.T) {
	w, cl, topic, col := wired(t)
	f := w.DropRequest(kmsg.Produce.Int16(), 1)
	produce(t, cl, topic, "k")
	if f.Hits() != 1 || w.Requests(kmsg.Produce.Int16()) != 2 {
		t.Errorf("dropped %d of %d produce requests, want 1 of 2", f.Hits(), w.Requests(kmsg.Produce.Int16()))
	}
	wantOnce(t, col)
}

func TestWireDropsTheSecondResponse(t *testing.T) {
	w, cl, topic, col := wired(t)
	f := w.DropResponse(kmsg.Produce.Int16(), 2)
	produce(t, cl, topic, "first")
	if f.Hits() != 0 {
		t.Fatal("the first answer was dropped")
	}
	produce(t, cl, topic, "second")
	if f.Hits() != 1 {
		t.Errorf("dropped %d answers, want 1", f.Hits())
	}
	if got := col.WaitFor(2, waitLimit); len(got) != 2 {
		t.Errorf("collected %d records, want 2: a repeated request is idempotent", len(got))
	}
	col.Quiet(quietTime)
}

// The answer to a commit is lost forever: the client gets an error, but the record is there.
func TestWireLosesACommitsAnswer(t *testing.T) {
	w, cl, topic, col := wired(t, kgo.TransactionalID(Topic(t)),
		kgo.RetryTimeout(time.Second), kgo.RequestRetries(2))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, topic, "k")
	f := w.DropResponse(kmsg.EndTxn.Int16(), Every)
	if err := cl.EndTransaction(deadline(t), kgo.TryCommit); err == nil {
		t.Error("the commit is confirmed though its answer was lost")
	}
	if f.Hits() < 2 {
		t.Errorf("dropped %d answers, want each of the repeats", f.Hits())
	}
	wantOnce(t, col)
}

// A held commit hides the record. Released, it commits.
func TestWireHoldsACommit(t *testing.T) {
	w, cl, topic, col := wired(t, kgo.TransactionalID(Topic(t)))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, topic, "k")
	h := w.Hold(kmsg.EndTxn.Int16())
	ended := make(chan error, 1)
	go func() { ended <- cl.EndTransaction(context.Background(), kgo.TryCommit) }()
	if err := h.Wait(deadline(t)); err != nil {
		t.Fatal(err)
	}
	col.Quiet(quietTime)
	h.Release()
	h.Release()
	if err := <-ended; err != nil {
		t.Errorf("end the transaction: %v", err)
	}
	wantOnce(t, col)
}

// A request in flight arrives even if its sender has closed the connection.
func TestWireDeliversAfterTheClientHasGone(t *testing.T) {
	w, cl, topic, col := wired(t)
	h := w.Hold(kmsg.Produce.Int16())
	cl.Produce(t.Context(), &kgo.Record{Topic: topic, Key: []byte("k")}, nil)
	if err := h.Wait(deadline(t)); err != nil {
		t.Fatal(err)
	}
	cl.CloseAllowingRebalance()
	col.Quiet(quietTime)
	h.Release()
	wantOnce(t, col)
}

func TestWireHoldsAResponse(t *testing.T) {
	w, cl, topic, col := wired(t)
	h := w.HoldResponse(kmsg.Produce.Int16())
	acked := make(chan error, 1)
	cl.Produce(t.Context(), &kgo.Record{Topic: topic}, func(_ *kgo.Record, err error) { acked <- err })
	if err := h.Wait(deadline(t)); err != nil {
		t.Fatal(err)
	}
	wantOnce(t, col)
	select {
	case err := <-acked:
		t.Errorf("acknowledged (%v) while the answer is held", err)
	default:
	}
	h.Release()
	if err := <-acked; err != nil {
		t.Errorf("produce: %v", err)
	}
}

func TestWireBlackhole(t *testing.T) {
	w, cl, topic, col := wired(t)
	produce(t, cl, topic, "before")
	w.Blackhole(true)
	w.Blackhole(true)
	if answers(t, cl, quietTime) {
		t.Error("an answer came out of the black hole")
	}
	acked := make(chan error, 1)
	cl.Produce(t.Context(), &kgo.Record{Topic: topic}, func(_ *kgo.Record, err error) { acked <- err })
	ctx, cancel := context.WithTimeout(t.Context(), quietTime)
	defer cancel()
	if conn, err := w.Dial(ctx, "tcp", Shared(t).Seeds()[0]); err == nil {
		t.Errorf("dialled %v through the black hole", conn.RemoteAddr())
	}
	if n := len(col.Records()); n > 1 {
		t.Errorf("%d records, want at most the one before", n)
	}
	w.Blackhole(false)
	if err := <-acked; err != nil {
		t.Errorf("produce after the network healed: %v", err)
	}
	if got := col.WaitFor(2, waitLimit); len(got) != 2 {
		t.Errorf("collected %d records, want 2", len(got))
	}
}

func TestWireClose(t *testing.T) {
	w, cl, topic, _ := wired(t)
	h := w.Hold(kmsg.Produce.Int16())
	cl.Produce(t.Context(), &kgo.Record{Topic: topic}, nil)
	if err := h.Wait(deadline(t)); err != nil {
		t.Fatal(err)
	}
	w.Close() // returns although a request is held
	w.Close()
	if _, err := w.Dial(t.Context(), "tcp", Shared(t).Seeds()[0]); !errors.Is(err, errWireClosed) {
		t.Errorf("dial after close: %v", err)
	}
}
