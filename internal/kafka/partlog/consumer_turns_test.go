package partlog

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
)

// scriptedBroker answers fetches as Kafka does (KIP-74): in the order of the request, whole batches that fit into the
// part of a partition, and only for the first partition with data one that does not.
type scriptedBroker struct {
	c    *Consumer
	logs map[string]func(offset int64) []byte // by topic/partition: the batch at an offset; nil: the end
	trip time.Duration
	// fetches, and the bytes in their answers
	fetches, bytes int
}

func scriptedConsumer(fetch int, parts map[string]int32) *Consumer {
	c := NewConsumer(nil, MaxUnpacked, fetch)
	resp := kmsg.NewPtrMetadataResponse()
	id := byte(0)
	for name, n := range parts {
		id++
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.TopicID = kmsg.StringPtr(name), [16]byte{id}
		for p := range n {
			mp := kmsg.NewMetadataResponseTopicPartition()
			mp.Partition, mp.Leader, mp.LeaderEpoch = p, 1, 5
			t.Partitions = append(t.Partitions, mp)
		}
		resp.Topics = append(resp.Topics, t)
	}
	c.learn(resp)
	return c
}

// run serves fetches for some time, or until done.
func (s *scriptedBroker) run(t *testing.T, d time.Duration, done func() bool) {
	ctx, cancel := context.WithCancel(context.Background())
	s.c.mu.Lock()
	s.c.ctx = ctx
	s.c.mu.Unlock()
	defer s.c.fetchers.Wait()
	defer cancel()
	for end := time.Now().Add(d); time.Now().Before(end) && !done(); {
		of, req, wait := s.c.choose(1)
		if len(of) == 0 {
			await.For(t, min(wait, time.Millisecond))
			continue
		}
		s.fetches++
		await.For(t, s.trip)
		one := true
		for i := range req.Topics {
			rt := &req.Topics[i]
			for j := range rt.Partitions {
				rp := &rt.Partitions[j]
				p := kmsg.NewFetchResponseTopicPartition()
				p.Partition, p.HighWatermark, p.LastStableOffset = rp.Partition, 1<<40, 1<<40
				log := s.logs[fmt.Sprintf("%s/%d", rt.Topic, rp.Partition)]
				if log == nil {
					p.HighWatermark, p.LastStableOffset = rp.FetchOffset, rp.FetchOffset
				} else {
					for at := rp.FetchOffset; ; at++ {
						raw := log(at)
						if raw == nil || len(p.RecordBatches)+len(raw) > int(rp.PartitionMaxBytes) && !one {
							break
						}
						p.RecordBatches, one = append(p.RecordBatches, raw...), false
					}
				}
				s.bytes += len(p.RecordBatches)
				for _, tk := range of {
					if tk.log.Topic == rt.Topic && tk.log.Partition == rp.Partition {
						s.c.take(tk, &p)
					}
				}
			}
		}
	}
}

func scriptedOnly(offset int64, raw []byte) func(int64) []byte {
	return func(at int64) []byte {
		if at != offset {
			return nil
		}
		return raw
	}
}

// endless is a log of batches of one record at every offset.
func scriptedEndless(size int) func(int64) []byte {
	return func(at int64) []byte { return rebased(batchOf(1, make([]byte, size), false), at) }
}

// The partitions of a topic are together in a request, at the place of the one whose turn was longest ago. An idle
// partition never has a turn. So it puts a busy one of its topic before all other topics, and a batch there that is
// larger than its part of a fetch never comes.
func TestAnIdlePartitionDoesNotPutItsTopicFirst(t *testing.T) {
	c := scriptedConsumer(4<<20, map[string]int32{"a": 2, "b": 1})
	idle, busy, other := &probe{t: t}, &probe{t: t}, &probe{t: t}
	c.Add("a", 0, 0, idle)
	c.Add("a", 1, 0, busy)
	c.Add("b", 0, 0, other)
	b := &scriptedBroker{c: c, trip: time.Millisecond, logs: map[string]func(int64) []byte{
		"a/1": scriptedEndless(1 << 10), "b/0": scriptedOnly(0, batchOf(1, make([]byte, 300<<10), false)),
	}}
	b.run(t, 3*time.Second, func() bool { return other.records() > 0 })
	if other.records() == 0 {
		t.Errorf("%d fetches brought %d records of a/1, and none of b/0, whose next batch has 300 KiB",
			b.fetches, busy.records())
	}
}

