package rig

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

// Tally is a plain read_committed consumer that counts emissions instead of
// keeping them, for timers by the million. Their IDs are the numbers from 0 on,
// and each is scheduled once.
type Tally struct {
	mu    sync.Mutex // guards what follows
	times []uint8    // emissions by timer
	sums  Sums
}

// Sums are what a Tally has counted.
type Sums struct {
	Received   int // emissions
	Timers     int // timers that were emitted at least once
	Duplicated int // emissions of a timer that had been emitted
	Early      int // by timestamp or by receipt
	Strays     int // records that are no emission of a timer that was sent
	First      time.Time
	Last       time.Time // receipt of the first and the last one
}

// Count reads the topics from their starts until the test ends. The timers'
// IDs are below n.
func Count(t testing.TB, c *kafkatest.Cluster, n int, topics ...string) *Tally {
	t.Helper()
	cl := c.Client(t, kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	y := &Tally{times: make([]uint8, n)}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			y.add(cl.PollFetches(ctx), time.Now())
		}
	})
	t.Cleanup(func() { // before the client's own
		cancel()
		wg.Wait()
	})
	return y
}

func (y *Tally) add(fetches kgo.Fetches, at time.Time) {
	y.mu.Lock()
	defer y.mu.Unlock()
	fetches.EachRecord(func(r *kgo.Record) { y.one(kafkatest.Received{Record: r, At: at}) })
}

func (y *Tally) one(r kafkatest.Received) {
	if y.sums.Received++; y.sums.First.IsZero() {
		y.sums.First = r.At
	}
	y.sums.Last = r.At
	due, err := strconv.ParseInt(HeaderOf(r, "waterclock-due"), 10, 64)
	id, noID := strconv.Atoi(HeaderOf(r, "waterclock-id"))
	if err != nil || noID != nil || id < 0 || id >= len(y.times) {
		y.sums.Strays++
		return
	}
	if r.Timestamp.UnixMilli() < due || r.At.Before(time.UnixMilli(due)) {
		y.sums.Early++
	}
	if y.times[id] > 0 {
		y.sums.Duplicated++
		return
	}
	y.times[id]++
	y.sums.Timers++
}

// Sums returns what is counted so far.
func (y *Tally) Sums() Sums {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.sums
}

// Missing returns how many of the timers from first up to but not including end
// were not emitted.
func (y *Tally) Missing(first, end int) (n int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, times := range y.times[first:end] {
		if times == 0 {
			n++
		}
	}
	return n
}
