package ownership

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kit/clocks"
)

// A standby looks for the log's end while the committed offset is being fetched. The former owner's last step comes to
// stand behind that end. So the first claim is refused, and the second one stands behind the step, which is folded. A
// request that is written before the claim is committed lies below the end that ReadFrom returns, although that was
// asked for ahead.
func TestAnAcquisitionFoldsAStepThatItsStandbyHasNotSeen(t *testing.T) {
	t.Parallel()
	l, c := online(t)
	l.o.Clocks = new(clocks.Clocks)
	writer, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...)) // its requests wait for none of the acquisition's
	must(t, err)
	defer writer.Close()
	write := func(topic string, key, value []byte) {
		t.Helper()
		must(t, writer.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: key, Value: value}).FirstErr())
	}
	step := func(name string, position int64) {
		t.Helper()
		cp := wire.Checkpoint{Request: l.o.Topics.Request.ID, Changelog: l.o.Topics.Changelog.ID, Position: position,
			Step: name, Group: l.o.Group}
		write(l.o.Topics.Changelog.Name, wire.CheckpointKey(), cp.AppendTo(nil))
	}
	step("former/1", 0)
	f := l.NewFollower(nil)
	must(t, f.ToEnd(t.Context())) // the standby
	last := f.Position()

	looked := make(chan struct{})
	once := sync.OnceFunc(func() { close(looked) })
	c.ControlKey(int16(kmsg.Heartbeat), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return r.ResponseKind(), nil, true
	})
	var asked atomic.Int32 // how often the request log's end was asked for
	c.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		switch p := r.(*kmsg.ListOffsetsRequest).Topics[0]; {
		case p.Partitions[0].Timestamp != -1:
		case p.Topic == l.o.Topics.Changelog.Name:
			once()
		default:
			asked.Add(1)
		}
		return nil, nil, false
	})
	fetched := make(chan struct{})
	c.ControlKey(int16(kmsg.OffsetFetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		c.SleepControl(func() { <-fetched })
		asked := r.(*kmsg.OffsetFetchRequest).Groups[0]
		topic, p := kmsg.NewOffsetFetchResponseGroupTopic(), kmsg.NewOffsetFetchResponseGroupTopicPartition()
		topic.Topic, topic.TopicID = asked.Topics[0].Topic, asked.Topics[0].TopicID
		p.Offset = -1
		topic.Partitions = append(topic.Partitions, p)
		g := kmsg.NewOffsetFetchResponseGroup()
		g.Group, g.Topics = asked.Group, append(g.Topics, topic)
		resp := r.ResponseKind().(*kmsg.OffsetFetchResponse)
		resp.Groups = append(resp.Groups, g)
		return resp, nil, true
	})

	p := l.Steps.Join(ready{})
	defer p.Leave()
	type result struct {
		got Acquired
		err error
	}
	acquired := make(chan result, 1)
	go func() {
		got, err := l.Acquire(t.Context(), f, nil)
		acquired <- result{got, err}
	}()
	sealed := func() *emitter.Share {
		t.Helper()
		for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
			if s := p.Seal("claim", &emitter.Room{Entries: 1, Bytes: 1}); s != nil {
				return s
			}
		}
		t.Fatal("no claim is sealed")
		return nil
	}
	<-looked
	time.Sleep(50 * time.Millisecond)
	if s := p.Seal("early", &emitter.Room{Entries: 1, Bytes: 1}); s != nil {
		t.Fatal("a claim is sealed before the committed offset is known")
	}
	step("former/2", 1)
	write("r", nil, nil)
	close(fetched)

	first := sealed()
	for i, r := range first.Records {
		r.Offset = last + 1 + int64(i) // behind the step that was not seen
	}
	if err := first.Check(0); !errors.Is(err, errForeignRecords) {
		t.Fatalf("a claim behind a step that is not folded: %v", err)
	}
	first.Done(emitter.Aborted)

	second := sealed()
	must(t, writer.ProduceSync(t.Context(), second.Records...).FirstErr())
	must(t, second.Check(0))
	write("r", nil, nil) // in the log before the claim is committed
	before := asked.Load()
	second.Done(emitter.Committed)
	r := <-acquired
	must(t, r.err)
	if r.got.Last.Step != "former/2" {
		t.Errorf("the last step is %s", r.got.Last.Step)
	}
	from, end, err := l.Input.ReadFrom(t.Context(), &r.got.Last)
	if must(t, err); from != 1 || end != 2 {
		t.Errorf("requests are read from %d, and the log ended at %d; want 1 and 2", from, end)
	}
	if n := asked.Load() - before; n != 1 {
		t.Errorf("the request log's end was asked for %d times after the claim, want once", n)
	}
}
