package partlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

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
func (c *Consumer) exchange(ctx context.Context, node int32, sent tickets, req *kmsg.FetchRequest) error {
	kresp, err := c.client.Broker(int(node)).Request(ctx, req)
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	names := make(map[[16]byte]string, len(sent))
	for tp, t := range sent {
		names[t.id] = tp.Topic
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			tp := timer.TopicPartition{Topic: cmp.Or(t.Topic, names[t.TopicID]), Partition: p.Partition}
			if sent[tp] != nil {
				c.take(sent[tp], p)
				delete(sent, tp)
			}
		}
	}
	if len(sent) > 0 { // a throttling broker answers without partitions
		return kerr.ThrottlingQuotaExceeded
	}
	return nil
}

// ticket identifies one fetch for a reading. If the reading has been asked for again, the answer is ignored.
type ticket struct {
	*reading
	number uint64
	id     [16]byte
}

type tickets = map[timer.TopicPartition]*ticket

// choose returns the partitions to fetch from a broker now, and the request. If there are none, it returns how long
// to wait, unless the broker's goroutine is woken earlier.
func (c *Consumer) choose(node int32) (sent tickets, req *kmsg.FetchRequest, wait time.Duration) {
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
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.log.Topic, b.log.Topic),
			cmp.Compare(a.log.Partition, b.log.Partition))
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
	sent = make(tickets, len(ready))
	req = fetchRequest(patience, readCommitted)
	for _, r := range ready {
		if r.oversize {
			if c.largeTaken(now) {
				continue
			}
			c.large = r
		}
		r.state, r.ask, r.askedAt = asked, r.ask+1, now
		sent[timer.TopicPartition{Topic: r.log.Topic, Partition: r.log.Partition}] = &ticket{r, r.ask, r.log.ID}
		addFetch(req, r, int32(limit))
	}
	return sent, req, 0
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
	// The leader compares both epochs with its own log. So a former leader that does not know its successor does not
	// answer, and a log that was cut below the position is reported as such (KIP-320, KIP-595).
	p.CurrentLeaderEpoch, p.LastFetchedEpoch = r.leader, int32(r.epoch)-1
	req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
}

// fetchRequest returns a request outside of any fetch session. Only its partitions have a limit: if the limit of a
// request cuts an answer, kfake does not list the aborted transactions.
func fetchRequest(wait time.Duration, isolation int8) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(wait.Milliseconds()), 1, math.MaxInt32
	req.IsolationLevel = isolation
	return req
}

// lost makes readings idle and without a leader, because their fetch has failed.
func (c *Consumer) lost(sent tickets) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range sent {
		if t.valid() {
			c.rest(t.reading)
			t.node = NoLeader
		}
	}
	c.leaderless.Send()
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

// freeLarge gives back the slot for a large batch, if the reading has it. c.mu is held.
func (c *Consumer) freeLarge(r *reading) {
	if c.large != r {
		return
	}
	c.large, c.freed = nil, time.Now()
	for _, s := range c.nodes { // others have waited for it
		s.Send()
	}
}

// largeTaken reports whether a reading has the slot for a large batch. One whose broker does not answer loses it. c.mu
// is held.
func (c *Consumer) largeTaken(now time.Time) bool {
	return c.large != nil && (c.large.state != asked || now.Sub(c.large.askedAt) < largeFetch)
}

// yields reports whether the slot for a large batch is kept for another reading, whose last turn was before that of
// this one. c.mu is held.
func (c *Consumer) yields(r *reading, now time.Time) bool {
	if now.Sub(c.freed) >= largeTurn {
		return false
	}
	for _, o := range c.readings {
		ready := o.state == idle && o.node != NoLeader && o.paused.IsZero() && o.waits(now) <= 0
		if ready && o.oversize && o.turn < r.turn {
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

// held reports whether a reading gets no records now: it is paused, or was removed.
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

// end makes a reading idle after its part of an answer. It has had its turn, unless its next batch did not fit into the
// answer: then it must come first next time.
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
		d := &delivery{c: c, r: r, hw: p.HighWatermark, stable: p.LastStableOffset}
		d.batches = batchesOf(p, r.next, readCommitted)
		d.last.epoch = r.epoch
		if o = d.run(firstTry); o.large && c.aside(d) {
			return // with the lock
		}
		o.moved = r.next > from
	}
	t.deliver.Unlock()
	c.end(r, o)
}

// refused handles an error in a broker's answer.
func (c *Consumer) refused(r *reading, p *kmsg.FetchResponseTopicPartition) (pause time.Duration, bad bool) {
	err := kerr.ErrorForCode(p.ErrorCode)
	switch {
	case err == nil && p.DivergingEpoch.EndOffset >= 0 && p.DivergingEpoch.Epoch >= 0:
		r.sink.Fail(fmt.Errorf("%w: the leader ends at %d in epoch %d, and offset %d was reached in epoch %d",
			ErrLogCut, p.DivergingEpoch.EndOffset, p.DivergingEpoch.Epoch, r.next, int32(r.epoch)-1))
		return failPause, true
	case err == nil:
		return 0, false
	}
	if ke := (*kerr.Error)(nil); errors.As(err, &ke) && (passing(ke) || ke.Code == kerr.InconsistentTopicID.Code) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if ke.Code != kerr.UnknownLeaderEpoch.Code { // else we know the leader before it does
			r.node = NoLeader
			c.leaderless.Send()
		}
		pause = max(r.backoff, backoffMin)
		r.backoff = min(2*pause, backoffMax)
		return pause, true
	}
	r.sink.Fail(err)
	return failPause, true
}

// fail reports an error outside of an answer to a sink.
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
