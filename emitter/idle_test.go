package emitter

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

// Requests may name every topic of a cluster, and kgo forgets none that it has written to. So a client that knows
// many topics forgets those that it has not used for a while, and no others.
func TestClientsForgetIdleTopics(t *testing.T) {
	const topics, perTopic = 800, 20
	names := make([]string, topics)
	for i := range names {
		names[i] = fmt.Sprintf("topic-%04d", i)
	}
	fake, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(perTopic, names...))
	cl := kafkatest.Client(t, kgo.SeedBrokers(fake.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(10*time.Millisecond))
	c := &txnClient{Client: cl, versions: make(map[string]topicUse)}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	known := &setup{}
	before := heap()
	for _, name := range names {
		c.refresh(map[string][]int32{name: {0}}, known)
		cl.Produce(t.Context(), &kgo.Record{Topic: name, Value: []byte("v")}, nil)
	}
	must(t, cl.Flush(t.Context()))
	full := heap()
	if len(c.versions) != topics {
		t.Fatalf("%d topics are known", len(c.versions))
	}
	for name, use := range c.versions {
		if name != names[0] && name != names[1] {
			use.at = use.at.Add(-2 * topicIdle)
		}
		c.versions[name] = use
	}
	c.swept = time.Time{}
	c.refresh(map[string][]int32{names[1]: {0}, names[2]: {0}}, known)
	after := heap()
	t.Logf("%d topics of %d partitions take %d KiB, and %d KiB when they are forgotten", topics, perTopic,
		(full-before)>>10, (int64(after)-int64(before))>>10)
	if len(c.versions) != 3 {
		t.Errorf("%d topics are known, want the 3 that were used", len(c.versions))
	}
	if after > before+(full-before)/2 {
		t.Errorf("of %d KiB only %d were given back", (full-before)>>10, (full-after)>>10)
	}
	for _, name := range []string{names[1], names[5]} { // one that was kept, and one that was forgotten
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: name}).FirstErr(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A client that knows few topics forgets none, however idle they are.
func TestClientsKeepAFewTopics(t *testing.T) {
	c := &txnClient{versions: make(map[string]topicUse)}
	for i := range manyTopics {
		c.versions[fmt.Sprint(i)] = topicUse{}
	}
	if got := c.idle(time.Now()); len(got) > 0 {
		t.Errorf("%d of %d topics are forgotten", len(got), manyTopics)
	}
	c.versions["one more"] = topicUse{at: time.Now()}
	if got := c.idle(time.Now()); len(got) != manyTopics {
		t.Errorf("%d topics are forgotten", len(got))
	}
}
