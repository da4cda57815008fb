package partlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// fetchWait is how long a fetch waits at the broker for data. A partition that is added or resumed waits for the
	// fetch under way, so it is short, and heldWait is shorter: it counts while a partition is held back.
	fetchWait, heldWait = 100 * time.Millisecond, 20 * time.Millisecond
	// leastFetch and mostFetch bound how much of one partition a fetch asks for, in bytes.
	leastFetch, mostFetch = 4 << 10, 256 << 10
	// roomPause is how long a partition waits whose sink has no room for the next record. It doubles up to roomPauseMax
	// while that is so, because each time the record is fetched again.
	roomPause, roomPauseMax = 10 * time.Millisecond, 500 * time.Millisecond
	// failPause is how long a partition waits after an error that its sink was told of.
	failPause = 250 * time.Millisecond
	// largePatience is how long a batch that decompresses to more than firstTry stays in memory while its sink has no room.
	largePatience = 200 * time.Millisecond
	// largeFetch is how long the place for a large batch is kept for a partition whose broker does not answer.
	largeFetch = 150 * time.Millisecond
	// largeTurn is how long the place for a large batch is kept, once it is free, for the partition that has waited longest.
	// Its broker may just be waiting for data; a broker that is silent holds up the others no longer than this.
	largeTurn = 50 * time.Millisecond
	// damagedTries is how often a batch with a wrong checksum is fetched before it counts as unreadable: it may have
	// been damaged on its way.
	damagedTries = 5
)

// deliveryMost is the most that is delivered at once.
var deliveryMost = timer.Size{Entries: 4 << 10, Bytes: 1 << 20}

// ErrLogCut says that a log lost records that were read, and that others may stand in their place (KIP-320).
var ErrLogCut = errors.New("the log was cut below what was read")

// Read is what a Consumer has read of a partition.
type Read struct {
	// Records are in order of offset. There are none if only the position has moved, or something else has changed.
	Records []*kgo.Record
	// Next is the offset to read next. Every committed record below it was delivered, now or before; what else there is
	// below it are markers and aborted records. So once the records are settled, Next is a position.
	Next int64
	// Epoch is the leader epoch of the last batch below Next, 0 if none was read. Together with Next it tells whether the
	// log was cut (KIP-320).
	Epoch Epoch
	// Stable is the last stable offset: at Stable a transaction is open if it is below the high watermark.
	Stable int64
	// End is the end of the log. If only markers and aborted records follow the last delivered record, it is the offset
	// behind that record, and not above Next.
	End int64
}

// Sink receives what is read of one partition. Its methods are called by one goroutine at a time, and must not block.
type Sink interface {
	// Room returns how much the sink takes now. The next record takes this many bytes (see Memory). A sink that has no
	// room for it is asked again soon, unless it calls Pause.
	Room(next int64) timer.Size
	// Deliver takes what was read. A sink that has enough calls Pause and keeps what it got.
	Deliver(r Read)
	// Skip says that a batch is passed, and that nobody has looked at its records. They were not aborted.
	Skip(u *Unreadable)
	// Fail tells of an error that the Consumer cannot recover from, such as OFFSET_OUT_OF_RANGE. It may be called
	// repeatedly.
	Fail(err error)
}

// Consumer reads many partitions, read_committed, each from a given offset on into its own sink. It commits nothing.
//
// It exists because kgo's consumer fetches ahead and builds each record before anybody can say that it is too much. A
// broker takes millions of records, or of headers, in a few kilobytes. Here what is fetched at a time has one bound for
// all partitions and brokers together (plus one batch for each broker, which comes whole however large it is), and records
// are built when their sink has room for them. What a sink has no room for is dropped and fetched again.
//
// For each broker there is one fetch at a time. The partitions whose turn was longest ago stand first in it, because only
// the first one with data brings a batch that is larger than its part of the fetch. A batch that decompresses to more than
// a megabyte goes aside, so that it holds up nobody else. There is room for one of them at a time.
type Consumer struct {
	client   *kgo.Client
	unpacked int // what a batch may decompress to, in bytes
	fetch    int // what all fetches may bring together, in bytes
	unled    beats.Signal
	fetchers sync.WaitGroup

	mu       sync.Mutex // guards the following fields, and in readings what is said there
	ctx      context.Context
	readings map[timer.TopicPartition]*reading
	leaders  map[timer.TopicPartition]found // by the last metadata
	nodes    map[int32]beats.Signal         // wakes the goroutine that fetches from a broker
	turn     uint64                         // counts turns
	large    *reading                       // has the one room for a large batch; nil: it is free
	freed    time.Time                      // when it became free
}

