package partlog

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
	"github.com/waterclock/waterclock/internal/timer"
)

var consumerSeed = flag.Uint64("consumer-seed", 0, "seed of TestConsumerInRandomRooms; 0: a new one")

// The size of the fetches in flight is bounded over all brokers together, unless that is less than leastFetch for a
// partition.
func TestFetchesAreBounded(t *testing.T) {
	const brokers, partitions = 2, 40
	for _, fetch := range []int{64 << 10, 1 << 20, 32 << 20} {
		on := kafkatest.OnFake(t, brokers)
		rig := newConsumerRig(on, partitions, fetch)
		var mu sync.Mutex
		asked := make(map[int32]bool)
		most := 0
		on.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1,
			When: func(req kmsg.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				sum, n := 0, 0
				for _, topic := range req.(*kmsg.FetchRequest).Topics {
					for _, p := range topic.Partitions {
						asked[p.Partition] = true
						sum, n = sum+int(p.PartitionMaxBytes), n+1
						if p.PartitionMaxBytes < leastFetch || p.PartitionMaxBytes > mostFetch {
							t.Errorf("a fetch asks for %d bytes of a partition", p.PartitionMaxBytes)
						}
					}
				}
				most = max(most, sum)
				if sum > max(fetch/brokers, n*leastFetch) {
					t.Errorf("a fetch from one of %d brokers asks for %d bytes of %d partitions; the bound is %d",
						brokers,
						sum, n, fetch)
				}
				return true
			}})
		for p := range int32(partitions) {
			rig.produce(p, 1)
			rig.add(p, 0, &probe{})
		}
		rig.run()
		await.Until(t, rigLimit, "all are asked for",
			func() bool { mu.Lock(); defer mu.Unlock(); return len(asked) == partitions })
		mu.Lock()
		if most < min(fetch/brokers, mostFetch)/2 {
			t.Errorf("a fetch asks for %d bytes at most, of %d", most, fetch)
		}
		mu.Unlock()
		rig.cancel()
	}
}

// Batches that are larger than a partition's part of a fetch come only if the partition is first. Each gets its turn.
func TestLargerBatchesTakeTurns(t *testing.T) {
	const partitions, batches = 40, 4
	rig := newConsumerRig(kafkatest.OnFake(t, 1), partitions, 1<<20) // 26 KiB for each
	raw := batchOf(1, make([]byte, 40<<10), false)
	var mu sync.Mutex
	turns := make([]int, partitions)
	for p := range int32(partitions) {
		for range batches {
			rig.write(p, raw)
		}
		rig.add(p, 0, &probe{on: func(r Read) {
			mu.Lock()
			defer mu.Unlock()
			if turns[p] += len(r.Records); turns[p] > slices.Min(turns)+2 {
				t.Errorf("partition %d has had %d turns, and another one %d", p, turns[p], slices.Min(turns))
			}
		}})
	}
	rig.run()
	await.Until(t, rigLimit, "all are read",
		func() bool { mu.Lock(); defer mu.Unlock(); return slices.Min(turns) == batches })
}

// A sink gets no more at a time than it has room for, and each record once, while it pauses, resumes and is replaced.
func TestConsumerInRandomRooms(t *testing.T) {
	seed := *consumerSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-consumer-seed=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const partitions, brokers = 5, 2
	rig := newConsumerRig(kafkatest.OnFake(t, brokers), partitions, 100<<10)
	ends := make([]int64, partitions)
	zstd := caseOf(t, "sound: 2000 records, zstd").Batch(corpus.Nobody(time.UnixMilli(0)))
	bad := caseOf(t, undecodable).Batch(corpus.Nobody(time.UnixMilli(0)))
	for p := range int32(partitions) {
		for range 12 {
			raw := batchOf(1+random.IntN(60), make([]byte, random.IntN(300)), false)
			switch random.IntN(12) {
			case 0:
				raw = zstd
			case 1:
				raw = bad
			}
			rig.write(p, raw)
			ends[p] += corpus.Span(raw)
		}
	}
	rig.run()
	var actors sync.WaitGroup
	for p := range int32(partitions) {
		random := rand.New(rand.NewPCG(seed, uint64(p)+1))
		rooms := rand.New(rand.NewPCG(seed, uint64(p)+100))
		actors.Go(func() {
			room := func(int64) timer.Size {
				if n := rooms.IntN(90); n > 2 {
					return entries(n)
				}
				return timer.Size{}
			}
			sink := rig.add(p, 0, &probe{room: room})
			for begun := time.Now(); sink.at() < ends[p]; {
				if time.Since(begun) > rigLimit {
					t.Errorf("partition %d is read to %d of %d", p, sink.at(), ends[p])
					break
				}
				await.For(t, time.Duration(random.IntN(3000))*time.Microsecond)
				switch random.IntN(6) {
				case 0, 1:
					rig.c.Pause(rig.Topic, p)
				case 2, 3, 4:
					rig.c.Resume(rig.Topic, p)
				case 5:
					sink.remove()
					sink = rig.add(p, sink.at(), &probe{room: room})
				}
			}
			sink.remove()
		})
	}
	actors.Wait()
}

