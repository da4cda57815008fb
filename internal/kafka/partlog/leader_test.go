package partlog

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

// TestFollowsTheLeader moves the partition between reads.
func TestFollowsTheLeader(t *testing.T) {
	const nodes = 3
	p := newPartition(kafkatest.OnFake(t, nodes), nil)
	c := p.Fake
	r := NewReader(p.cl, p.target, 0)
	for i := range 2 * nodes {
		p.write(p.cl, "v")
		if got, _ := p.drain(r); len(got) != 1 || r.Position() != int64(i+1) {
			t.Fatalf("read %q to %d after %d moves", got, r.Position(), i)
		}
		must(t, c.MoveTopicPartition(p.target.Topic, 0, int32(i%nodes)))
	}
}

// Questions that follow each other share metadata, until a broker says that it does not lead.
func TestMetadataIsShared(t *testing.T) {
	p := newPartition(kafkatest.OnFake(t, 2), nil)
	must(t, p.Fake.MoveTopicPartition(p.target.Topic, 0, 0))
	p.write(p.client(), "0")
	var asked atomic.Int32
	ends := func() int32 {
		t.Helper()
		asked.Store(0)
		for range 3 {
			if s, err := EndOf(p.Ctx, p.cl, p.target, 0); err != nil || s.End != 1 {
				t.Errorf("%+v, %v", s, err)
			}
		}
		return asked.Load()
	}
	ends()
	p.Fake.ControlKey(kmsg.Metadata.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		p.Fake.KeepControl()
		asked.Add(1)
		return nil, nil, false
	})
	if n := ends(); n > 1 { // one if the metadata are a second old already
		t.Errorf("asked for metadata %d times", n)
	}
	must(t, p.Fake.MoveTopicPartition(p.target.Topic, 0, 1))
	if n := ends(); n == 0 {
		t.Error("asked the former leader only")
	}
}

// Metadata of a moment ago do not deny a topic that was created since.
func TestATopicIsFoundOnceItIsCreated(t *testing.T) {
	on := kafkatest.OnFake(t, 1)
	p := &partition{Setup: on, target: Log{Topic: kafkatest.Topic(t)}}
	p.cl = p.client()
	end := func() error {
		r := NewReader(p.cl, Log{Topic: p.target.Topic}, 0)
		r.SetGoneAfter(0)
		_, err := r.LastStable(p.Ctx)
		return err
	}
	if err := end(); !errors.Is(err, ErrTopicGone) {
		t.Errorf("before: %v", err)
	}
	p.create(nil)
	if err := end(); err != nil {
		t.Errorf("after: %v", err)
	}
}

// Metadata of a moment ago do not name the topic that was before one of the same name.
func TestATopicIsFoundOnceItIsCreatedAgain(t *testing.T) {
	on := kafkatest.OnFake(t, 1)
	p := &partition{Setup: on, target: Log{Topic: kafkatest.Topic(t)}}
	p.cl = p.client()
	for range 2 {
		p.create(nil)
		r := NewReader(p.cl, Log{Topic: p.target.Topic}, 0)
		r.SetGoneAfter(0)
		if _, err := r.LastStable(p.Ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Next(p.Ctx, 0); err != nil {
			t.Fatal(err)
		}
		_, err := on.Adm.DeleteTopics(p.Ctx, p.target.Topic)
		must(t, err)
	}
}

// TestPassingErrors answers a few requests with an error each.
func TestPassingErrors(t *testing.T) {
	tests := []struct {
		name string
		key  kmsg.Key
		err  *kerr.Error
	}{
		{"fetch: not the leader", kmsg.Fetch, kerr.NotLeaderForPartition},
		{"fetch: topic ID not known yet", kmsg.Fetch, kerr.UnknownTopicID},
		{"fetch: topic not known yet", kmsg.Fetch, kerr.UnknownTopicOrPartition},
		{"fetch: replica behind", kmsg.Fetch, kerr.OffsetNotAvailable},
		{"fetch: in range after all", kmsg.Fetch, kerr.OffsetOutOfRange},
		{"fetch: unforeseen", kmsg.Fetch, kerr.UnknownServerError},
		{"metadata: no leader", kmsg.Metadata, kerr.LeaderNotAvailable},
		{"metadata: topic not known yet", kmsg.Metadata, kerr.UnknownTopicOrPartition},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPartition(kafkatest.OnFake(t, 1), nil)
			c := p.Fake
			p.write(p.client(), "0")
			fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{tt.key}, Topic: p.target.Topic, Err: tt.err, Count: 3})
			p.want(0, []string{"0"}, 1)
			if fault.Hits() != 3 {
				t.Errorf("%d of 3 faults were met", fault.Hits())
			}
		})
	}
}

func TestFinalErrors(t *testing.T) {
	p := newPartition(kafkatest.OnFake(t, 1), nil)
	c := p.Fake
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.TopicAuthorizationFailed})
	if _, err := NewReader(p.cl, p.target, 0).Next(p.Ctx, 0); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Fatal(err)
	}
}

// TestBacksOff counts a reader's requests while there is no leader.
func TestBacksOff(t *testing.T) {
	p := newPartition(kafkatest.OnFake(t, 1), nil)
	c := p.Fake
	fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.NotLeaderForPartition, Count: -1})
	ctx, cancel := context.WithTimeout(p.Ctx, time.Second)
	defer cancel()
	_, err := NewReader(p.cl, p.target, 0).Next(ctx, 0)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, kerr.NotLeaderForPartition) {
		t.Errorf("the error names not both the end and its cause: %v", err)
	}
	// 20, 40, 80, 160, 320, 640 ms, each less a quarter at most.
	if hits := fault.Hits(); hits < 3 || hits > 8 {
		t.Errorf("%d fetches within a second", hits)
	}
}

