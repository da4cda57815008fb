// Package brokers tests instances, as real processes, on three brokers that are
// killed and paused; and what an instance that goes with a step open does to
// readers of the targets.
package brokers

import (
	"context"
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

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node/dialer"
	"github.com/waterclock/waterclock/test/rig"
)

func TestMain(m *testing.M) {
	rig.PlayVictim()
	kafkatest.Main(m)
}

// swift are options of clients that give a broker that says nothing two seconds,
// and then let it be: with kgo's own the test would measure its clients. One of
// those asks a paused broker who leads now, behind all that waits there already,
// and is as silent as it for half a minute.
func swift(t testing.TB) []kgo.Opt {
	d := dialer.New((&net.Dialer{}).DialContext, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { _ = d.Run(ctx) })
	t.Cleanup(func() { cancel(); run.Wait() })
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
	r := &reader{}
	consume(t, c, r.take, topics...)
	return r
}

func (r *reader) take(rec *kgo.Record, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, kafkatest.Received{Record: rec, At: at})
}

// consume hands each committed record to take until the test ends.
func consume(t testing.TB, c *kafkatest.Cluster, take func(*kgo.Record, time.Time), topics ...string) {
	cl := c.Client(t, append([]kgo.Opt{
		kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	}, swift(t)...)...)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			fetches := cl.PollFetches(ctx)
			at := time.Now()
			fetches.EachRecord(func(r *kgo.Record) { take(r, at) })
		}
	})
	t.Cleanup(func() { // before the client's own
		cancel()
		wg.Wait()
	})
}

// observe hands each committed record of these topics to take, from several goroutines,
// as soon as it can be read. A consumer of kgo's looks again after a second where others
// lead and is not told at once who, and is silent for up to three: too coarse for
// measuring. Each partition has a client of its own, so that none waits for another.
func observe(t testing.TB, c *kafkatest.Cluster, partitions int32, take func(*kgo.Record, time.Time),
	topics ...string) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	options := swift(t)
	for _, topic := range topics {
		for p := range partitions {
			log := partlog.NewReader(c.Client(t, options...), partlog.Log{Topic: topic, Partition: p}, 0)
			log.SetBackoff(100 * time.Millisecond)
			wg.Go(func() {
				for ctx.Err() == nil {
					page, err := log.Next(ctx, 500*time.Millisecond)
					if err != nil && ctx.Err() == nil {
						t.Errorf("read %s/%d: %v", topic, p, err)
						return
					}
					at := time.Now()
					for _, r := range page.Records {
						take(r, at)
					}
				}
			})
		}
	}
	t.Cleanup(func() { // before the clients' own
		cancel()
		wg.Wait()
	})
}

func (r *reader) all() []kafkatest.Received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.records)
}

// partitions is how many of a topic's have received something since then.
func (r *reader) partitions(topic string, since time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := make(map[int32]bool)
	for _, got := range r.records {
		if got.Topic == topic && got.At.After(since) {
			found[got.Partition] = true
		}
	}
	return len(found)
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

// exact checks that each of n timers of a load was emitted once, and nothing else.
func exact(t testing.TB, received []kafkatest.Received, n int) {
	t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = loadID(i)
	}
	rig.ExactlyIDs(t, received, ids)
	t.Logf("%d timers, %d emissions", n, len(received))
}

const soon, wellAhead = 300 * time.Millisecond, 12 * time.Second

// steady sends timers to the target at a steady rate, half of them due soon, half
// of them well ahead, so that what was taken in before a fault falls due during it.
func steady(t testing.TB, c *kafkatest.Cluster, perSecond int, requests, target string) *rig.Stream {
	return rig.StartStream(t, c.Client(t, swift(t)...), perSecond, func(n int) *kgo.Record {
		ahead := soon
		if n%2 == 0 {
			ahead = wellAhead
		}
		return rig.Timer(requests, target, loadID(n), time.Now().Add(ahead))
	})
}

const loadID0 = "load-"

func loadID(n int) string { return loadID0 + strconv.Itoa(n) }

// countLive is how many live partitions /readyz shows.
func countLive(body string) int { return strings.Count(body, `"live"`) }