// found is a partition's leader and its topic, as metadata have them.
type found struct {
	node, epoch int32
	id          [16]byte
}

// reading is a partition that is read into a sink.
//
// It is idle until a fetch asks for it, and idle again when its part of the answer is delivered. The goroutine that delivers
// owns it meanwhile; otherwise Consumer.mu guards its fields.
type reading struct {
	sink Sink

	deliver sync.Mutex // held while the sink is called

	next     int64 // the offset to read next
	epoch    Epoch // of the last batch below next
	last     int64 // the offset behind the last delivered record
	told     Read  // without records: what the sink knows
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

// NewConsumer returns a Consumer that uses the connections of a client which does not consume. A batch may decompress to
// unpacked bytes, and all fetches under way may bring fetch bytes.
func NewConsumer(cl *kgo.Client, unpacked, fetch int) *Consumer {
	return &Consumer{
		client: cl, unpacked: unpacked, fetch: fetch, unled: beats.NewSignal(),
		readings: make(map[timer.TopicPartition]*reading), leaders: make(map[timer.TopicPartition]found), nodes: make(map[int32]beats.Signal),
	}
}

// Add starts reading a partition at an offset into a sink, which replaces the sink it had. It waits for a call of that
// sink that is under way.
func (c *Consumer) Add(topic string, partition int32, from int64, sink Sink) {
	tp := timer.TopicPartition{Topic: topic, Partition: partition}
	r := &reading{sink: sink, next: from, last: from, log: Log{Topic: topic, Partition: partition}, node: NoLeader, leader: -1}
	r.told.Next = from
	c.mu.Lock()
	former := c.readings[tp]
	c.readings[tp] = r
	if l, known := c.leaders[tp]; known {
		c.follow(r, l)
	} else {
		c.unled.Send()
	}
	c.mu.Unlock()
	former.wait()
}

// Remove stops reading a partition if it is still read into this sink. It waits for a call of the sink that is under way;
// after it none runs or begins. So it must not be called by the sink, nor with a lock that the sink takes.
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

// wait waits for a call of the sink that is under way. A reading that was taken out of the map gets no other.
func (r *reading) wait() {
	if r != nil {
		r.deliver.Lock()
		defer r.deliver.Unlock()
	}
}

// Pause stops fetching a partition. A sink calls Pause and Resume under one lock of its own, so that they cannot overtake
// each other.
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

// Run reads until ctx ends. It is called once at most.
func (c *Consumer) Run(ctx context.Context) error {
	c.mu.Lock()
	c.ctx = ctx
	c.mu.Unlock()
	c.findLeaders(ctx)
	c.mu.Lock()   // a follow that is under way may start a goroutine
	c.mu.Unlock() //nolint:staticcheck // later ones start none
	c.fetchers.Wait()
	return nil
}

// leadersRefresh is how often leaders are looked up: a broker that does not respond does not say that it leads no more.
const leadersRefresh = 5 * time.Second

// findLeaders looks for leaders every leadersRefresh, soon while a partition has none, and when it is woken.
func (c *Consumer) findLeaders(ctx context.Context) {
	wait := backoffMin
	for beats.Sleep(ctx, backoffMin) {
		topics, _ := c.topics()
		c.learnLeaders(ctx, topics)
		pause := leadersRefresh
		if _, unled := c.topics(); unled {
			pause, wait = wait, min(2*wait, backoffMax)
		} else {
			wait = backoffMin
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-c.unled:
		case <-t.C:
		}
		t.Stop()
	}
}

// topics returns the topics that are read, and whether a partition of them has no leader that is known.
func (c *Consumer) topics() (names []string, unled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	set := make(map[string]bool)
	for tp, r := range c.readings {
		set[tp.Topic] = true
		unled = unled || r.node == NoLeader
	}
	return slices.Sorted(maps.Keys(set)), unled
}

func (c *Consumer) learnLeaders(ctx context.Context, topics []string) {
	if len(topics) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leadersRefresh) // another broker may answer
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil || resp.ErrorCode != 0 {
		return // asked again
	}
	for _, r := range c.learn(resp) {
		c.fail(r, fmt.Errorf("find %v: %w", r.log, ErrTopicGone))
	}
}

