package exporter

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

const (
	partitions = 4
	patience   = time.Minute
)

// seen is what an exporter makes metrics of.
type seen struct {
	protocol []string // type and name
	members  int
	assigned []int32 // partitions of the request topic that members have
	lag      map[int32]int64
	sum      int64
}

// ask sends the requests of kafka_exporter, in its order, to the one broker.
func ask(t *testing.T, cl sarama.Client, group, topic string) (s seen, err error) {
	t.Helper()
	b := cl.Brokers()[0]
	if err := b.Open(cl.Config()); err != nil && err != sarama.ErrAlreadyConnected {
		return s, err
	}
	groups, err := b.ListGroups(&sarama.ListGroupsRequest{})
	if err != nil {
		return s, err
	}
	if _, there := groups.Groups[group]; !there {
		return s, fmt.Errorf("group %s is not listed: %v", group, groups.Groups)
	}
	described, err := b.DescribeGroups(&sarama.DescribeGroupsRequest{Groups: []string{group}})
	if err != nil {
		return s, err
	}
	g := described.Groups[0]
	if g.Err != sarama.ErrNoError {
		return s, g.Err
	}
	s.protocol, s.members, s.lag = []string{g.ProtocolType, g.Protocol}, len(g.Members), make(map[int32]int64)
	fetch := &sarama.OffsetFetchRequest{ConsumerGroup: group, Version: 4}
	for p := range int32(partitions) {
		fetch.AddPartition(topic, p)
	}
	for id, m := range g.Members {
		a, err := m.GetMemberAssignment()
		if err != nil {
			return s, fmt.Errorf("assignment of %s: %w", id, err)
		}
		if a != nil { // nil: it has none yet
			s.assigned = append(s.assigned, a.Topics[topic]...)
		}
	}
	slices.Sort(s.assigned)
	offsets, err := b.FetchOffset(fetch)
	if err != nil {
		return s, err
	}
	for p, at := range offsets.Blocks[topic] {
		if at.Err != sarama.ErrNoError {
			return s, at.Err
		}
		end, err := cl.GetOffset(topic, p, sarama.OffsetNewest)
		if err != nil {
			return s, err
		}
		s.lag[p] = end - at.Offset
		s.sum += s.lag[p]
	}
	return s, nil
}

// TestExporterSeesTheGroup asks while two instances run, and again when they are gone and requests wait.
func TestExporterSeesTheGroup(t *testing.T) {
	c := kafkatest.Shared(t)
	requests, target := c.CreateTopic(t, partitions, nil), c.CreateTopic(t, 1, nil)
	group := "group-of-" + requests
	var instances []*rig.Process
	for range 2 {
		instances = append(instances, rig.Start(t, rig.Arguments(c.Seeds(), requests, t.TempDir())...))
	}
	for _, p := range instances {
		p.Ready(partitions/2, patience)
	}
	send := func(n int) {
		var recs []*kgo.Record
		for i := range n {
			recs = append(recs, rig.Timer(requests, target, fmt.Sprint("t-", i), time.Now()))
		}
		rig.Send(t, c.Client(t), recs...)
	}
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V4_0_0_0
	cl, err := sarama.NewClient(c.Seeds(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var s seen
	until := func(what string, holds func() bool) {
		t.Helper()
		await.Until(t, patience, what, func() bool {
			s, err = ask(t, cl, group, requests)
			return err == nil && holds()
		})
		t.Logf("%s: %+v", what, s)
	}

	send(40)
	until("all requests are read", func() bool { return len(s.lag) == partitions && s.sum == 0 })
	if !slices.Equal(s.protocol, []string{"consumer", "waterclock"}) || s.members != 2 ||
		!slices.Equal(s.assigned, []int32{0, 1, 2, 3}) {
		t.Errorf("while instances run: %+v", s)
	}
	for _, p := range instances {
		p.Term()
		if code := p.Exit(patience); code != 0 {
			t.Errorf("exit %d", code)
		}
	}
	send(7)
	until("what was written meanwhile waits", func() bool { return s.sum == 7 })
	if s.members != 0 || len(s.assigned) != 0 {
		t.Errorf("without instances: %+v", s)
	}
}