// tiny is the name of a batch of a million records in a few kilobytes.
const tiny, tinyRecords = "heavy: 1000000 tiny records, zstd", 1_000_000

// A batch of a million records is delivered in pieces, and another partition of its broker is served in between.
func TestALargeBatchHoldsUpNobodyElse(t *testing.T) {
	rig := newConsumerRig(kafkatest.OnFake(t, 1), 2, 1<<20)
	rig.write(0, caseOf(t, tiny).Batch(corpus.Nobody(time.UnixMilli(0))))
	var meanwhile, longest = 0, time.Duration(0)
	sent := make(chan time.Time, 1)
	small := rig.add(1, 0, &probe{on: func(r Read) {
		if len(r.Records) == 0 {
			return
		}
		if state, large := rig.reading(0); state == delivering && large {
			meanwhile++
			longest = max(longest, time.Since(<-sent))
		} else {
			<-sent
		}
	}})
	calls := 0
	large := rig.add(0, 0, &probe{room: func(int64) timer.Size {
		if calls++; calls%10 == 0 {
			return timer.Size{} // for a moment
		}
		return entries(3000)
	}})
	rig.run()
	await.Until(t, rigLimit, "the large batch begins", func() bool { return large.records() > 0 })
	n := int64(0)
	for ; large.at() < tinyRecords; n++ {
		sent <- time.Now()
		rig.produce(1, 1)
		small.reads(n + 1)
	}
	large.reads(tinyRecords)
	small.remove()
	t.Logf("%d of %d records of the other partition came meanwhile, after %v at most; the large batch in %d pieces",
		meanwhile, n, longest, large.pieces)
	if meanwhile < 3 || large.pieces < tinyRecords/3000 || large.count != tinyRecords {
		t.Errorf("%d records of the other partition meanwhile, %d pieces, %d records", meanwhile, large.pieces,
			large.count)
	}
	if longest > 2*time.Second { // of a busy machine
		t.Errorf("a record of the other partition took %v", longest)
	}
}

// quarter is the name of a moderately large batch.
const quarter, quarterRecords = "large: 250000 tiny records, zstd", 250_000

// There is one place for a large batch. Partitions with many take turns for it, also on different brokers.
func TestLargeBatchesTakeTurns(t *testing.T) {
	const batches = 4
	for _, brokers := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d brokers", brokers), func(t *testing.T) {
			on := kafkatest.OnFake(t, brokers)
			rig := newConsumerRig(on, 3, 1<<20)
			for p := range int32(2) {
				must(t, on.Fake.MoveTopicPartition(on.Topic, p, p%int32(brokers)))
			}
			raw := caseOf(t, quarter).Batch(corpus.Nobody(time.UnixMilli(0)))
			var mu sync.Mutex
			var done [2]int64
			for p := range int32(2) {
				for range batches {
					rig.write(p, raw)
				}
				rig.add(p, 0, &probe{room: func(int64) timer.Size { return entries(4000) }, on: func(r Read) {
					mu.Lock()
					defer mu.Unlock()
					if done[p] = r.Next / quarterRecords; done[p] > done[1-p]+2 {
						t.Errorf("partition %d has had %d large batches, and the other one %d", p, done[p], done[1-p])
					}
				}})
			}
			rig.add(2, 0, &probe{})
			rig.run()
			await.Until(t, rigLimit, "all are read",
				func() bool { mu.Lock(); defer mu.Unlock(); return done == [2]int64{batches, batches} })
		})
	}
}

