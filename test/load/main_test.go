// Package load shows on a real broker that a waterclock process stays within
// its limits, and loses nothing, duplicates nothing and fires nothing early: with
// millions of pending timers, a million due at once, a million cancelled at
// once, requests of a megabyte, and ten thousand bad requests a second.
package load

import (
	"context"
	"strconv"
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
	// paceTick is how often a paced producer catches up with its rate.
	paceTick = 2 * time.Millisecond
)

// least are the shares of the processes here, and of the instances in this one.
func least() memory.Shares { return memory.Divide(memory.Minimum) }

// serve starts the binary for a request topic, with a directory of its own and the least memory.
func serve(t testing.TB, c *kafkatest.Cluster, requests string, more ...string) *rig.Process {
	t.Helper()
	p := rig.Start(t, rig.Arguments(c.Seeds(), requests, t.TempDir(),
		append([]string{"--memory", config.MinMemory.String()}, more...)...)...)
	p.Ready(partitions, time.Minute)
	return p
}

// stop ends the process in order.
func stop(t testing.TB, p *rig.Process) {
	t.Helper()
	p.Term()
	if code := p.Exit(time.Minute); code != 0 {
		t.Errorf("exit %d on SIGTERM", code)
	}
}

// producer is a client that sends compressed batches.
func producer(t testing.TB, c *kafkatest.Cluster) *kgo.Client {
	return c.Client(t, kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.ProducerLinger(5*time.Millisecond),
		kgo.MaxBufferedRecords(maxBuffered))
}

// timer is a request for the timer of that number.
func timer(requests, target string, number int, due time.Time, value []byte) *kgo.Record {
	return &kgo.Record{Topic: requests, Key: strconv.AppendInt(nil, int64(number), 10), Value: value,
		Headers: []kgo.RecordHeader{
			{Key: "timer-at", Value: strconv.AppendInt(nil, due.UnixMilli(), 10)},
			{Key: "timer-target-topic", Value: []byte(target)},
		}}
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

// sendAll sends the requests with the numbers from first up to but not
// including end, as fast as the broker takes them.
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
