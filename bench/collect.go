package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// barEvery is how often a progress bar is moved.
const barEvery = 100 * time.Millisecond

// collector is the plain consumer of a phase. Its one goroutine books into the
// ledger.
type collector struct {
	ledger *ledger
	linger time.Duration
	client *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}
}

// collect reads topic, read_committed, from its present end.
func (r *run) collect(ctx context.Context, topic string, l *ledger) (*collector, error) {
	ends, err := kadm.NewClient(r.client).ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list the ends of %s: %w", topic, err)
	}
	from := make(map[int32]kgo.Offset)
	ends.Each(func(o kadm.ListedOffset) { from[o.Partition] = kgo.NewOffset().At(o.Offset) })
	cl, err := r.newClient(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &collector{ledger: l, linger: r.linger, client: cl, cancel: cancel, done: make(chan struct{})}
	go c.run(life)
	return c, nil
}

func (c *collector) run(ctx context.Context) {
	defer close(c.done)
	for ctx.Err() == nil {
		fetches := c.client.PollFetches(ctx)
		now := time.Now()
		fetches.EachRecord(func(r *kgo.Record) { c.ledger.receive(r, now) })
	}
}

// finish waits until everything scheduled has come, plus some time more, or until ctx
// ends, and stops reading. What has not come then is lost.
func (c *collector) finish(ctx context.Context, bar *progressbar.ProgressBar) {
	t := time.NewTicker(barEvery)
	defer t.Stop()
	for waiting := true; waiting; {
		select {
		case <-c.ledger.full:
			waiting = false
		case <-ctx.Done():
			waiting = false
		case <-t.C:
			_ = bar.Set(c.ledger.received())
		}
	}
	_ = bar.Finish()
	select {
	case <-ctx.Done():
	case <-time.After(c.linger):
	}
	c.stop()
}

// stop ends reading. It may be called twice.
func (c *collector) stop() {
	c.cancel()
	<-c.done
	c.client.Close()
}
