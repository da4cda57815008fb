package partlog

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
	"github.com/waterclock/waterclock/internal/timer"
)

// Batches of aborted transactions are passed unopened, even behind a hanging transaction, and markers move the
// position.
func TestConsumerPassesAbortedBatches(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, on *kafkatest.Setup) {
		rig := newConsumerRig(on, 1, 1<<20)
		transact := func(id, name string, commit bool) {
			t.Helper()
			c, w := caseOf(t, name), corpus.Nobody(time.Now())
			await.Until(t, rigLimit, "the transaction before has ended", func() bool {
				err := corpus.Transact(on.Ctx, rig.cl, on.Topic+id, on.Topic, rig.id, 0, c, w, commit)
				if err != nil && !errors.Is(err, kerr.ConcurrentTransactions) {
					t.Fatalf("%s: %v", name, err)
				}
				return err == nil
			})
		}
		const good, bomb = "sound: 3 records, zstd", "heavy: 15700000 empty headers, zstd"
		rig.produce(0, 1)                 // 0
		transact("a", undecodable, false) // 1 to 3, 4
		transact("a", bomb, false)        // 5, 6
		transact("a", good, true)         // 7 to 9, 10
		transact("b", undecodable, false) // 11 to 13, 14
		hanging := on.Client(kgo.TransactionalID(on.Topic + "hangs"))
		p := &partition{Setup: on, cl: rig.cl, target: Log{Topic: on.Topic, ID: rig.id}}
		tx := &transaction{p: p, cl: hanging}
		tx.begin("v")                     // 15
		transact("a", undecodable, false) // 16 to 18, 19
		rig.produce(0, 1)                 // 20
		var opened atomic.Bool
		probe := rig.add(0, 0, &probe{gaps: true, on: func(Read) { opened.Store(true) }})
		rig.run()
		probe.reads(15)
		end := func(when string, next int64, count int) {
			t.Helper()
			await.Until(t, rigLimit, when, func() bool { return probe.at() == next && probe.records() == count })
			if s := probe.skipped(); len(s) > 0 {
				t.Fatalf("%s: skipped %v", when, s)
			}
		}
		end("before the hanging transaction", 15, 4)
		tx.end(commit)
		await.Until(t, rigLimit, "all is read", func() bool { return probe.at() >= 21 })
		end("at the end", p.end(), 6)
		transact("b", undecodable, true)
		await.Until(t, rigLimit, "the same is skipped when it is committed",
			func() bool { return len(probe.skipped()) == 1 })
	})
}

// Each temporary error is waited out, and no record is lost or comes twice.
func TestConsumerWaitsOutErrors(t *testing.T) {
	for _, err := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.UnknownTopicID,
		kerr.InconsistentTopicID,
		kerr.UnknownTopicOrPartition, kerr.OffsetNotAvailable, kerr.UnknownServerError, kerr.KafkaStorageError,
	} {
		t.Run(err.Message, func(t *testing.T) {
			t.Parallel()
			rig := newConsumerRig(kafkatest.OnFake(t, 1), 2, 1<<20)
			rig.produce(0, 3)
			rig.produce(1, 3)
			fault := rig.Fake.Fault(
				kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: rig.Topic, Partitions: []int32{0}, Err: err, Count: 3})
			p, other := rig.add(0, 0, &probe{}), rig.add(1, 0, &probe{})
			rig.run()
			p.reads(3)
			other.reads(3)
			rig.produce(0, 2)
			p.reads(5)
			if fault.Hits() != 3 || len(p.failures()) > 0 {
				t.Errorf("%d of 3 errors, failures %v", fault.Hits(), p.failures())
			}
		})
	}
}

// A broker that throttles answers without any partition, and an error of the whole answer counts for all.
func TestConsumerOutlastsEmptyAnswers(t *testing.T) {
	rig := newConsumerRig(kafkatest.OnFake(t, 1), 1, 1<<20)
	rig.produce(0, 3)
	var n atomic.Int32
	rig.Fake.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		rig.Fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		switch n.Add(1) {
		case 1, 2:
			return resp, nil, true
		case 3:
			resp.ErrorCode = kerr.FetchSessionTopicIDError.Code
			return resp, nil, true
		case 4:
			return nil, errors.New("the connection breaks"), true
		}
		return nil, nil, false
	})
	p := rig.add(0, 0, &probe{})
	rig.run()
	p.reads(3)
	if len(p.failures()) > 0 {
		t.Error(p.failures())
	}
}

