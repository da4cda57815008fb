package repair

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

func TestMain(m *testing.M) { kafkatest.Main(kafkatest.LeakFree{M: m}) }

// testLimit bounds every wait of a test.
const testLimit = 30 * time.Second

// setup is a group with one member, and a changelog of two partitions.
type setup struct {
	t         *testing.T
	c         *kafkatest.Cluster
	ctx       context.Context
	member    *kgo.Client
	group     string
	changelog string
}

// newSetup makes a setup on the shared broker, which is used by other tests in parallel.
func newSetup(t *testing.T) *setup {
	t.Helper()
	t.Parallel()
	c := kafkatest.Shared(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*testLimit)
	t.Cleanup(cancel)
	request := c.CreateTopic(t, 2, nil)
	w := &setup{t: t, c: c, ctx: ctx, group: "group-of-" + request,
		changelog: c.CreateTopic(t, 2, nil, request+".changelog")}
	w.member = c.Client(t, kgo.ConsumerGroup(w.group), kgo.ConsumeTopics(request), kgo.DisableAutoCommit())
	var polling sync.WaitGroup
	polling.Go(func() {
		for ctx.Err() == nil {
			w.member.PollFetches(ctx)
		}
	})
	t.Cleanup(func() { cancel(); polling.Wait() })
	adm := kadm.NewClient(c.Client(t))
	await.Until(w.t, testLimit, "the member joins", func() bool {
		g, err := adm.DescribeGroups(ctx, w.group)
		return err == nil && g[w.group].State == "Stable"
	})
	return w
}

// nothingIsOpen checks that a read_committed consumer of a changelog partition reaches the end, and sees no record.
func (s *setup) nothingIsOpen(partition int32) {
	s.t.Helper()
	cl := s.c.Client(s.t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.changelog: {partition: kgo.NewOffset().AtStart()}}))
	if err := cl.ProduceSync(s.ctx,
		&kgo.Record{Topic: s.changelog, Partition: partition, Value: []byte("behind")}).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
	fetched := cl.PollFetches(s.ctx)
	if recs := fetched.Records(); fetched.Err() != nil || len(recs) == 0 || string(recs[0].Value) != "behind" {
		s.t.Errorf("%s/%d shows %v, %v; want the record behind everything", s.changelog, partition, recs, fetched.Err())
	}
}

// gathered returns the values of the metrics in a registry.
func gathered(t *testing.T, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	values := make(map[string]float64)
	for _, f := range families {
		m := f.GetMetric()[0]
		values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	return values
}

// must ends the test with an error, if there is one.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
