package partition

import (
	"context"
	"log/slog"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/await"
	"github.com/waterclock/waterclock/internal/budget"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/targets"
	"github.com/waterclock/waterclock/internal/topics"
)

// gated is a partition whose catch-up barrier waits for a log of large requests. It records the fetches of the
// barrier.
type gated struct {
	p       *Partition
	s       *served
	brokers *kfake.Cluster
	end     int64
	late    atomic.Int64 // how late the catch-up barrier's next fetch is answered
	asked   atomic.Int64 // fetches of the catch-up barrier
	most    atomic.Int64 // bytes that one of them asks for
	open    chan struct{}
}

func newGated(t *testing.T) *gated {
	const requests, n = "r", 8
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, requests))
	for range n {
		r := &kgo.Record{Topic: requests, Key: []byte("id"), Value: make([]byte, 100<<10)}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	details, err := kadm.NewClient(cl).ListTopics(t.Context(), requests)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := intake.NewReader(1<<20, kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Client().Close)
	g := &gated{brokers: c, end: n, open: make(chan struct{})}
	g.p, g.s = newRooms(Options{
		Options: ownership.Options{
			Topics: &topics.Set{Request: topics.Topic{Name: requests, ID: details[requests].ID, Partitions: 1}},
			Client: cl, Targets: targets.NewMetadata(cl, targets.MetadataOptions{}), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		},
		Reader: reader, Metrics: NewMetrics(prometheus.NewRegistry()), Rules: new(intake.Rules), Memory: Memory{Wheel: budget.Alone(1 << 20)},
	})
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		r := req.(*kmsg.FetchRequest)
		if r.MaxBytes == math.MaxInt32 { // not one of intake's
			if late := g.late.Swap(0); late > 0 {
				c.SleepControl(func() { await.For(t, time.Duration(late)) })
			}
			g.asked.Add(1)
			g.most.Store(max(g.most.Load(), int64(r.Topics[0].Partitions[0].PartitionMaxBytes)))
		}
		return nil, nil, false
	})
	return g
}

// run waits for the catch-up barrier until the test ends.
func (g *gated) run(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { defer close(g.open); g.s.requests.catchUp(ctx, g.end) }()
	t.Cleanup(func() { cancel(); <-g.open })
}

// While a backlog is on its way through intake, the catch-up barrier rarely fetches from the log, and little: what
// it fetches is thrown away.
func TestCatchUpBarrierFetchesLittleWhileIntakeIsBehind(t *testing.T) {
	g := newGated(t)
	begun := time.Now()
	g.run(t)
	await.Within(20*time.Second, func() bool { return g.asked.Load() >= 4 })
	if n, took, least := g.asked.Load(), time.Since(begun), (1+2+4+8)*catchUpQuiet; n < 4 || took < least {
		t.Errorf("asked %d times in %s, want 4, in %s at least", n, took, least)
	}
	if n := g.most.Load(); n > catchUpBytes {
		t.Errorf("asked for %d bytes at once, want %d at most", n, catchUpBytes)
	}
	if g.p.Status().State == ownership.Live {
		t.Error("open before the requests are planned")
	}
	g.s.requests.delivered.Store(g.end)
	select {
	case <-g.open:
	case <-time.After(5 * time.Second):
		t.Fatal("not open although everything is planned")
	}
	if g.p.Status().State != ownership.Live {
		t.Error("open and not live")
	}
}

// A paused intake has requests in its queue. The barrier does not look at the log until intake is resumed.
func TestCatchUpBarrierFetchesNothingWhileIntakeIsPaused(t *testing.T) {
	g := newGated(t)
	g.s.requests.paused = true
	g.run(t)
	await.For(t, 4*catchUpQuiet) // in this time it would have fetched twice
	if n := g.asked.Load(); n > 0 {
		t.Errorf("asked %d times", n)
	}
	g.s.requests.pauseMu.Lock()
	g.s.requests.paused = false
	g.s.requests.pauseMu.Unlock()
	await.Until(t, 20*time.Second, "it asks when intake goes on", func() bool { return g.asked.Load() > 0 })
}

// Requests that the barrier counts as delivered are already in the inboxes. Otherwise the message that opens the
// barrier would overtake them, and a cancel in the log would lose to a due timer.
func TestDeliveredIsInTheInbox(t *testing.T) {
	_, s := newRooms(Options{Options: ownership.Options{
		Topics: &topics.Set{Request: topics.Topic{Name: "r", Partitions: 1}}, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
	}, Rules: new(intake.Rules), Metrics: NewMetrics(prometheus.NewRegistry()), Memory: Memory{Wheel: budget.Alone(1 << 20), Requests: budget.Alone(1 << 20), Firings: budget.Alone(1 << 20)}})
	in := s.subs.all[0].inbox
	in.mu.Lock() // as if a planning goroutine were just taking requests
	var handed sync.WaitGroup
	handed.Go(func() { s.requests.Deliver(intake.Read{Records: []*kgo.Record{{Offset: 6}}, Next: 7, End: 7}) })
	for s.backlog.onTheirWay().Entries == 0 {
		runtime.Gosched()
	}
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); runtime.Gosched() {
		if s.requests.delivered.Load() == 7 {
			t.Error("delivered, and nobody has it")
			break
		}
	}
	in.mu.Unlock()
	handed.Wait()
	if list, _ := in.takeAll(); len(list) != 1 || s.requests.delivered.Load() != 7 {
		t.Errorf("%d deliveries, up to %d", len(list), s.requests.delivered.Load())
	}
}

// The barrier's patience is only for open transactions. Time in which intake is paused or no leader answers does not
// count. Otherwise a cancel behind an ordinary transaction would lose because of such delays.
func TestCatchUpBarrierWaitsOnlyForTransactions(t *testing.T) {
	t.Parallel()
	const patience = time.Second
	for _, name := range []string{"paused", "no answer"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGated(t)
			g.p.o.HeldPatience = patience
			producer := kafkatest.Client(t, kgo.SeedBrokers(g.brokers.ListenAddrs()...), kgo.TransactionalID("foreign"))
			if err := producer.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: "r", Key: []byte("foreign")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			g.s.requests.delivered.Store(g.end)
			g.end++
			pause := func(is bool) {
				g.s.requests.pauseMu.Lock()
				defer g.s.requests.pauseMu.Unlock()
				g.s.requests.paused = is
			}
			if name == "paused" {
				pause(true)
			} else {
				g.late.Store(int64(patience * 3 / 2))
			}
			g.run(t)
			await.For(t, patience*3/2)
			pause(false)
			for end := time.Now().Add(20 * time.Second); g.asked.Load() < 2 && time.Now().Before(end); await.For(t, catchUpPoll) {
				select {
				case <-g.open:
					t.Fatal("open although the transaction was waited for hardly at all")
				default:
				}
			}
			g.s.requests.delivered.Store(g.end) // it has ended
			select {
			case <-g.open:
			case <-time.After(20 * time.Second):
				t.Fatal("not open although all is delivered")
			}
		})
	}
}