// The leader moves while records are written and read; brokers go and come back.
func TestConsumerFollowsLeaders(t *testing.T) {
	const nodes, partitions, rounds = 3, 4, 12
	on := kafkatest.OnFake(t, nodes)
	rig := newConsumerRig(on, partitions, 1<<20)
	var probes []*probe
	for p := range int32(partitions) {
		probes = append(probes, rig.add(p, 0, &probe{}))
	}
	rig.run()
	for i := range int32(rounds) {
		for p := range int32(partitions) {
			must(t, on.Fake.MoveTopicPartition(on.Topic, p, (i+p)%nodes))
			rig.write(p, batchOf(3, []byte("v"), false))
		}
		if i%3 == 0 {
			probes[i%partitions].reads(int64(3 * (i + 1)))
		}
	}
	for _, p := range probes {
		p.reads(3 * rounds)
	}
	gone := on.Fake.LeaderFor(on.Topic, 0)
	must(t, on.Fake.RemoveNode(gone))
	for p := range int32(partitions) {
		rig.write(p, batchOf(3, []byte("v"), false))
		probes[p].reads(3 * (rounds + 1))
	}
	if _, _, err := on.Fake.AddNode(gone, 0); err != nil {
		t.Fatal(err)
	}
	must(t, on.Fake.MoveTopicPartition(on.Topic, 0, gone))
	rig.write(0, batchOf(3, []byte("v"), false))
	probes[0].reads(3 * (rounds + 2))
	for _, p := range probes {
		if len(p.failures()) > 0 {
			t.Error(p.failures())
		}
	}
}

// A position outside of the log is reported, repeatedly.
func TestConsumerTellsOfAPositionThatIsNotInTheLog(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, on *kafkatest.Setup) {
		rig := newConsumerRig(on, 2, 1<<20)
		rig.produce(0, 4)
		rig.produce(1, 4)
		os := make(kadm.Offsets)
		os.AddOffset(on.Topic, 0, 2, -1)
		if _, err := on.Adm.DeleteRecords(on.Ctx, os); err != nil {
			t.Fatal(err)
		}
		low, other := rig.add(0, 1, &probe{}), rig.add(1, 0, &probe{})
		rig.run()
		await.Until(t, rigLimit, "it is told twice", func() bool { return len(low.failures()) >= 2 })
		other.reads(4)
		if !low.failed(kerr.OffsetOutOfRange) || low.at() != 1 || len(other.failures()) > 0 {
			t.Errorf("%v at %d, %v", low.failures(), low.at(), other.failures())
		}
		low.remove()
		rig.add(0, 2, &probe{}).reads(4)
		high := rig.add(1, 9, &probe{})
		await.Until(t, rigLimit, "so is one beyond the end", func() bool { return high.failed(kerr.OffsetOutOfRange) })
	})
}

// A topic that is deleted, made again, or made again with fewer partitions is gone after goneAfter, and not before.
func TestConsumerTellsThatATopicIsGone(t *testing.T) {
	for _, again := range []int32{0, 1, 2} { // partitions that it has then
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			c, opts, cl := kafkatest.Bubble(t, 1)
			must(t, c.CreateTopic("t", 2, nil))
			const partition = 1
			writer := kafkatest.Client(t, append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
			must(t, writer.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: partition}).FirstErr())
			consumer := NewConsumer(cl, MaxUnpacked, 1<<20)
			p := &probe{t: t}
			consumer.Add("t", partition, 0, p)
			var running sync.WaitGroup
			running.Go(func() { _ = consumer.Run(ctx) })
			defer running.Wait()
			defer cancel()
			time.Sleep(leadersRefresh)
			if p.at() != 1 {
				t.Fatalf("read to %d", p.at())
			}
			must(t, c.DeleteTopic("t"))
			if again > 0 {
				must(t, c.CreateTopic("t", again, nil))
			}
			time.Sleep(goneAfter - time.Second)
			if errs := p.failures(); len(errs) > 0 {
				t.Errorf("with %d partitions, after less than %v: %v", again, goneAfter, errs)
			}
			time.Sleep(3 * leadersRefresh)
			if !p.failed(ErrTopicGone) {
				t.Errorf("with %d partitions, after %v: %v", again, goneAfter+2*leadersRefresh, p.failures())
			}
			if p.at() != 1 || p.records() != 1 {
				t.Errorf("%d records to %d", p.records(), p.at())
			}
		})
	}
}

