package partition

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/emitter"
)

// metadataOf has a broker say who leads the partitions of topics: -1 is nobody.
func metadataOf(t *testing.T, leaders map[string][]int32) *emitter.Targets {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	at := netip.MustParseAddrPort(c.ListenAddrs()[0])
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.MetadataRequest)
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: 0, Host: at.Addr().String(), Port: int32(at.Port())})
		for _, rt := range req.Topics {
			x := kmsg.NewMetadataResponseTopic()
			x.Topic = rt.Topic
			for i, leader := range leaders[*rt.Topic] {
				p := kmsg.NewMetadataResponseTopicPartition()
				p.Partition, p.Leader = int32(i), leader
				x.Partitions = append(x.Partitions, p)
			}
			resp.Topics = append(resp.Topics, x)
		}
		return resp, nil, true
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return emitter.NewTargets(cl, false)
}

// A target none of whose partitions has a leader is sick like any other: an
// emission with a null key, which may go to any of them, must not hold up what
// goes to other targets, nor requests.
func TestNullKeyWithoutAnyLeaderHoldsUpNobody(t *testing.T) {
	c := newCore(t, newGround(t), 1, 1<<20, 1000)
	c.o.Targets = metadataOf(t, map[string][]int32{targetTopic: {-1, -1}, missingTopic: {0}})
	c.take()
	c.load()
	c.work(0)
	null := c.schedule(1, -10)
	null.Headers = append(null.Headers, kgo.RecordHeader{Key: waterclock.HeaderTargetKeyNull, Value: []byte("true")})
	other := c.schedule(2, -10)
	other.Headers[1].Value = []byte(missingTopic)
	c.deliver(2)
	c.work(0)
	for range 3 {
		if c.seal(100); c.share != nil {
			break
		}
	}
	if c.share == nil || len(c.share.Emissions) != 2 {
		t.Fatalf("nothing is sealed: %+v", c.share)
	}
	// The lane finds the leader missing, and gives the firing back.
	sick := emitter.TargetPartition{Topic: targetTopic, Partition: c.share.Emissions[0].Record.Partition}
	c.p.o.Health.Suspect(sick)
	c.share.Emissions[0].Err = emitter.ErrSick
	c.abort()
	c.work(0)
	if c.seal(100); c.share == nil || len(c.share.Emissions) != 1 || c.share.Emissions[0].Record.Topic != missingTopic {
		t.Fatalf("the other target does not get its emission: %+v", c.share)
	}
	c.commit(true)
	c.apply()
	c.work(0)
	c.p.parkedTargets = map[emitter.TargetPartition]int64{}
	if err := c.p.parkAll(); err != nil || c.p.parkedTargets[sick] != 1 {
		t.Errorf("not parked: %v, %v", c.p.parkedTargets, err)
	}
}

// A dead letter goes to another partition of its topic while its own has no
// leader: no step could be committed with it, and the lane would stand still.
func TestDeadLettersGoWhereThereIsALeader(t *testing.T) {
	for _, leaders := range [][]int32{{0, 0, 0}, {-1, -1, 0}, {-1, 0, 0}, {-1, -1, -1}} {
		want := max(0, slices.Index(leaders, 0))
		c := newCore(t, newGround(t), 1, 1<<20, 1000)
		c.set.DeadLetters.Partitions = len32(leaders)
		c.o.Targets = metadataOf(t, map[string][]int32{c.set.DeadLetters.Name: leaders})
		if _, err := c.o.Targets.Lookup(t.Context(), c.set.DeadLetters.Name); err != nil {
			t.Fatal(err)
		}
		c.take()
		c.request(0, 1) // no due time
		c.deliver(1)
		c.work(0)
		c.seal(10)
		if c.share == nil {
			t.Fatal("nothing is sealed")
		}
		last := c.share.Records[len(c.share.Records)-1]
		if last.Topic != c.set.DeadLetters.Name || last.Partition != int32(want) {
			t.Errorf("leaders %v: the dead letter goes to %s/%d, want %d", leaders, last.Topic, last.Partition, want)
		}
	}
}

func len32[T any](s []T) int32 { return int32(len(s)) }
