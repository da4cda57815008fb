package emitter

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// swift gives a silent broker two seconds.
var swift = kgo.RequestTimeoutOverhead(2 * time.Second)

// A group coordinator that slept while another took its place wakes up and answers with its old state: the committed
// offset that it shows as stable is not the committed one. Neither a resolve nor an acquisition may believe it.
func TestStaleCoordinator(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := kafkatest.Start(t, 3)
	s := newSetupOn(t, c, swift)
	sleeper := s.coordinator()
	// Clients that know no other broker; the first one has an open connection.
	var cls [2]*kgo.Client
	for i := range cls {
		var err error
		if cls[i], err = kgo.NewClient(kgo.SeedBrokers(c.Seeds()[sleeper]),
			kgo.RequestTimeoutOverhead(testLimit)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cls[i].Close)
	}
	connected, cl := cls[0], cls[1]
	w := kafkatest.NewWire()
	t.Cleanup(w.Close)
	others := kgo.SeedBrokers(slices.Delete(c.Seeds(), int(sleeper), int(sleeper)+1)...)
	l := s.laneOf(Options{Client: []kgo.Opt{swift, others, kgo.Dialer(w.Dial)}, Admin: cl,
		TransactionTimeout: 2 * testTimeout})
	a := s.source(0, l)
	a.step("before", a.emit("before"))
	a.wants(Committed)
	a.committed(1)
	if got := s.offsetAt(connected.Broker(int(sleeper))); got != a.steps[0] {
		t.Fatalf("the coordinator shows %q, want %q", got, a.steps[0])
	}

	c.Pause(int(sleeper))
	await.Until(s.t, testLimit/2, "another coordinator",
		func() bool { n := s.coordinator(); return n >= 0 && n != sleeper })
	a.step("unresponsive", a.emit("unresponsive"))
	for o := a.outcome(); o != Committed; o = a.outcome() {
	}
	// The generation advances, and with it the one that an acquisition must be shown.
	_, generation := s.member.GroupMetadata()
	s.enter(swift, others)
	await.Until(s.t, testLimit/2, "another generation",
		func() bool { _, g := s.member.GroupMetadata(); return g > generation })
	lost := w.DropResponse(kmsg.EndTxn.Int16(), kafkatest.Every)
	a.step("unanswered", a.emit("unanswered"))
	must(t, lost.Wait(s.ctx))

	shown := make(chan string, 1)
	go func() { shown <- s.offsetAt(connected.Broker(int(sleeper))) }()
	type answer struct {
		metadata string
		err      error
	}
	taken := make(chan answer, 1)
	go func() {
		o := s.stable(0)
		o.Client = cl
		_, metadata, err := o.Fetch(s.ctx)
		taken <- answer{metadata, err}
	}()
	await.For(t, l.o.TransactionTimeout/2+time.Second) // then all of them, the resolve too, wait for the sleeper
	c.Resume(int(sleeper))
	for o := a.outcome(); o != Committed; o = a.outcome() { // of tries that did not get as far as EndTxn
	}
	lost.Release()
	if got := <-shown; got != a.steps[0] {
		t.Logf("the coordinator that woke up shows %q, not %q, the step before it slept: it learnt too fast for "+
			"this to show anything", got, a.steps[0])
	}
	if got := <-taken; got.err != nil || !slices.Contains(a.steps[1:], got.metadata) {
		t.Errorf("an acquisition is shown %q, %v; want one of %q", got.metadata, got.err, a.steps[1:])
	}
	a.committed(3)
	s.settled(0, []string{"before", "unresponsive", "unanswered"}, []string{"before", "unresponsive", "unanswered"})
}

// coordinator returns the group's coordinator, -1 while no broker knows it.
func (s *setup) coordinator() int32 {
	found := s.adm.FindGroupCoordinators(s.ctx, s.group)[s.group]
	if found.Err != nil {
		return -1
	}
	return found.NodeID
}

// offsetAt returns the metadata of the stable committed offset of partition 0, as one broker shows it.
func (s *setup) offsetAt(b *kgo.Broker) string {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	g, t := kmsg.NewOffsetFetchRequestGroup(), kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic, t.TopicID, t.Partitions = s.request, s.requestID, []int32{0}
	g.Group, g.Topics = s.group, append(g.Topics, t)
	req.Groups = append(req.Groups, g)
	resp, err := b.Request(s.ctx, req)
	if err != nil {
		return err.Error()
	}
	r := resp.(*kmsg.OffsetFetchResponse)
	if err := kerr.ErrorForCode(r.Groups[0].ErrorCode); err != nil {
		return err.Error()
	}
	if p := r.Groups[0].Topics[0].Partitions[0]; p.Metadata != nil {
		return *p.Metadata
	}
	return ""
}