// Partitions whose sinks have no room keep their place before all others.
func TestPartitionsWithoutRoomDoNotStarveOthers(t *testing.T) {
	const n = 32
	c := scriptedConsumer(4<<20, map[string]int32{"a": n, "b": 1})
	b := &scriptedBroker{c: c, trip: time.Millisecond, logs: make(map[string]func(int64) []byte)}
	large := batchOf(1, make([]byte, 300<<10), false)
	for p := range int32(n) {
		c.Add("a", p, 0, &probe{t: t, room: noRoom})
		b.logs[fmt.Sprintf("a/%d", p)] = scriptedOnly(0, large)
	}
	other := &probe{t: t}
	c.Add("b", 0, 0, other)
	b.logs["b/0"] = scriptedOnly(0, large)
	b.run(t, 3*time.Second, func() bool { return other.records() > 0 })
	if other.records() == 0 {
		t.Errorf("%d fetches brought nothing of b/0, whose sink has room: all went to the %d partitions whose sinks "+
			"have none", b.fetches, n)
	}
}

// A sink without room is asked with another fetch every 10 ms, for as long as it has none.
func TestASinkWithoutRoomCostsLittle(t *testing.T) {
	const n = 64
	c := scriptedConsumer(4<<20, map[string]int32{"a": n})
	b := &scriptedBroker{c: c, trip: time.Millisecond, logs: make(map[string]func(int64) []byte)}
	batch := batchOf(1, make([]byte, 15<<10), false)
	for p := range int32(n) {
		c.Add("a", p, 0, &probe{t: t, room: noRoom})
		b.logs[fmt.Sprintf("a/%d", p)] = func(at int64) []byte {
			if at > 3 {
				return nil
			}
			raw := bytes.Clone(batch)
			binary.BigEndian.PutUint64(raw, uint64(at))
			return raw
		}
	}
	const d = 2 * time.Second
	b.run(t, d, func() bool { return false })
	if per := float64(b.bytes) / d.Seconds() / (1 << 20); per > 20 {
		t.Errorf("%d partitions whose sinks have no room: %.0f fetches and %.0f MiB a second, all dropped", n,
			float64(b.fetches)/d.Seconds(), per)
	}
}

// All fetches in flight together return no more than the bound (and one batch for each broker).
func TestAFetchOfManyPartitionsIsBounded(t *testing.T) {
	for _, tt := range []struct {
		what       string
		fetch      int
		partitions int32
	}{
		{"requests, --memory 256MiB", 4 << 20, 2048},
		{"one of 32 streams of events", 64 << 10, 256},
		{"a read of dead letters", 256 << 10, 256},
	} {
		c := scriptedConsumer(tt.fetch, map[string]int32{"a": tt.partitions})
		for p := range tt.partitions {
			c.Add("a", p, 0, &probe{t: t})
		}
		_, req, _ := c.choose(1)
		sum := 0
		for _, rt := range req.Topics {
			for _, rp := range rt.Partitions {
				sum += int(rp.PartitionMaxBytes)
			}
		}
		if sum = min(sum, int(req.MaxBytes)); sum > tt.fetch+mostFetch {
			t.Errorf("%s: one fetch of %d partitions may bring %d KiB, the bound is %d KiB", tt.what, tt.partitions,
				sum>>10, tt.fetch>>10)
		}
	}
}

// A batch that cannot be read, behind records that exceed a quota, ends the hold that the quota has set.
func TestAnUnreadableBatchDoesNotEndAHold(t *testing.T) {
	c := scriptedConsumer(4<<20, map[string]int32{"a": 1})
	s := &probe{t: t}
	s.on = func(Read) {
		if s.records() > 0 {
			c.Hold("a", 0, time.Hour)
		}
	}
	c.Add("a", 0, 0, s)
	garbage := rebased(batchOf(1, []byte("v"), true), 1)
	garbage[batchHeader] ^= 0xff // gzip's magic
	garbage = sealed(garbage)
	of, _, _ := c.choose(1)
	p := kmsg.NewFetchResponseTopicPartition()
	p.HighWatermark, p.LastStableOffset = 2, 2
	p.RecordBatches = append(batchOf(1, []byte("v"), false), garbage...)
	for _, tk := range of {
		c.take(tk, &p)
		if left := tk.waits(time.Now()); left < time.Minute {
			t.Errorf("%d record was delivered and the sink's partition held for an hour, which now lasts %s",
				s.records(), left)
		}
	}
}