// A sink that pauses in the middle of a large batch does not keep the slot for one from others. Nor does a sink that
// never has room.
func TestAPausedSinkGivesUpThePlaceForALargeBatch(t *testing.T) {
	for _, pauses := range []bool{true, false} {
		t.Run(fmt.Sprintf("pauses %v", pauses), func(t *testing.T) {
			rig := newConsumerRig(kafkatest.OnFake(t, 1), 2, 1<<20)
			raw := caseOf(t, quarter).Batch(corpus.Nobody(time.UnixMilli(0)))
			rig.write(0, raw)
			rig.write(1, raw)
			var mu sync.Mutex
			full, had := true, false
			stuck := rig.add(0, 0, &probe{
				room: func(int64) timer.Size {
					mu.Lock()
					defer mu.Unlock()
					if full && had {
						return timer.Size{}
					}
					had = true
					return entries(100)
				},
				on: func(r Read) {
					mu.Lock()
					defer mu.Unlock()
					if full && pauses && len(r.Records) > 0 {
						rig.c.Pause(rig.Topic, 0)
					}
				},
			})
			rig.run()
			await.Until(t, rigLimit, "the first has a piece", func() bool { return stuck.records() > 0 })
			begun := time.Now()
			other := rig.add(1, 0, &probe{room: func(int64) timer.Size { return entries(50_000) }})
			other.reads(quarterRecords)
			t.Logf("the other one is read after %v", time.Since(begun))
			if n := stuck.records(); n != 100 {
				t.Errorf("%d records are delivered to a sink that has no room", n)
			}
			mu.Lock()
			full = false
			mu.Unlock()
			rig.c.Resume(rig.Topic, 0)
			stuck.reads(quarterRecords)
		})
	}
}

// A partition is removed while its large batch is delivered: no call follows, the slot is free, and the next sink gets
// the rest.
func TestRemoveInTheMiddleOfALargeBatch(t *testing.T) {
	rig := newConsumerRig(kafkatest.OnFake(t, 1), 2, 1<<20)
	raw := caseOf(t, quarter).Batch(corpus.Nobody(time.UnixMilli(0)))
	rig.write(0, raw)
	rig.write(1, raw)
	begun := make(chan struct{})
	var once sync.Once
	first := rig.add(0, 0, &probe{room: func(int64) timer.Size { return entries(100) }, on: func(r Read) {
		if len(r.Records) > 0 {
			once.Do(func() { close(begun) })
		}
	}})
	rig.run()
	<-begun
	first.remove()
	if n := first.at(); n == 0 || n >= quarterRecords {
		t.Fatalf("removed at %d", n)
	}
	other := rig.add(1, 0, &probe{})
	other.reads(quarterRecords)
	next := rig.add(0, first.at(), &probe{})
	next.reads(quarterRecords)
	if n := first.records() + next.records(); n != quarterRecords {
		t.Errorf("%d records to two sinks, want %d", n, quarterRecords)
	}
}

// An answer for a partition that was removed, or has another sink now, is dropped. It frees the slot for a large batch.
func TestAnAnswerAfterRemoveIsForNobody(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		c := NewConsumer(nil, MaxUnpacked, 1<<20)
		tp, old, next := timer.TopicPartition{Topic: "t"}, &probe{t: t}, &probe{t: t}
		c.Add(tp.Topic, 0, 0, old)
		r := c.readings[tp]
		r.node, r.oversize = 1, true
		of, _, _ := c.choose(1)
		if of[tp] == nil || c.large != r {
			t.Fatal("not asked for")
		}
		if replaced {
			c.Add(tp.Topic, 0, 2, next)
		} else {
			c.Remove(tp.Topic, 0, old)
		}
		old.removed.Store(true)
		c.take(of[tp], &kmsg.FetchResponseTopicPartition{HighWatermark: 9, LastStableOffset: 9})
		if next.at() != 0 || next.read.End != 0 || c.large != nil || r.state != idle {
			t.Errorf("replaced %v: %+v is delivered, the large one is %p", replaced, next.read, c.large)
		}
	}
}