// learn takes leaders from metadata. It returns the readings of topics that are gone.
func (c *Consumer) learn(resp *kmsg.MetadataResponse) (gone []*reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	denied, whole, listed := make(map[string]bool), make(map[string]bool), make(map[timer.TopicPartition]bool)
	clear(c.leaders)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic == nil {
			continue
		}
		err := kerr.ErrorForCode(t.ErrorCode)
		denied[*t.Topic] = errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
		whole[*t.Topic] = err == nil
		for j := range t.Partitions {
			p := &t.Partitions[j]
			tp := timer.TopicPartition{Topic: *t.Topic, Partition: p.Partition}
			if listed[tp] = true; p.Leader >= 0 {
				c.leaders[tp] = found{p.Leader, p.LeaderEpoch, t.TopicID}
			}
		}
	}
	for tp, r := range c.readings {
		l, known := c.leaders[tp]
		other := known && r.log.ID != [16]byte{} && r.log.ID != l.id
		missing := whole[tp.Topic] && !listed[tp] // the topic was made again with fewer partitions
		switch {
		case !other && !missing && !denied[tp.Topic]:
			if r.deniedSince = (time.Time{}); known {
				c.follow(r, l)
			}
		case r.deniedSince.IsZero():
			r.deniedSince = time.Now()
		case time.Since(r.deniedSince) >= goneAfter:
			gone = append(gone, r)
		}
	}
	return gone
}

// follow makes a reading ask this leader. c.mu is held.
func (c *Consumer) follow(r *reading, l found) {
	if l.node == r.node && l.epoch == r.leader || l.id == r.log.ID && l.epoch < r.leader { // metadata may be behind
		return
	}
	if r.state == asked { // of the former leader, whose answer would be too late
		r.ask++
		c.rest(r)
	}
	if r.node, r.leader = l.node, l.epoch; r.log.ID != l.id {
		r.log.ID = l.id
	}
	if c.nodes[r.node] == nil && c.ctx != nil && c.ctx.Err() == nil {
		wake := beats.NewSignal()
		c.nodes[r.node] = wake
		c.fetchers.Go(func() { c.fetchFrom(c.ctx, l.node, wake) })
	}
	c.wake(r.node)
}

// fetchFrom fetches from one broker until ctx ends.
func (c *Consumer) fetchFrom(ctx context.Context, node int32, wake beats.Signal) {
	for backoff := backoffMin; ctx.Err() == nil; {
		of, req, wait := c.choose(node)
		if len(of) == 0 {
			pause := time.NewTimer(wait)
			select {
			case <-ctx.Done():
			case <-wake:
			case <-pause.C:
			}
			pause.Stop()
			continue
		}
		if err := c.exchange(ctx, node, of, req); err == nil {
			backoff = backoffMin
			continue
		}
		c.lost(of)
		pause(ctx, backoff)
		backoff = min(2*backoff, backoffMax)
	}
}

// exchange sends a fetch and delivers the answer.
func (c *Consumer) exchange(ctx context.Context, node int32, of map[timer.TopicPartition]*ticket, req *kmsg.FetchRequest) error {
	kresp, err := c.client.Broker(int(node)).Request(ctx, req)
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	names := make(map[[16]byte]string, len(of))
	for tp, t := range of {
		names[t.id] = tp.Topic
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			tp := timer.TopicPartition{Topic: cmp.Or(t.Topic, names[t.TopicID]), Partition: p.Partition}
			if of[tp] != nil {
				c.take(of[tp], p)
				delete(of, tp)
			}
		}
	}
	if len(of) > 0 { // a broker that throttles us answers without partitions
		return kerr.ThrottlingQuotaExceeded
	}
	return nil
}

// ticket says that a fetch has asked for a reading. If somebody else has meanwhile, the answer is not for it any more.
type ticket struct {
	*reading
	number uint64
	id     [16]byte
}

