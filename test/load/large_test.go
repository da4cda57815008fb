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
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	large     = 200
	largeSize = mib // of a value
)

// Requests with values of 1 MiB: half of them past due, half due at one instant.
func TestRequestsOfAMegabyte(t *testing.T) {
	c := kafkatest.Shared(t)
	limit := strconv.Itoa(2 * mib)
	wide := map[string]*string{"max.message.bytes": &limit}
	requests := c.CreateTopic(t, partitions, wide)
	target := c.CreateTopic(t, partitions, wide, requests+"-out")
	p := serve(t, c, requests)
	_, empty := p.Memory()
	w := watchOf(t, &p.Web, least().Requests)
	out := kafkatest.Collect(t, c, target)
	cl := c.Client(t, kgo.ProducerBatchMaxBytes(2*mib), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	start := time.Now()
	later := start.Add(5 * time.Second)
	w.during(sendLimit, "send", func() error {
		return sendAll(cl, 0, large, func(i int) *kgo.Record {
			due := start
			if i%2 == 0 {
				due = later
			}
			return timer(requests, target, i, due, noise(i, largeSize))
		})
	})
	w.until(settleLimit, "all received", func() bool { return len(out.Records()) >= large })
	w.atRest(settleLimit, 0)
	took := time.Since(start)
	out.Quiet(quiet)
	byID := rig.Exactly(t, out.Records(), large)
	for i := range large {
		for _, r := range byID[strconv.Itoa(i)] {
			if !bytes.Equal(r.Value, noise(i, largeSize)) {
				kafkatest.Inexact(t, "timer %d came with another value", i)
			}
		}
	}
	_, peak := p.Memory()
	t.Logf("%d requests of %d bytes, all fired after %s; peak memory %.1f MiB, %.1f when empty; %s",
		large, largeSize, took.Round(time.Millisecond), float64(peak)/mib, float64(empty)/mib, w)
	w.check()
	stop(t, p)
}

const (
	packed     = 4  // batches
	packedEach = 90 // requests of a MiB of zeros in each
)

// Batches that compress a thousandfold, as long as a request may be when
// compressed and gigabytes when not: each is refused as a whole, with one dead
// letter that names its offsets, the requests beside them fire, and the process
// keeps within its memory. One of an aborted transaction leaves no trace.
func TestBatchesThatDecompressToTooMuch(t *testing.T) {
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, 1, nil)
	target := c.CreateTopic(t, 1, nil, requests+"-out")
	p := rig.Start(t, rig.Arguments(c.Seeds(), requests, t.TempDir(), "--memory", config.MinMemory.String())...)
	p.Ready(1, time.Minute)
	out := kafkatest.Collect(t, c, target)
	letters := kafkatest.Collect(t, c, requests+".waterclock.dead-letters")
	plain := c.Client(t)
	cl := c.Client(t, kgo.ProducerBatchMaxBytes(99*mib), kgo.MaxBufferedBytes(0), kgo.ManualFlushing(),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	zeros := make([]byte, mib)
	details := make(map[string]bool)
	for i := range packed {
		rig.Send(t, plain, timer(requests, target, i, time.Now(), []byte("beside")))
		first := make([]*kgo.Record, packedEach)
		for n := range first {
			first[n] = timer(requests, target, 1000+n, time.Now(), zeros)
		}
		if err := sendAll(cl, 0, packedEach, func(n int) *kgo.Record { return first[n] }); err != nil {
			t.Fatal(err)
		}
		if last := first[packedEach-1].Offset; last != first[0].Offset+packedEach-1 {
			t.Fatalf("the requests at the offsets %d to %d are no one batch", first[0].Offset, last)
		}
		details[fmt.Sprintf(" %d to %d ", first[0].Offset, first[packedEach-1].Offset)] = true
	}
	undone := c.Client(t, kgo.ProducerBatchMaxBytes(99*mib), kgo.MaxBufferedBytes(0), kgo.ManualFlushing(),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.TransactionalID(requests))
	if err := undone.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := sendAll(undone, 0, packedEach,
		func(n int) *kgo.Record { return timer(requests, target, 2000+n, time.Now(), zeros) }); err != nil {
		t.Fatal(err)
	}
	if err := undone.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	rig.Send(t, plain, timer(requests, target, packed, time.Now(), []byte("beside")))
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
	if got := p.Metric("waterclock_dead_letters_total", "reason", "batch-too-large"); got != packed {
		t.Errorf("%v dead letters are counted, want %d", got, packed)
	}
	_, peak := p.Memory()
	t.Logf("%d batches that decompress to %d MiB each: peak memory %.1f MiB", packed, packedEach, float64(peak)/mib)
	if peak > peakLimit {
		t.Errorf("peak memory %.1f MiB, want %d at most", float64(peak)/mib, peakLimit/mib)
	}
	stop(t, p)
}
