package partlog

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
	"github.com/waterclock/waterclock/internal/timer"
)

// rigLimit bounds every wait of a test of the Consumer.
const rigLimit = 30 * time.Second

// consumerRig is a topic, and a Consumer that reads it with a client of its own.
type consumerRig struct {
	*kafkatest.Setup
	c      *Consumer
	cl     *kgo.Client // for writing
	id     [16]byte
	cancel context.CancelFunc
}

func newConsumerRig(on *kafkatest.Setup, partitions int32, fetch int) *consumerRig {
	on.T.Helper()
	made, err := on.Adm.CreateTopic(on.Ctx, partitions, 1, nil, on.Topic)
	must(on.T, err)
	r := &consumerRig{Setup: on, cl: on.Client(), id: made.ID}
	r.c = NewConsumer(on.Client(kgo.RetryTimeout(10*time.Second)), MaxUnpacked, fetch)
	return r
}

// run runs the Consumer until the test ends.
func (c *consumerRig) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = c.c.Run(ctx) })
	c.cancel = cancel
	c.T.Cleanup(func() { cancel(); running.Wait() })
}

// write writes a batch as it is.
func (c *consumerRig) write(partition int32, raw []byte) {
	c.T.Helper()
	await.Until(c.T, rigLimit, "the batch is written", func() bool {
		err := corpus.Produce(c.Ctx, c.cl, c.Topic, c.id, partition, raw)
		if err != nil && c.Fake == nil {
			c.T.Logf("write: %v", err)
		}
		return err == nil
	})
}

// produce writes records, one batch each.
func (c *consumerRig) produce(partition int32, n int) {
	c.T.Helper()
	for range n {
		if err := c.cl.ProduceSync(c.Ctx,
			&kgo.Record{Topic: c.Topic, Partition: partition, Value: []byte("v")}).FirstErr(); err != nil {
			c.T.Fatal(err)
		}
	}
}

// add reads a partition from an offset into a probe.
func (c *consumerRig) add(partition int32, from int64, p *probe) *probe {
	p.t, p.rig, p.partition, p.from, p.next = c.T, c, partition, from, from
	c.c.Add(c.Topic, partition, from, p)
	return p
}

// reading returns the state of a partition in the Consumer.
func (c *consumerRig) reading(partition int32) (state readingState, hasLarge bool) {
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	read := c.c.readings[timer.TopicPartition{Topic: c.Topic, Partition: partition}]
	return read.state, c.c.large == read
}

// probe is a sink that records deliveries, and checks that they are in order, without gaps, and within its room.
type probe struct {
	t         testing.TB
	rig       *consumerRig
	partition int32
	from      int64
	room      func(next int64) timer.Size // nil: there is always room
	on        func(Read)                  // called with each delivery; may be nil
	gaps      bool                        // offsets without a record are expected

	calling atomic.Bool
	removed atomic.Bool

	mu      sync.Mutex // guards the following fields
	granted timer.Size
	next    int64
	count   int
	read    Read // the last one, without records
	pieces  int  // deliveries with records
	skips   []*Unreadable
	errs    []error
}

// enter checks that calls come one at a time, and none after Remove.
func (p *probe) enter() func() {
	if !p.calling.CompareAndSwap(false, true) {
		p.t.Error("two calls of a sink at a time")
	}
	if p.removed.Load() {
		p.t.Error("a call of a removed sink")
	}
	return func() { p.calling.Store(false) }
}

func (p *probe) Room(next int64) timer.Size {
	defer p.enter()()
	room := timer.Unlimited
	if p.room != nil {
		room = p.room(next)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.granted = room
	return room
}

func (p *probe) Deliver(r Read) {
	defer p.enter()()
	p.mu.Lock()
	var memory int64
	for _, rec := range r.Records {
		if rec.Offset < p.next || !p.gaps && rec.Offset != p.next {
			p.t.Errorf("partition %d: offset %d is delivered, want %d", p.partition, rec.Offset, p.next)
		}
		p.next, memory = rec.Offset+1, memory+Memory(rec)
	}
	if n := len(r.Records); n > p.granted.Entries || memory > p.granted.Bytes {
		p.t.Errorf("partition %d: %d records of %d bytes are delivered, with room for %+v", p.partition, n,
			memory, p.granted)
	}
	if len(r.Records) > 0 {
		p.granted = timer.Size{}
		p.pieces++
	}
	if r.Next < p.next {
		p.t.Errorf("partition %d: next is %d behind the record %d", p.partition, r.Next, p.next-1)
	}
	p.next, p.count, p.read = r.Next, p.count+len(r.Records), r
	p.read.Records = nil
	p.mu.Unlock()
	if p.on != nil {
		p.on(r)
	}
}

func (p *probe) Skip(u *Unreadable) {
	defer p.enter()()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skips, p.next = append(p.skips, u), u.Next
}

func (p *probe) Fail(err error) {
	defer p.enter()()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errs = append(p.errs, err)
}

func (p *probe) at() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

func (p *probe) records() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

func (p *probe) failures() []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.errs)
}

func (p *probe) failed(target error) bool {
	return slices.ContainsFunc(p.failures(), func(err error) bool { return errors.Is(err, target) })
}

func (p *probe) skipped() []*Unreadable {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.skips)
}

// reads waits until everything below an offset was read.
func (p *probe) reads(to int64) {
	p.t.Helper()
	if _, came := await.Within(rigLimit, func() bool { return p.at() >= to }); !came {
		p.t.Fatalf("partition %d is read to %d of %d, failures %v, skipped %v", p.partition, p.at(), to, p.failures(),
			p.skipped())
	}
}

// remove stops the reading; the probe checks that no call follows.
func (p *probe) remove() {
	p.rig.c.Remove(p.rig.Topic, p.partition, p)
	p.removed.Store(true)
}

// entries is room for n records.
func entries(n int) timer.Size { return timer.Size{Entries: n, Bytes: timer.Unlimited.Bytes} }

// batchOf is a batch of n records with such values, at offset 0, with gzip or not.
func batchOf(n int, value []byte, zip bool) []byte {
	b := kmsg.RecordBatch{Magic: 2, LastOffsetDelta: int32(n - 1), ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: int32(n)}
	for i := range n {
		rec := kmsg.Record{OffsetDelta: int32(i), Value: value}
		rec.Length = int32(len(rec.AppendTo(nil)) - 1) // whose own size is one byte so far
		b.Records = rec.AppendTo(b.Records)
	}
	if zip {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, _ = w.Write(b.Records)
		_ = w.Close()
		b.Records, b.Attributes = out.Bytes(), 1
	}
	b.Length = int32(len(b.AppendTo(nil)) - lengthFrom)
	return sealed(b.AppendTo(nil))
}

// noRoom is the room of a full sink.
func noRoom(int64) timer.Size { return timer.Size{} }

// answerAll answers a fetch for all its partitions.
func answerAll(req *kmsg.FetchRequest,
	fill func(asked *kmsg.FetchRequestTopicPartition, p *kmsg.FetchResponseTopicPartition)) *kmsg.FetchResponse {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for i := range t.Partitions {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition = t.Partitions[i].Partition
			p.RecordBatches = []byte{}
			fill(&t.Partitions[i], &p)
			rt.Partitions = append(rt.Partitions, p)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}