func TestGoneOnlyAfterTheLimit(t *testing.T) {
	var l leader
	l.goneAfter = time.Hour
	denied := &deniedError{kerr.UnknownTopicID}
	if err := l.verdict(denied); err != nil {
		t.Fatalf("gone at once: %v", err)
	}
	l.deniedSince = time.Now().Add(-time.Hour)
	if err := l.verdict(denied); !errors.Is(err, ErrTopicGone) {
		t.Fatalf("not gone after the limit: %v", err)
	}
	topic := kmsg.NewMetadataResponseTopic()
	topic.Partitions = []kmsg.MetadataResponseTopicPartition{{Partition: 0, Leader: 4}}
	if err := l.learn(&topic); err != nil || l.node != 4 || !l.deniedSince.IsZero() {
		t.Fatalf("seen again: %v, leader %d, denied since %v", err, l.node, l.deniedSince)
	}
}

// A broker that has just ceased to lead is still named by others. To a debugger it reports the end of its own log,
// leader or not, which lacks its successor's records: it must not be trusted.
func TestOnlyTheLeaderTellsTheEnd(t *testing.T) {
	p := newPartition(kafkatest.OnFake(t, 2), nil)
	c := p.Fake
	must(t, c.MoveTopicPartition(p.target.Topic, 0, 0))
	p.write(p.cl, "v")
	old := p.metadata()
	must(t, c.MoveTopicPartition(p.target.Topic, 0, 1))
	p.write(p.client(), "w", "x")
	c.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) { return old, nil, true })
	c.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.ListOffsetsRequest)
		if c.CurrentNode() != 0 || req.Topics[0].Partitions[0].CurrentLeaderEpoch >= 0 {
			return nil, nil, false // kfake's brokers share one log: it knows who leads, and since when
		}
		return listed(req, 1), nil, true
	})
	r := NewReader(p.client(), p.target, 0)
	if end, err := r.End(p.Ctx); err != nil || end != 3 || r.Leader() != EpochOf(2) {
		t.Errorf("the end is %d, by leader epoch %d, %v, want 3, by %d", end, r.Leader(), err, EpochOf(2))
	}
}

// A leader that is appending claims now and then that its log has no timestamp. An empty log has none.
func TestNewestAsksAgainWhileTheLogIsNotEmpty(t *testing.T) {
	for name, records := range map[string]int{"written to": 1, "empty": 0} {
		t.Run(name, func(t *testing.T) {
			p := newPartition(kafkatest.OnFake(t, 1), nil)
			for range records {
				p.write(p.cl, "v")
			}
			asked := 0
			p.Fake.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
				p.Fake.KeepControl()
				req := r.(*kmsg.ListOffsetsRequest)
				if req.Topics[0].Partitions[0].Timestamp != newest {
					return nil, nil, false
				}
				if asked++; asked > 3 {
					return nil, nil, false
				}
				return listed(req, -1), nil, true
			})
			at, err := Newest(p.Ctx, p.cl, p.target)
			if err != nil || at.IsZero() != (records == 0) || records == 0 && asked != 1 {
				t.Errorf("%v, %v, asked %d times", at, err, asked)
			}
		})
	}
}

// A log whose records expire as fast as they are written holds some at each moment.
func TestBoundsOfALogThatMoves(t *testing.T) {
	p := newPartition(kafkatest.OnFake(t, 1), nil)
	moved := int64(0)
	p.Fake.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		p.Fake.KeepControl()
		req := r.(*kmsg.ListOffsetsRequest)
		moved += 10
		if req.Topics[0].Partitions[0].Timestamp == earliest {
			return listed(req, moved), nil, true
		}
		return listed(req, moved+10), nil, true
	})
	for range 20 {
		if start, stable, end, err := Bounds(p.Ctx, p.cl, p.target); err != nil || start >= stable || stable > end {
			t.Errorf("from %d to %d and %d, %v", start, stable, end, err)
		}
	}
}

// The same with a real broker, which claims that now and then while it appends.
func TestNewestOfALogThatIsWrittenTo(t *testing.T) {
	p := newPartition(
		kafkatest.OnShared(t), map[string]*string{"message.timestamp.type": kmsg.StringPtr("LogAppendTime")})
	p.write(p.cl, "v")
	writing, stop := context.WithCancel(p.Ctx)
	var writers sync.WaitGroup
	defer writers.Wait()
	defer stop()
	writers.Go(func() {
		cl := p.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
		for writing.Err() == nil {
			cl.Produce(writing, &kgo.Record{Topic: p.target.Topic, Value: make([]byte, 500)}, nil)
		}
	})
	for begun := time.Now(); time.Since(begun) < 3*time.Second; {
		if at, err := Newest(p.Ctx, p.cl, p.target); err != nil || at.IsZero() {
			t.Fatalf("%v, %v", at, err)
		}
	}
}

// listed is an answer to a question for an offset, without a timestamp.
func listed(req *kmsg.ListOffsetsRequest, offset int64) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	topic, p := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
	topic.Topic, p.Offset, p.Timestamp = req.Topics[0].Topic, offset, -1
	topic.Partitions = append(topic.Partitions, p)
	resp.Topics = append(resp.Topics, topic)
	return resp
}

// metadata is the brokers' current metadata of the topic.
func (p *partition) metadata() *kmsg.MetadataResponse {
	p.T.Helper()
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(p.target.Topic)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(p.Ctx, p.cl)
	must(p.T, err)
	return resp
}
