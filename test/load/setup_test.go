// Package load shows on a real broker that a waterclock process stays within its limits, and loses nothing, duplicates
// nothing and fires nothing early: with millions of pending timers, a million due at once, a million cancelled at once,
// requests of a megabyte, ten thousand bad requests a second, and tenants that send far more than they may.
package load

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/kit/memory"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// TestMain has the machine's brokers to itself if slow tests run, because those take all that the machine has.
func TestMain(m *testing.M) {
	run := kafkatest.Main
	if runs.Slow() {
		run = kafkatest.MainAlone
	}
	run(m)
}

const (
	// partitions of every topic of these tests.
	partitions = 4
	// maxBuffered is how many requests wait in a test's producer.
	maxBuffered = 50_000
	mib         = 1 << 20
	// peakLimit is what a process may come to hold that is told to use the least.
	peakLimit = memory.Minimum * 11 / 10
	// paceTick is how often a paced producer catches up with its rate.
	paceTick = 2 * time.Millisecond
)

// least are the shares of the processes here, and of the instances in this one.
func least() memory.Shares { return memory.Divide(memory.Minimum) }

// setup is topics, a client that sends compressed batches, and a process with the least memory.
type setup struct {
	*rig.Setup
	p *rig.Process
	w *watch
}

// newSetup makes topics, both with the settings that are given as name, value, and no consumer: it would keep all that
// it gets.
func newSetup(t *testing.T, settings ...string) *setup {
	t.Helper()
	c := kafkatest.Shared(t)
	s := &setup{Setup: &rig.Setup{T: t, Cluster: c, Client: c.Client(t, batched(kgo.Lz4Compression())...)}}
	s.Requests = s.Topic(kafkatest.Topic(t), partitions, settings...)
	s.Target = s.Topic(s.Requests+"-out", partitions, settings...)
	return s
}

// start starts the binary for the request topic, with a directory of its own.
func (s *setup) start(more ...string) *setup {
	s.Helper()
	s.p = rig.Start(s, rig.Arguments(s.Cluster.Seeds(), s.Requests, s.TempDir(),
		append([]string{"--memory", config.MinMemory.String()}, more...)...)...)
	s.p.Ready(partitions, time.Minute)
	s.w = watchOf(s, &s.p.Web, least().Requests)
	return s
}

// end stops the process in order, and holds its peak of memory and its queues against the limits.
func (s *setup) end() {
	s.Helper()
	_, peak := s.p.Memory()
	s.Logf("peak memory %.1f MiB; %s", float64(peak)/mib, s.w)
	s.w.check()
	stop(s, s.p)
}

// stop ends a process in order.
func stop(t testing.TB, p *rig.Process) {
	t.Helper()
	_, peak := p.Memory()
	if peak > peakLimit {
		t.Errorf("peak memory %.1f MiB, want %d at most", float64(peak)/mib, peakLimit/mib)
	}
	p.Term()
	if code := p.Exit(time.Minute); code != 0 {
		t.Errorf("exit %d on SIGTERM", code)
	}
}

// timer is a request for the timer of that number.
func (s *setup) timer(number int, due time.Time, value []byte) *kgo.Record {
	return timer(s.Requests, s.Target, number, due, value)
}

// timer is a request for the timer of that number.
func timer(requests, target string, number int, due time.Time, value []byte) *kgo.Record {
	r := request(number, due, value)
	r.Topic = requests
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: "timer-target-topic", Value: []byte(target)})
	return r
}

// sending is requests on their way to the broker.
type sending struct {
	cl   *kgo.Client
	once sync.Once
	err  error // the first one
}

func (s *sending) send(r *kgo.Record) {
	s.cl.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
		if err != nil {
			s.once.Do(func() { s.err = err })
		}
	})
}

// flush waits until all are in the log.
func (s *sending) flush() error {
	if err := s.cl.Flush(context.Background()); err != nil {
		return err
	}
	return s.err
}

// sendAll sends the requests with the numbers from first up to but not including end, as fast as the broker takes them.
func sendAll(cl *kgo.Client, first, end int, request func(number int) *kgo.Record) error {
	s := sending{cl: cl}
	for i := first; i < end; i++ {
		s.send(request(i))
	}
	return s.flush()
}

// sendPaced is sendAll at a rate, in requests a second.
func sendPaced(cl *kgo.Client, first, end int, rate float64, request func(number int) *kgo.Record) error {
	s := sending{cl: cl}
	tick := time.NewTicker(paceTick)
	defer tick.Stop()
	start := time.Now()
	for i := first; i < end; <-tick.C {
		upTo := min(end, first+int(time.Since(start).Seconds()*rate))
		for ; i < upTo; i++ {
			s.send(request(i))
		}
	}
	return s.flush()
}
