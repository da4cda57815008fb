package kafkatest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kit/beats"
)

// Received is a record, and when the collector received it.
type Received = history.Received

// Collector is a plain read_committed consumer, like those of users, that keeps everything it receives.
type Collector struct {
	t      testing.TB
	adm    *kadm.Client
	topics []string

	mu      sync.Mutex // guards the fields below
	records []Received
	read    map[partition]int64 // just behind the last record that was read, markers included
	changed chan struct{}       // closed and replaced when records or read grows
}

type partition struct {
	topic  string
	number int32
}

// catchUpLimit is how long CatchUp waits until the existing records are read.
const catchUpLimit = 10 * time.Second

// markersLimit is how long it waits for transactions to be shown as ended. It looks again after each
// markersPause.
const (
	markersLimit = 2 * time.Second
	markersPause = 20 * time.Millisecond
)

// Collect reads the topics from their starts until the test ends. Topics may be created later.
func Collect(t testing.TB, cluster *Cluster, topics ...string) *Collector {
	t.Helper()
	return CollectAs(t, cluster, nil, topics...)
}

// CollectAs is Collect for a client with further options: another listener, a user, a group.
func CollectAs(t testing.TB, cluster *Cluster, opts []kgo.Opt, topics ...string) *Collector {
	t.Helper()
	return collect(t, cluster.Client(t, append(reading(topics), opts...)...), topics)
}

// CollectFrom is Collect for brokers that this package has not started.
func CollectFrom(t testing.TB, seeds []string, topics ...string) *Collector {
	t.Helper()
	return collect(t, Client(t, append(reading(topics), kgo.SeedBrokers(seeds...),
		kgo.MetadataMinAge(250*time.Millisecond), kgo.MetadataMaxAge(time.Second))...), topics)
}

func reading(topics []string) []kgo.Opt {
	return []kgo.Opt{
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // they mark the log's end
	}
}

func collect(t testing.TB, cl *kgo.Client, topics []string) *Collector {
	c := &Collector{t: t, adm: kadm.NewClient(cl), topics: topics, read: make(map[partition]int64),
		changed: make(chan struct{})}
	Poll(t, cl, c.add)
	return c
}

// Poll calls do with the fetches of a client of the test, until the test ends.
func Poll(t testing.TB, cl *kgo.Client, do func(fetches kgo.Fetches, at time.Time)) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			fetches := cl.PollFetches(ctx)
			if ctx.Err() != nil || fetches.IsClientClosed() {
				return
			}
			do(fetches, time.Now())
		}
	})
	t.Cleanup(func() { // runs before the client's own cleanup
		cancel()
		wg.Wait()
	})
}

// add keeps the records. Errors are ignored: brokers may be away in a test.
func (c *Collector) add(fetches kgo.Fetches, at time.Time) {
	if fetches.NumRecords() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	fetches.EachRecord(func(r *kgo.Record) {
		c.read[partition{r.Topic, r.Partition}] = r.Offset + 1
		if !r.Attrs.IsControl() {
			c.records = append(c.records, Received{Record: r, At: at})
		}
	})
	close(c.changed)
	c.changed = make(chan struct{})
}

// Records returns the records so far, in order of receipt.
func (c *Collector) Records() []Received {
	records, _ := c.state()
	return records
}

func (c *Collector) state() ([]Received, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clip(c.records), c.changed
}

// Take returns the records since its last call, and forgets them. It is for tests that watch for hours.
func (c *Collector) Take() []Received {
	c.mu.Lock()
	defer c.mu.Unlock()
	records := c.records
	c.records = nil
	return records
}

// WaitFor returns as soon as there are at least n records. If there are not within the timeout, the test fails
// and ends. Call it from the test's goroutine.
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

// Quiet watches for d and reports whether no record came. If one comes the test fails, but goes on. First it reads
// everything that is committed when it is called: a consumer on a loaded machine may be behind.
func (c *Collector) Quiet(d time.Duration) bool {
	c.t.Helper()
	c.CatchUp()
	before, changed := c.state()
	limit := time.NewTimer(d)
	defer limit.Stop()
	for {
		select {
		case <-limit.C:
			return true
		case <-changed:
		}
		var after []Received
		if after, changed = c.state(); len(after) > len(before) {
			r := after[len(before)]
			Inexact(c.t, "a record came that must not: %s/%d/%d, key %q", r.Topic, r.Partition, r.Offset, r.Key)
			return false
		}
	}
}

// CatchUp waits until everything that is committed now is read, and reports whether it is. It gives up
// eventually: the log may end in an aborted record whose marker is behind an open transaction.
func (c *Collector) CatchUp() bool {
	ctx, cancel := context.WithTimeout(context.Background(), catchUpLimit)
	defer cancel()
	ends, err := c.committed(ctx)
	if err != nil {
		return false // a broker is unreachable, as intended by the test
	}
	for {
		_, changed := c.state()
		if c.hasRead(ends) {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// committed returns the ends of the committed records. EndTxn is answered before the markers are written that show
// this, so it waits a while for open transactions.
func (c *Collector) committed(ctx context.Context) (ends kadm.ListedOffsets, err error) {
	all, err := c.adm.ListEndOffsets(ctx, c.topics...)
	if err != nil {
		return nil, err
	}
	for until := time.Now().Add(markersLimit); ; {
		if ends, err = c.adm.ListCommittedOffsets(ctx, c.topics...); err != nil {
			return nil, err
		}
		open := false
		all.Each(func(o kadm.ListedOffset) {
			end, ok := ends.Lookup(o.Topic, o.Partition)
			open = open || ok && end.Err == nil && o.Err == nil && end.Offset < o.Offset
		})
		if !open || time.Now().After(until) {
			return ends, nil
		}
		if !beats.Sleep(ctx, markersPause) {
			return nil, ctx.Err()
		}
	}
}

func (c *Collector) hasRead(ends kadm.ListedOffsets) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	behind := false
	ends.Each(func(o kadm.ListedOffset) {
		behind = behind || o.Err == nil && c.read[partition{o.Topic, o.Partition}] < o.Offset
	})
	return !behind
}
