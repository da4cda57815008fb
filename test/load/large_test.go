package load

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	large     = 200
	largeSize = mib // of a value
)

// Requests with values of 1 MiB: half of them past due, half due at one instant.
func TestRequestsOfAMegabyte(t *testing.T) {
	s := newSetup(t, "max.message.bytes", strconv.Itoa(largeBytes)).start()
	s.Client = s.Cluster.Client(t, compressed(kgo.Lz4Compression())...)
	out := kafkatest.Collect(t, s.Cluster, s.Target)
	start := time.Now()
	s.w.during(sendLimit, "send", func() error {
		return sendAll(s.Client, 0, large, func(i int) *kgo.Record {
			return s.timer(i, start.Add(time.Duration(i%2)*5*time.Second), noise(i, largeSize))
		})
	})
	s.w.until(settleLimit, "all received", func() bool { return len(out.Records()) >= large })
	s.w.atRest(settleLimit, 0)
	out.Quiet(quiet)
	for id, all := range rig.Exactly(t, out.Records(), large) {
		i, _ := strconv.Atoi(id)
		if !bytes.Equal(all[0].Value, noise(i, largeSize)) {
			kafkatest.Inexact(t, "timer %s came with another value", id)
		}
	}
	s.end()
}

const (
	packed     = 4  // batches
	packedEach = 90 // requests of a MiB of zeros in each
)

// Batches that compress a thousandfold, as long as a request may be when compressed and gigabytes when not: each is
// refused as a whole, with one dead letter that names its offsets, the requests beside them fire, and the process keeps
// within its memory. One of an aborted transaction leaves no trace.
func TestBatchesThatDecompressToTooMuch(t *testing.T) {
	s := newSetup(t).start()
	out := kafkatest.Collect(t, s.Cluster, s.Target)
	letters := kafkatest.Collect(t, s.Cluster, s.Requests+".waterclock.dead-letters")
	opts := []kgo.Opt{kgo.ProducerBatchMaxBytes(99 * mib), kgo.MaxBufferedBytes(0), kgo.ManualFlushing(),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.RecordPartitioner(kgo.ManualPartitioner())}
	cl := s.Cluster.Client(t, opts...)
	zeros := make([]byte, mib)
	details := make(map[string]bool)
	for i := range packed {
		rig.Send(t, s.Client, s.timer(i, time.Now(), []byte("beside")))
		first := make([]*kgo.Record, packedEach)
		for n := range first {
			first[n] = s.timer(1000+n, time.Now(), zeros)
		}
		if err := sendAll(cl, 0, packedEach, func(n int) *kgo.Record { return first[n] }); err != nil {
			t.Fatal(err)
		}
		last := first[packedEach-1].Offset
		if last != first[0].Offset+packedEach-1 {
			t.Fatalf("the requests at the offsets %d to %d are no one batch", first[0].Offset, last)
		}
		details[fmt.Sprintf(" %d to %d ", first[0].Offset, last)] = true
	}
	undone := s.Cluster.Client(t, append(opts, kgo.TransactionalID(s.Requests))...)
	if err := undone.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := sendAll(undone, 0, packedEach,
		func(n int) *kgo.Record { return s.timer(2000+n, time.Now(), zeros) }); err != nil {
		t.Fatal(err)
	}
	if err := undone.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	rig.Send(t, s.Client, s.timer(packed, time.Now(), []byte("beside")))
	rig.Exactly(t, out.WaitFor(packed+1, time.Minute), packed+1)
	for _, l := range letters.WaitFor(packed, time.Minute) {
		detail := l.Header("waterclock-detail")
		for offsets := range details {
			if strings.Contains(detail, offsets) {
				delete(details, offsets)
			}
		}
		if got := l.Header("waterclock-reason"); got != "batch-too-large" || l.Key != nil || l.Value != nil {
			t.Errorf("a dead letter for %s: %s", got, detail)
		}
	}
	if len(details) > 0 {
		t.Errorf("no dead letter for the requests at %v", details)
	}
	letters.Quiet(quiet)
	if got := s.p.Metric("waterclock_dead_letters_total", "reason", "batch-too-large"); got != packed {
		t.Errorf("%v dead letters are counted, want %d", got, packed)
	}
	stop(t, s.p)
}