// choose returns what is to be fetched from a broker now, and the request. If there is nothing, wait is how long that is so
// at most, unless the broker is woken.
func (c *Consumer) choose(node int32) (of map[timer.TopicPartition]*ticket, req *kmsg.FetchRequest, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	var ready []*reading
	brokers, held := make(map[int32]bool), false
	wait = leadersRefresh
	for _, r := range c.readings {
		brokers[r.node] = true
		switch {
		case r.node != node || r.state != idle:
		case !r.paused.IsZero():
			held = held || now.Sub(r.paused) < time.Second
		case r.oversize && c.largeTaken(now):
			held, wait = true, min(wait, largeFetch)
		case r.waits(now) > 0:
			wait = min(wait, r.waits(now))
			held = held || wait < fetchWait
		case r.oversize && c.yields(r, now):
			held, wait = true, min(wait, largeTurn)
		default:
			ready = append(ready, r)
		}
	}
	slices.SortFunc(ready, func(a, b *reading) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.log.Topic, b.log.Topic), cmp.Compare(a.log.Partition, b.log.Partition))
	})
	if len(ready) == 0 {
		return nil, nil, wait
	}
	share := c.fetch / len(brokers)
	if most := max(1, share/leastFetch); len(ready) > most { // the others come next
		ready, held = ready[:most], true
	}
	limit := min(max(share/len(ready), leastFetch), mostFetch)
	patience := fetchWait
	if held {
		patience = min(heldWait, wait)
	}
	of = make(map[timer.TopicPartition]*ticket, len(ready))
	req = fetchRequest(patience, readCommitted)
	for _, r := range ready {
		if r.oversize {
			if c.largeTaken(now) {
				continue
			}
			c.large = r
		}
		r.state, r.ask, r.askedAt = asked, r.ask+1, now
		of[timer.TopicPartition{Topic: r.log.Topic, Partition: r.log.Partition}] = &ticket{r, r.ask, r.log.ID}
		addFetch(req, r, int32(limit))
	}
	return of, req, 0
}

// addFetch adds a partition to a request.
func addFetch(req *kmsg.FetchRequest, r *reading, limit int32) {
	i := len(req.Topics) - 1
	if i < 0 || req.Topics[i].Topic != r.log.Topic { // a topic may come more than once: the order is that of turns
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = r.log.Topic, r.log.ID
		req.Topics = append(req.Topics, t)
		i++
	}
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = r.log.Partition, r.next, limit
	// The leader compares both epochs with its own log. So a former leader that has not heard of its successor does not
	// answer, and a log that was cut below what was read is told as such (KIP-320, KIP-595).
	p.CurrentLeaderEpoch, p.LastFetchedEpoch = r.leader, int32(r.epoch)-1
	req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
}

// fetchRequest returns a request outside of any fetch session. Only its partitions have a limit: if the limit of a
// request cuts an answer, kfake does not list the aborted transactions.
func fetchRequest(wait time.Duration, isolation int8) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.IsolationLevel = int32(wait.Milliseconds()), 1, math.MaxInt32, isolation
	return req
}

// lost makes partitions look for their leader: what was asked of it did not come.
func (c *Consumer) lost(of map[timer.TopicPartition]*ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range of {
		if t.valid() {
			c.rest(t.reading)
			t.node = NoLeader
		}
	}
	c.unled.Send()
}

// waits is how long a reading is not to be fetched yet.
func (r *reading) waits(now time.Time) time.Duration {
	return max(r.hold.Sub(now), r.until.Sub(now))
}

func (t *ticket) valid() bool { return t.state == asked && t.ask == t.number }

// rest makes a reading idle. c.mu is held.
func (c *Consumer) rest(r *reading) {
	r.state = idle
	c.freeLarge(r)
	c.wake(r.node)
}

// freeLarge gives back the room for a large batch, if the reading has it. c.mu is held.
func (c *Consumer) freeLarge(r *reading) {
	if c.large != r {
		return
	}
	c.large, c.freed = nil, time.Now()
	for _, s := range c.nodes { // others have waited for it
		s.Send()
	}
}

// largeTaken reports whether a reading has the room for a large batch. One whose broker does not answer loses it. c.mu is
// held.
func (c *Consumer) largeTaken(now time.Time) bool {
	return c.large != nil && (c.large.state != asked || now.Sub(c.large.askedAt) < largeFetch)
}

