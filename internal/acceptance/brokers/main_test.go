// Package brokers tests instances, as real processes, on three brokers that are
// killed and paused; and what an instance that goes with a step open does to
// readers of the targets.
package brokers

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/dialer"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
)

func TestMain(m *testing.M) {
	rig.PlayVictim()
	kafkatest.Main(m)
}

// wait waits for d, or for the end of the test.
func wait(t testing.TB, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// swift are options of clients that give a broker that says nothing two seconds,
// and then let it be: with kgo's own the test would measure its clients. One of
// those asks a paused broker who leads now, behind all that waits there already,
// and is as silent as it for half a minute.
func swift() []kgo.Opt {
	d := dialer.New((&net.Dialer{}).DialContext, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	return []kgo.Opt{
		kgo.RequestTimeoutOverhead(2 * time.Second), kgo.ProduceRequestTimeout(2 * time.Second),
		kgo.FetchMaxWait(500 * time.Millisecond), kgo.MetadataMinAge(250 * time.Millisecond), kgo.Dialer(d.Dial),
	}
}

// reader is a read_committed consumer that keeps all it gets, in order of
// receipt. mu guards records.
type reader struct {
	mu      sync.Mutex
	records []kafkatest.Received
}

func read(t testing.TB, c *kafkatest.Cluster, topics ...string) *reader {
	cl := c.Client(t, append([]kgo.Opt{
		kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	}, swift()...)...)
	r := &reader{}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			fetches := cl.PollFetches(ctx)
			at := time.Now()
			r.mu.Lock()
			fetches.EachRecord(func(rec *kgo.Record) { r.records = append(r.records, kafkatest.Received{Record: rec, At: at}) })
			r.mu.Unlock()
		}
	})
	t.Cleanup(func() { // before the client's own
		cancel()
		wg.Wait()
	})
	return r
}

func (r *reader) all() []kafkatest.Received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.records)
}

// span is a stretch of the test, for measuring.
type span struct {
	name     string
	from, to time.Time
}

// silence returns the longest stretch within s in which a partition of topic
// received nothing, and which.
func (s span) silence(received []kafkatest.Received, topic string) (longest time.Duration, partition int32) {
	last := make(map[int32]time.Time)
	for _, r := range received {
		if r.Topic == topic {
			if _, known := last[r.Partition]; !known {
				last[r.Partition] = s.from
			}
		}
	}
	look := func(p int32, at time.Time) {
		if d := at.Sub(last[p]); d > longest {
			longest, partition = d, p
		}
		last[p] = at
	}
	for _, r := range received {
		if r.Topic == topic && r.At.After(s.from) && r.At.Before(s.to) {
			look(r.Partition, r.At)
		}
	}
	for p := range last {
		look(p, s.to)
	}
	return longest, partition
}

// exact checks that each of want was emitted once, and nothing else, nothing
// early and nothing doubled.
func exact(t testing.TB, received []kafkatest.Received, want []string) {
	t.Helper()
	byID := rig.Emissions(t, received)
	wrong := 0
	for _, id := range want {
		if n := len(byID[id]); n != 1 {
			if wrong++; wrong <= 5 {
				t.Errorf("%s was emitted %d times", id, n)
			}
		}
		delete(byID, id)
	}
	for id := range byID {
		t.Errorf("%s was emitted and never asked for", id)
	}
	t.Logf("%d timers, %d emissions, %d lost or doubled", len(want), len(received), wrong)
}

// timer is a request, as any Kafka client would write it.
func timer(requests, id, target string, due time.Time) *kgo.Record {
	return &kgo.Record{Topic: requests, Key: []byte(id), Value: []byte("payload of " + id), Headers: []kgo.RecordHeader{
		{Key: "timer-at", Value: []byte(strconv.FormatInt(due.UnixMilli(), 10))},
		{Key: "timer-target-topic", Value: []byte(target)},
	}}
}

// arguments are those of serve for a request topic, with a group of its own.
func arguments(seeds []string, requests, dir string, more ...string) []string {
	return append([]string{
		"serve", "--brokers", strings.Join(seeds, ","), "--requests", requests, "--targets", "*",
		"--group", "group-of-" + requests, "--data-dir", dir,
	}, more...)
}

// load sends timers at a steady rate, half of them due soon, half of them well
// ahead, so that what was taken in before a fault falls due during it.
type load struct {
	cancel context.CancelFunc
	done   chan struct{}
	cl     *kgo.Client
	ids    []string // of the producing goroutine until done is closed
	mu     sync.Mutex
	err    error // guarded by mu
}

const (
	loadTick        = 10 * time.Millisecond
	soon, wellAhead = 300 * time.Millisecond, 12 * time.Second
)

// steady starts a load; each timer has one target of targets.
func steady(t testing.TB, c *kafkatest.Cluster, perTick int, requests string, targets ...string) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{cancel: cancel, done: make(chan struct{}), cl: c.Client(t, swift()...)}
	go func() {
		defer close(l.done)
		tick := time.NewTicker(loadTick)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				for range perTick {
					n := len(l.ids)
					id, ahead := fmt.Sprint("load-", n), soon
					if n%2 == 0 {
						ahead = wellAhead
					}
					l.ids = append(l.ids, id)
					l.cl.Produce(context.Background(), timer(requests, id, targets[n%len(targets)], now.Add(ahead)), l.produced)
				}
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-l.done })
	return l
}

func (l *load) produced(_ *kgo.Record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

// stop ends the load and returns the IDs that are in the log.
func (l *load) stop(t testing.TB) []string {
	t.Helper()
	l.cancel()
	<-l.done
	if err := l.cl.Flush(t.Context()); err != nil {
		t.Fatalf("flush the load: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		t.Fatalf("produce the load: %v", l.err)
	}
	return l.ids
}

// countLive is how many live partitions /readyz shows.
func countLive(body string) int { return strings.Count(body, `"live"`) }
