package partlog

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// fetchWait is how long a fetch waits at the broker for data. A partition that is added or resumed waits for the
	// fetch in flight, so it is short, and heldWait is shorter: it counts while a partition is held back.
	fetchWait, heldWait = 100 * time.Millisecond, 20 * time.Millisecond
	// leastFetch and mostFetch bound the size that a fetch requests of one partition, in bytes.
	leastFetch, mostFetch = 4 << 10, 256 << 10
	// roomPause is how long a partition waits if its sink has no room for the next record. It doubles up to
	// roomPauseMax while there is none, because the record is fetched again each time.
	roomPause, roomPauseMax = 10 * time.Millisecond, 500 * time.Millisecond
	// failPause is how long a partition waits after an error that was reported to its sink.
	failPause = 250 * time.Millisecond
	// largePatience is how long a batch that decompresses to more than firstTry stays in memory while its sink has no
	// room.
	largePatience = 200 * time.Millisecond
	// largeFetch is how long the place for a large batch is kept for a partition whose broker does not answer.
	largeFetch = 150 * time.Millisecond
	// largeTurn is how long the slot for a large batch is kept, once it is free, for the partition that has waited
	// longest. Its broker may just be waiting for data; a silent broker holds up the others no longer than this.
	largeTurn = 50 * time.Millisecond
	// damagedTries is how often a batch with a wrong checksum is fetched before it counts as unreadable: it may have
	// been damaged on its way.
	damagedTries = 5
)

// deliveryMost is the most that is delivered at once.
var deliveryMost = timer.Size{Entries: 4 << 10, Bytes: 1 << 20}

// ErrLogCut says that a log lost records that were read or acknowledged, and that others may have taken their offsets
// (KIP-320).
var ErrLogCut = errors.New("log lost acknowledged records")

// Read is a piece of a partition that a Consumer has read.
type Read struct {
	// Records are in order of offset. There are none if only the position or another field has changed.
	Records []*kgo.Record
	// Next is the offset to read next. Every committed record below it has been delivered; everything else below it
	// is a marker or was aborted. So Next is a valid position once the records are settled.
	Next int64
	// Epoch is the leader epoch of the last batch below Next, 0 if none was read. Together with Next it tells whether
	// the log was cut (KIP-320).
	Epoch Epoch
	// Stable is the last stable offset: at Stable a transaction is open if it is below the high watermark.
	Stable int64
	// End is the high watermark. If only markers and aborted records are left below that, it is the offset after the
	// last delivered record, and not above Next.
	End int64
}

// Sink receives the records of one partition. One goroutine at a time calls its methods, which must not block.
type Sink interface {
	// Room returns how much the sink accepts now. next is the memory of the next record, in bytes (see Memory). A sink
	// without room for it is asked again after a while, or when it calls Resume.
	Room(next int64) timer.Size
	// Deliver accepts a piece. A sink that has enough calls Pause, and keeps the piece.
	Deliver(r Read)
	// Skip reports a batch that is passed without reading its records. They were not aborted. A Deliver follows.
	Skip(u *Unreadable)
	// Fail reports an error from which the Consumer cannot recover, such as OFFSET_OUT_OF_RANGE. It may be called
	// repeatedly.
	Fail(err error)
}

// Consumer reads many partitions, read_committed, each from a given offset on into its own sink. It commits nothing.
//
// kgo's consumer fetches ahead, and builds every record before its caller can object. But a few kilobytes in a log can
// hold millions of records or headers. Here one bound covers all fetches in flight, over all partitions and brokers
// (plus one batch for each broker, which always comes whole), and a record is built only when its sink has room for it.
// Records without room are discarded and fetched again.
//
// There is one fetch at a time for each broker. Partitions that have waited longest come first in it, because only
// the first one with data may bring a batch that is larger than its part of the fetch. A batch that decompresses to
// more than a megabyte is delivered by a goroutine of its own, so that it delays no other partition. There is one
// such batch at a time.
//
// Locks are taken in this order: reading.deliver, then a sink's own locks, then Consumer.mu. No goroutine holds two
// deliver locks, and none calls a sink with Consumer.mu held.
type Consumer struct {
	client     *kgo.Client
	unpacked   int // the limit to which a batch may decompress, in bytes
	fetch      int // the limit of all fetches together, in bytes
	leaderless beats.Signal
	fetchers   sync.WaitGroup

	mu       sync.Mutex // guards the following fields, and the fields of readings that say so
	ctx      context.Context
	readings map[timer.TopicPartition]*reading
	leaders  map[timer.TopicPartition]found // by the last metadata
	nodes    map[int32]beats.Signal         // wakes the goroutine that fetches from a broker
	turn     uint64                         // counts turns
	large    *reading                       // has the only slot for a large batch; nil: it is free
	freed    time.Time                      // when it became free
}

// found is a partition's leader and its topic, by the metadata.
type found struct {
	node, epoch int32
	id          [16]byte
}

