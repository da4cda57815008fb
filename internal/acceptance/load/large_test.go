package load

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
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
	const queue = 16 * config.MiB
	p := serve(t, c, requests, "--queue-memory", queue.String())
	_, empty := p.Memory()
	w := watchOf(t, &p.Web, queue)
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
			return timer(requests, target, i, due, noise(i))
		})
	})
	w.until(settleLimit, "all received", func() bool { return len(out.Records()) >= large })
	w.atRest(settleLimit, 0)
	took := time.Since(start)
	out.Quiet(quiet)
	byID := rig.Emissions(t, out.Records())
	if len(byID) != large || len(out.Records()) != large {
		t.Errorf("%d emissions of %d timers, want %d", len(out.Records()), len(byID), large)
	}
	for i := range large {
		for _, r := range byID[strconv.Itoa(i)] {
			if !bytes.Equal(r.Value, noise(i)) {
				t.Errorf("timer %d came with another value", i)
			}
		}
	}
	_, peak := p.Memory()
	t.Logf("%d requests of %d bytes, all fired after %s; peak memory %.1f MiB, %.1f when empty; %s",
		large, largeSize, took.Round(time.Millisecond), float64(peak)/mib, float64(empty)/mib, w)
	w.check()
	stop(t, p)
}

// noise is a value that does not compress, another one for each number.
func noise(number int) []byte {
	b := make([]byte, largeSize)
	var seed [32]byte
	copy(seed[:], strconv.Itoa(number))
	_, _ = rand.NewChaCha8(seed).Read(b) // never fails
	return b
}
