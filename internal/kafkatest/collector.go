package kafkatest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Received is a record and when the collector got it.
type Received struct {
	*kgo.Record
	At time.Time
}

// Collector is a plain read_committed consumer, as users run them, that keeps
// all it gets.
type Collector struct {
	t testing.TB

	mu      sync.Mutex // guards what follows
	records []Received
	changed chan struct{} // closed and replaced when records grows
}

// Collect reads the topics from their starts until the test ends. Topics may be
// created later.
func Collect(t testing.TB, cluster *Cluster, topics ...string) *Collector {
	t.Helper()
	return CollectAs(t, cluster, nil, topics...)
}

// CollectAs is Collect for a client with further options: another listener, a
// user, a group.
func CollectAs(t testing.TB, cluster *Cluster, opts []kgo.Opt, topics ...string) *Collector {
	t.Helper()
	cl := cluster.Client(t, append([]kgo.Opt{
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	}, opts...)...)
	c := &Collector{t: t, changed: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { c.run(ctx, cl) })
	t.Cleanup(func() { // before the client's own
		cancel()
		wg.Wait()
	})
	return c
}

func (c *Collector) run(ctx context.Context, cl *kgo.Client) {
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		c.add(fetches, time.Now())
	}
}

// add keeps the records. Errors are no news to a test: brokers go away in it.
func (c *Collector) add(fetches kgo.Fetches, at time.Time) {
	if fetches.NumRecords() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	fetches.EachRecord(func(r *kgo.Record) { c.records = append(c.records, Received{r, at}) })
	close(c.changed)
	c.changed = make(chan struct{})
}

// Records returns what has come so far, in order of receipt.
func (c *Collector) Records() []Received {
	records, _ := c.state()
	return records
}

func (c *Collector) state() ([]Received, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clip(c.records), c.changed
}

// WaitFor returns as soon as there are at least n records; the test fails and
// ends if there are not within the timeout. Call it from the test's goroutine.
func (c *Collector) WaitFor(n int, timeout time.Duration) []Received {
	c.t.Helper()
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	for {
		records, changed := c.state()
		if len(records) >= n {
			return records
		}
		select {
		case <-changed:
		case <-limit.C:
			c.t.Fatalf("collected %d records within %v, want %d", len(records), timeout, n)
		}
	}
}

// Quiet watches for d and reports whether no record came; one that comes fails
// the test, which goes on.
func (c *Collector) Quiet(d time.Duration) bool {
	c.t.Helper()
	before, changed := c.state()
	limit := time.NewTimer(d)
	defer limit.Stop()
	select {
	case <-limit.C:
		return true
	case <-changed:
		after, _ := c.state()
		r := after[len(before)]
		c.t.Errorf("a record came that must not: %s/%d/%d, key %q", r.Topic, r.Partition, r.Offset, r.Key)
		return false
	}
}