// reading is a partition that is read into a sink.
//
// It is idle until choose takes it for a fetch, asked until the answer comes (take), does not come (lost), or is no
// longer wanted (follow), and delivering until end. While it is delivering, the delivering goroutine owns it; otherwise
// Consumer.mu guards its fields.
type reading struct {
	sink Sink

	deliver sync.Mutex // held while it is delivering, and over other calls of the sink

	next     int64 // the offset to read next
	epoch    Epoch // of the last batch below next
	last     int64 // the offset behind the last delivered record
	reported Read  // without records: the last state that the sink knows
	damaged  int   // how often the next batch came with a wrong checksum
	oversize bool  // the next batch decompresses to more than firstTry

	// Consumer.mu guards the following fields at all times.
	log         Log
	node        int32 // the leader; NoLeader: look it up
	leader      int32 // its epoch
	ask         uint64
	state       readingState
	paused      time.Time     // since when; zero: it is not
	hold        time.Time     // not fetched before then, see Hold
	until       time.Time     // not fetched before then, for a reason of its own
	askedAt     time.Time     // when the fetch was sent that has asked for it last
	backoff     time.Duration // how long to wait after the next error that may pass, or while the sink has no room
	turn        uint64        // when it last had one
	deniedSince time.Time     // since when brokers deny that the topic exists
}

type readingState uint8

const (
	idle readingState = iota
	asked
	delivering
)

// NewConsumer returns a Consumer that uses the connections of a client which does not consume. A batch may decompress
// to unpacked bytes, and all fetches in flight may return fetch bytes.
func NewConsumer(cl *kgo.Client, unpacked, fetch int) *Consumer {
	return &Consumer{
		client: cl, unpacked: unpacked, fetch: fetch, leaderless: beats.NewSignal(),
		readings: make(map[timer.TopicPartition]*reading), leaders: make(map[timer.TopicPartition]found),
		nodes: make(map[int32]beats.Signal),
	}
}

// Add starts reading a partition at an offset into a sink, which replaces its current sink. It waits for a running call
// of that sink.
func (c *Consumer) Add(topic string, partition int32, from int64, sink Sink) {
	tp := timer.TopicPartition{Topic: topic, Partition: partition}
	r := &reading{sink: sink, next: from, last: from, node: NoLeader, leader: -1}
	r.log = Log{Topic: topic, Partition: partition}
	r.reported.Next = from
	c.mu.Lock()
	former := c.readings[tp]
	c.readings[tp] = r
	if l, known := c.leaders[tp]; known {
		c.follow(r, l)
	} else {
		c.leaderless.Send()
	}
	c.mu.Unlock()
	former.wait()
}

// Remove stops reading a partition if it is still read into this sink. It waits for a running call of the sink, and no
// call follows. So it must not be called by the sink, nor with a lock that the sink takes.
func (c *Consumer) Remove(topic string, partition int32, sink Sink) {
	tp := timer.TopicPartition{Topic: topic, Partition: partition}
	c.mu.Lock()
	r := c.readings[tp]
	if r == nil || r.sink != sink {
		c.mu.Unlock()
		return
	}
	delete(c.readings, tp)
	c.freeLarge(r)
	c.mu.Unlock()
	r.wait()
}

// wait waits for a running call of the sink. A reading that was taken out of the map gets no other.
func (r *reading) wait() {
	if r != nil {
		r.deliver.Lock()
		defer r.deliver.Unlock()
	}
}

// Pause stops fetching a partition. A sink calls Pause and Resume under one lock of its own, so that they cannot
// overtake each other.
func (c *Consumer) Pause(topic string, partition int32) {
	c.change(topic, partition, func(r *reading) { r.paused = time.Now() })
}

// Resume ends Pause. A sink that has room again calls it, also if it did not call Pause.
func (c *Consumer) Resume(topic string, partition int32) {
	c.change(topic, partition, func(r *reading) { r.paused, r.until = time.Time{}, time.Time{} })
}

// Hold stops fetching a partition for some time.
func (c *Consumer) Hold(topic string, partition int32, d time.Duration) {
	c.change(topic, partition, func(r *reading) { r.hold = time.Now().Add(d) })
}

// Release ends all calls of Hold for a topic.
func (c *Consumer) Release(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for tp, r := range c.readings {
		if tp.Topic == topic {
			r.hold = time.Time{}
			c.wake(r.node)
		}
	}
}

func (c *Consumer) change(topic string, partition int32, do func(*reading)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.readings[timer.TopicPartition{Topic: topic, Partition: partition}]; r != nil {
		do(r)
		c.wake(r.node)
	}
}

// wake wakes the goroutine that fetches from a broker. c.mu is held.
func (c *Consumer) wake(node int32) {
	if s := c.nodes[node]; s != nil {
		s.Send()
	}
}

// Run reads until ctx ends. Call it at most once.
func (c *Consumer) Run(ctx context.Context) error {
	c.mu.Lock()
	c.ctx = ctx
	c.mu.Unlock()
	c.findLeaders(ctx)
	c.mu.Lock()   // waits for a running follow, which may start a goroutine
	c.mu.Unlock() //nolint:staticcheck // after this no call of follow starts one
	c.fetchers.Wait()
	return nil
}