// A leader that has no records of the epoch that was read last, up to the position, is trusted: the log was cut.
func TestConsumerTellsThatALogWasCut(t *testing.T) {
	rig := newConsumerRig(kafkatest.OnFake(t, 1), 1, 1<<20)
	rig.produce(0, 3)
	p := rig.add(0, 0, &probe{})
	rig.run()
	p.reads(3)
	var asked atomic.Int32
	rig.Fake.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		rig.Fake.KeepControl()
		return answerAll(
			req.(*kmsg.FetchRequest), func(asks *kmsg.FetchRequestTopicPartition, p *kmsg.FetchResponseTopicPartition) {
				if asks.FetchOffset != 3 || asks.LastFetchedEpoch < 0 || asks.CurrentLeaderEpoch < 0 {
					t.Errorf("asked from %d behind epoch %d, of a leader of epoch %d", asks.FetchOffset,
						asks.LastFetchedEpoch, asks.CurrentLeaderEpoch)
				}
				p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = 0, 2
				p.HighWatermark, p.LastStableOffset = 9, 9
				p.RecordBatches = rebased(batchOf(1, nil, false), 3) // not to be read
				asked.Add(1)
			}), nil, true
	})
	await.Until(t, rigLimit, "it is told twice", func() bool { return len(p.failures()) >= 2 })
	if !p.failed(ErrLogCut) || p.at() != 3 {
		t.Errorf("%v at %d", p.failures(), p.at())
	}
}

// A batch that was damaged on its way is fetched again. One that is always damaged is skipped, after some tries, and
// the one behind it has as many.
func TestConsumerFetchesDamagedBatchesAgain(t *testing.T) {
	good := batchOf(3, []byte("v"), false)
	bad := batchOf(3, []byte("v"), false)
	bad[len(bad)-1] ^= 1
	for _, tt := range []struct {
		name    string
		times   map[int64]int // how often the batch at an offset comes damaged
		skipped int
	}{
		{"on its way", map[int64]int{0: damagedTries - 1, 3: damagedTries - 1}, 0},
		{"for ever", map[int64]int{0: 1 << 30, 3: 2}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rig := newConsumerRig(kafkatest.OnFake(t, 1), 1, 1<<20)
			var mu sync.Mutex
			tries := make(map[int64]int)
			rig.Fake.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
				rig.Fake.KeepControl()
				return answerAll(req.(*kmsg.FetchRequest),
					func(asks *kmsg.FetchRequestTopicPartition, p *kmsg.FetchResponseTopicPartition) {
						p.HighWatermark, p.LastStableOffset, p.LogStartOffset = 6, 6, 0
						if asks.FetchOffset >= 6 {
							return
						}
						mu.Lock()
						defer mu.Unlock()
						raw := good
						if tries[asks.FetchOffset]++; tries[asks.FetchOffset] <= tt.times[asks.FetchOffset] {
							raw = bad
						}
						p.RecordBatches = rebased(raw, asks.FetchOffset)
					}), nil, true
			})
			p := rig.add(0, 0, &probe{})
			rig.run()
			p.reads(6)
			mu.Lock()
			defer mu.Unlock()
			skips := p.skipped()
			if len(skips) != tt.skipped || p.records() != 6-3*tt.skipped {
				t.Errorf("%d records, skipped %v, after %v tries", p.records(), skips, tries)
			}
			if tt.skipped > 0 && (tries[0] != damagedTries || !errors.Is(skips[0], errDamaged)) {
				t.Errorf("skipped after %d tries: %v", tries[0], skips[0])
			}
		})
	}
}

// A large batch that comes after damaged tries does not count them for the next batch.
func TestTriesOfADamagedBatchAreForgottenBehindALargeOne(t *testing.T) {
	large := caseOf(t, quarter).Batch(corpus.Nobody(time.UnixMilli(0)))
	small := rebased(batchOf(1, nil, false), quarterRecords)
	damaged := func(raw []byte) []byte {
		raw = rebased(raw, int64(binary.BigEndian.Uint64(raw)))
		raw[len(raw)-1] ^= 1
		return raw
	}
	rig := newConsumerRig(kafkatest.OnFake(t, 1), 1, 1<<20)
	var mu sync.Mutex
	tries := make(map[int64]int)
	rig.Fake.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		rig.Fake.KeepControl()
		return answerAll(
			req.(*kmsg.FetchRequest), func(asks *kmsg.FetchRequestTopicPartition, p *kmsg.FetchResponseTopicPartition) {
				p.HighWatermark, p.LastStableOffset = quarterRecords+1, quarterRecords+1
				raw := small
				switch {
				case asks.FetchOffset > quarterRecords:
					return
				case asks.FetchOffset < quarterRecords:
					raw = large
				}
				mu.Lock()
				defer mu.Unlock()
				at := int64(binary.BigEndian.Uint64(raw))
				if tries[at]++; tries[at] < damagedTries {
					raw = damaged(raw)
				}
				p.RecordBatches = raw
			}), nil, true
	})
	p := rig.add(0, 0, &probe{room: func(int64) timer.Size { return entries(100_000) }})
	rig.run()
	p.reads(quarterRecords + 1)
	if s := p.skipped(); len(s) > 0 {
		t.Errorf("skipped %v after %v tries", s, tries)
	}
}