// yields reports whether the room for a large batch is kept for another reading, whose turn was longer ago. c.mu is held.
func (c *Consumer) yields(r *reading, now time.Time) bool {
	if now.Sub(c.freed) >= largeTurn {
		return false
	}
	for _, o := range c.readings {
		if o.state == idle && o.oversize && o.turn < r.turn && o.node != NoLeader && o.paused.IsZero() && o.waits(now) <= 0 {
			return true
		}
	}
	return false
}

// begin reports whether an answer is for the reading that asked, which belongs to the caller from then on.
func (c *Consumer) begin(t *ticket) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !t.valid() {
		return false
	}
	if !c.current(t.reading) {
		c.rest(t.reading)
		return false
	}
	t.state = delivering
	return true
}

// current reports whether a reading is still wanted. c.mu is held.
func (c *Consumer) current(r *reading) bool {
	return c.readings[timer.TopicPartition{Topic: r.log.Topic, Partition: r.log.Partition}] == r
}

// held reports whether nothing is to be delivered to a reading now: it is paused, or was removed.
func (c *Consumer) held(r *reading) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !r.paused.IsZero() || r.hold.After(time.Now()) || !c.current(r)
}

func (c *Consumer) removed(r *reading) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.current(r)
}

// end makes a reading idle whose part of an answer was dealt with. It has had its turn, unless its next batch did not fit
// into the answer: then it must come to stand first.
func (c *Consumer) end(r *reading, o outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case o.moved:
		r.backoff = 0
	case o.pause == roomPause:
		o.pause = max(r.backoff, roomPause)
		r.backoff = min(2*o.pause, roomPauseMax)
	}
	if o.pause > 0 && r.paused.IsZero() { // otherwise Resume ends it
		r.until = time.Now().Add(o.pause)
	}
	if !o.cut || o.moved {
		c.turn++
		r.turn = c.turn
	}
	c.rest(r)
}

// take delivers one partition's part of an answer.
func (c *Consumer) take(t *ticket, p *kmsg.FetchResponseTopicPartition) {
	t.deliver.Lock()
	if !c.begin(t) {
		t.deliver.Unlock()
		return
	}
	r := t.reading
	pause, bad := c.refused(r, p)
	o, from := outcome{pause: pause}, r.next
	if !bad {
		d := &delivery{c: c, r: r, batches: batchesOf(p, r.next, readCommitted), hw: p.HighWatermark, stable: p.LastStableOffset}
		d.last.epoch = r.epoch
		if o = d.run(firstTry); o.large && c.aside(d) {
			return // with the lock
		}
		o.moved = r.next > from
	}
	t.deliver.Unlock()
	c.end(r, o)
}

// refused deals with an error that a broker has answered.
func (c *Consumer) refused(r *reading, p *kmsg.FetchResponseTopicPartition) (pause time.Duration, bad bool) {
	err := kerr.ErrorForCode(p.ErrorCode)
	switch {
	case err == nil && p.DivergingEpoch.EndOffset >= 0 && p.DivergingEpoch.Epoch >= 0:
		r.sink.Fail(fmt.Errorf("%w: the leader has records up to %d in epoch %d, and %d was read in epoch %d",
			ErrLogCut, p.DivergingEpoch.EndOffset, p.DivergingEpoch.Epoch, r.next, int32(r.epoch)-1))
		return failPause, true
	case err == nil:
		return 0, false
	}
	if ke := (*kerr.Error)(nil); errors.As(err, &ke) && (passing(ke) || ke.Code == kerr.InconsistentTopicID.Code) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if ke.Code != kerr.UnknownLeaderEpoch.Code { // then we know the leader before it does
			r.node = NoLeader
			c.unled.Send()
		}
		pause = max(r.backoff, backoffMin)
		r.backoff = min(2*pause, backoffMax)
		return pause, true
	}
	r.sink.Fail(err)
	return failPause, true
}

// fail tells a sink of an error outside of an answer.
func (c *Consumer) fail(r *reading, err error) {
	r.deliver.Lock()
	defer r.deliver.Unlock()
	c.mu.Lock()
	current := c.current(r)
	c.mu.Unlock()
	if current {
		r.sink.Fail(err)
	}
}