// No field of a batch with a wrong checksum can be trusted, and another fetch may return it whole. It must neither be
// taken for one below the position, nor decide where reading goes on.
func TestADamagedHeaderLosesNothing(t *testing.T) {
	for name, delta := range map[string]uint32{"a delta below zero": 1 << 31, "a huge delta": 1<<30 | 2} {
		t.Run(name, func(t *testing.T) {
			c := scriptedConsumer(4<<20, map[string]int32{"a": 1})
			s := &probe{t: t, next: 5}
			c.Add("a", 0, 5, s)
			for range damagedTries + 1 {
				c.Resume("a", 0) // without the pause
				of, _, _ := c.choose(1)
				p := kmsg.NewFetchResponseTopicPartition()
				p.HighWatermark, p.LastStableOffset = 9, 9
				bad := batch(5, 3, 3)
				binary.BigEndian.PutUint32(bad[23:], delta) // LastOffsetDelta
				p.RecordBatches = append(bad, batch(8, 1, 1)...)
				for _, tk := range of {
					if tk.next > 9 {
						t.Fatalf("the position is %d, in a log that ends at 9 (%v)", tk.next, s.skips)
					}
					c.take(tk, &p)
				}
				if s.records() > 0 {
					break
				}
			}
			r := c.readings[timer.TopicPartition{Topic: "a"}]
			if len(s.skips) == 0 && r.next > 5 || r.next > 9 {
				t.Errorf("%d records, position %d, %d batches skipped: the records 5 to 7 are lost without a dead "+
					"letter", s.records(), r.next, len(s.skips))
			}
		})
	}
}

// Metadata of a broker that is behind must not lead back to a former leader (kgo ignores an older epoch, KIP-320).
func TestMetadataThatIsBehindDoesNotCount(t *testing.T) {
	c := scriptedConsumer(4<<20, map[string]int32{"a": 1}) // node 1, epoch 5
	c.Add("a", 0, 0, &probe{t: t})
	resp := kmsg.NewPtrMetadataResponse()
	mt := kmsg.NewMetadataResponseTopic()
	mt.Topic, mt.TopicID = kmsg.StringPtr("a"), [16]byte{1}
	mp := kmsg.NewMetadataResponseTopicPartition()
	mp.Leader, mp.LeaderEpoch = 2, 4
	mt.Partitions = append(mt.Partitions, mp)
	resp.Topics = append(resp.Topics, mt)
	c.learn(resp)
	if r := c.readings[timer.TopicPartition{Topic: "a"}]; r.node != 1 || r.leader != 5 {
		t.Errorf("reads from node %d in epoch %d, which node 1 has succeeded in epoch 5", r.node, r.leader)
	}
}

// The large slot, given back, is kept for the partition that has waited for the longest time, on whichever broker, but
// not for long.
func TestTheLargeSlotGoesRound(t *testing.T) {
	c := scriptedConsumer(4<<20, map[string]int32{"a": 1, "b": 1})
	c.Add("a", 0, 0, &probe{t: t})
	c.Add("b", 0, 0, &probe{t: t})
	a, b := c.readings[timer.TopicPartition{Topic: "a"}], c.readings[timer.TopicPartition{Topic: "b"}]
	b.node, a.oversize, b.oversize, a.turn, b.turn = 2, true, true, 1, 2
	c.freed = time.Now().Add(time.Hour) // now, however slow the machine
	if of, _, _ := c.choose(2); len(of) > 0 {
		t.Error("b/0, which had it last, is asked for before a/0")
	}
	c.freed = time.Now().Add(-largeTurn)
	if of, _, _ := c.choose(2); len(of) != 1 {
		t.Error("b/0 waits for a broker that does not ask for a/0")
	}
	c.large, b.state, c.freed = nil, idle, time.Now().Add(time.Hour)
	if of, _, _ := c.choose(1); len(of) != 1 {
		t.Error("a/0 is not asked for")
	}
}

// A broker that hangs must not keep the large slot from partitions of other brokers.
func TestAHangingBrokerDoesNotKeepTheLargeSlot(t *testing.T) {
	c := scriptedConsumer(4<<20, map[string]int32{"a": 1, "b": 1})
	c.Add("a", 0, 0, &probe{t: t})
	c.Add("b", 0, 0, &probe{t: t})
	a, b := c.readings[timer.TopicPartition{Topic: "a"}], c.readings[timer.TopicPartition{Topic: "b"}]
	b.node, a.oversize, b.oversize = 2, true, true
	if of, _, _ := c.choose(1); len(of) != 1 {
		t.Fatal("a/0 is not asked for")
	}
	await.For(t, 2*fetchWait) // its broker does not answer
	if of, _, wait := c.choose(2); len(of) != 1 {
		t.Errorf("b/0 of another broker waits (%s and more) for an answer that does not come", wait)
	}
}
