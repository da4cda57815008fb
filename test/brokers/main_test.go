// Package brokers has brokers and targets fail under whole instances: killed, paused, restored from a backup, without a
// leader, taking no writes; and settings, topics, directories and groups that are not what they should be. A timer
// waits for what it needs, nobody else's does, nothing is lost, duplicated or early; and what is wrong is said.
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
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/node/dialer"
	"github.com/waterclock/waterclock/test/rig"
)

func TestMain(m *testing.M) {
	rig.PlayVictim()
	kafkatest.Main(m)
}

const (
	// quiet is how long nothing more must come, once everything has.
	quiet = 2 * time.Second
	// After a fault, all must go on within recovery times the longest silence without a fault. That is enough for, say,
	// two steps that are given up because something held them up, and one that finds what they left. busy is that
	// silence on a machine with a load of 10 on each core.
	recovery, busy = 4, time.Second
	// noise is what this machine may add.
	noise = 3 * time.Second
)

// swift are options of clients that give a broker that says nothing two seconds, and then leave it alone. With kgo's
// own limits the test would measure its clients: such a client asks a paused broker for the leaders, behind everything
// that waits there already, and is silent for half a minute too.
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

// observed is what can be read of some topics, in order of receipt. mu guards records.
type observed struct {
	mu      sync.Mutex
	records []kafkatest.Received
}

// observe reads each committed record of these topics as soon as it can be read. A consumer of kgo's looks again after
// a second where others lead and is not told at once who, and is silent for up to three: too coarse for measuring. Each
// partition has a client of its own, so that none waits for another.
func observe(t testing.TB, c *kafkatest.Cluster, partitions int32, topics ...string) *observed {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	options, o := swift(t), &observed{}
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
					o.add(page.Records, time.Now())
				}
			})
		}
	}
	t.Cleanup(func() { // before the clients' own
		cancel()
		wg.Wait()
	})
	return o
}

func (o *observed) add(records []*kgo.Record, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range records {
		o.records = append(o.records, kafkatest.Received{Record: r, At: at})
	}
}

// on returns what has come on a topic.
func (o *observed) on(topic string) []kafkatest.Received {
	o.mu.Lock()
	defer o.mu.Unlock()
	return on(topic, o.records)
}

// on returns what was received on a topic.
func on(topic string, received []kafkatest.Received) (of []kafkatest.Received) {
	for _, r := range received {
		if r.Topic == topic {
			of = append(of, r)
		}
	}
	return of
}

func partitionOf(r kafkatest.Received) int32 { return r.Partition }

// lateness is how late timers due between two instants were received, in order. Other records are due when they were
// written.
func lateness(received []kafkatest.Received, from, to time.Time) (late []time.Duration) {
	for _, r := range received {
		due := r.Timestamp
		if ms, err := strconv.ParseInt(r.Header("waterclock-due"), 10, 64); err == nil {
			due = time.UnixMilli(ms)
		}
		if due.After(from) && due.Before(to) {
			late = append(late, r.At.Sub(due))
		}
	}
	slices.Sort(late)
	return late
}

func p99(late []time.Duration) time.Duration { return late[len(late)*99/100] }

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

// steady sends timers to a target of some partitions at a steady rate, half of them due soon, half of them well ahead,
// so that what was taken in before a fault falls due during it.
func steady(s *rig.Setup, perSecond, partitions int) *rig.Stream {
	return rig.StartStream(s, s.Cluster.Client(s.T, swift(s)...), perSecond, func(n int) *kgo.Record {
		ahead := wellAhead
		if dueSoon(n) {
			ahead = soon
		}
		return rig.With(s.Valued(loadID(n), "1", time.Now().Add(ahead)),
			"timer-target-partition", strconv.Itoa(targetOf(n)%partitions))
	})
}

// targets is how many partitions the target of a load has, at most.
const targets = 12

func dueSoon(n int) bool { return n/targets%2 == 0 }
func targetOf(n int) int { return n % targets }

const loadID0 = "load-"

func loadID(n int) string { return loadID0 + strconv.Itoa(n) }

// numberOf returns the number of the timer of a load that an emission is of, -1 if there is none.
func numberOf(r kafkatest.Received) int {
	id, ours := strings.CutPrefix(r.Header("waterclock-id"), loadID0)
	if n, err := strconv.Atoi(id); ours && err == nil {
		return n
	}
	return -1
}

// writePlain writes a record to every partition of topic each 50 ms until the test ends.
func writePlain(s *rig.Setup, topic string, partitions int32) {
	cl := s.Manual(swift(s)...)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		beats.Every(ctx, 50*time.Millisecond, func() {
			for p := range partitions {
				cl.TryProduce(ctx, &kgo.Record{Topic: topic, Partition: p}, nil)
			}
		})
	})
	s.Cleanup(func() { cancel(); wg.Wait() })
}

// burst timers so often are 100 a second, and 20 steps for three brokers.
const burst, burstEvery = 5, 50 * time.Millisecond

// stream sends 100 timers a second, to the targets in turn, due half a second later.
func stream(s *rig.Setup, targets ...string) *rig.Stream {
	return rig.StartBursts(s, s.Client, burst, burstEvery, func(n int) *kgo.Record {
		return rig.Timer(s.Requests, targets[n%len(targets)], loadID(n), time.Now().Add(500*time.Millisecond))
	})
}
