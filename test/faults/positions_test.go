package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// The changelog says that more of a request partition was taken in than its log
// holds: so it is when the log's tail is lost with a leader. A checkpoint written
// by hand makes it so. That partition refuses to go on and keeps its timers; the
// others go on. What docs/OPERATIONS.md says to do brings it back.
func TestRequestLogThatLostItsTail(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const n, lost = 40, 7
	c := kafkatest.Shared(t)
	s := newSetup(t, c)
	p, target, out := s.running(t)
	on := s.spread(t, target, "id-", n, time.Now().Add(10*time.Second))
	pending(t, n, p)
	stopped(t, p)

	cp, err := wire.DecodeCheckpoint(s.checkpoint(t))
	if err != nil {
		t.Fatal(err)
	}
	ends, err := c.Admin(t).ListEndOffsets(t.Context(), s.requests)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(s.requests, 0)
	cp.Position, cp.Step = end.Offset+lost, "by hand"
	manual := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	rig.Send(t, manual, &kgo.Record{Topic: topics.Changelog(s.requests), Key: wire.CheckpointKey(),
		Value: cp.AppendTo(nil)})

	p = rig.Start(t, s.arguments()...)
	says := fmt.Sprintf("position %d of %s/0 lies beyond the log's end %d: the log lost its tail", cp.Position,
		s.requests, end.Offset)
	t.Log(notReady(t, p, says))
	out.WaitFor(n-on[0], readyLimit)
	if live, failed := p.Metric("waterclock_partitions", "state", "live"),
		p.Metric("waterclock_partitions", "state", "failed"); live != partitions-1 || failed != 1 {
		t.Errorf("%v partitions are live and %v failed", live, failed)
	}
	if !out.Quiet(2*time.Second) || len(out.Records()) != n-on[0] {
		t.Errorf("%d timers fired, want the %d of the other partitions", len(out.Records()), n-on[0])
	}
	if said := strings.Count(p.Output(), says); said != 1 || !strings.Contains(p.Output(), "level=ERROR") {
		t.Errorf("said %d times within a minute, want once, as an error", said)
	}
	stopped(t, p)

	for range lost {
		rig.Send(t, manual, &kgo.Record{Topic: s.requests, Key: []byte("nobody")})
	}
	p = rig.Start(t, s.arguments()...)
	p.Ready(partitions, readyLimit)
	out.WaitFor(n, readyLimit)
	s.spread(t, target, "again-", n, time.Now())
	exactly(t, out, 2*n)
	pending(t, 0, p)
}

// The group's committed offsets are altered while nobody runs, in each way that
// there is: they are no positions, and the changelog decides.
func TestGroupsOffsetsAltered(t *testing.T) {
	t.Parallel()
	const n = 40
	c := kafkatest.Shared(t)
	s := newSetup(t, c)
	p, target, out := s.running(t)
	s.spread(t, target, "id-", n, time.Now().Add(10*time.Second))
	pending(t, n, p)
	stopped(t, p)

	group := "group-of-" + s.requests
	s.admin(t, func(ctx context.Context, adm *kadm.Client) error {
		committed, err := adm.FetchOffsets(ctx, group)
		if err != nil {
			return err
		}
		altered := make(kadm.Offsets)
		for i, alter := range []func(*kadm.Offset){
			func(o *kadm.Offset) { o.At = 1_000_000 },
			func(o *kadm.Offset) { o.At = 0 },
			func(o *kadm.Offset) { o.Metadata = "another program" },
		} {
			o, found := committed.Lookup(s.requests, int32(i))
			if !found {
				t.Fatalf("no offset of partition %d is committed", i)
			}
			alter(&o.Offset)
			altered.Add(o.Offset)
		}
		if err := adm.CommitAllOffsets(ctx, group, altered); err != nil {
			return err
		}
		gone := make(kadm.TopicsSet)
		gone.Add(s.requests, 3)
		r, err := adm.DeleteOffsets(ctx, group, gone)
		if err != nil {
			return err
		}
		return r.Error()
	})
	p = rig.Start(t, s.arguments()...)
	p.Ready(partitions, readyLimit)
	s.spread(t, target, "more-", n, time.Now())
	exactly(t, out, 2*n)
	pending(t, 0, p)
	for _, want := range []string{
		"committed=1000000", "committed=0", "differs from the changelog's checkpoint and is ignored",
		"was not written by waterclock; the changelog decides",
		"no offset is committed for the group, the changelog's checkpoint decides",
	} {
		if !strings.Contains(p.Output(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
}

// A request log lost its tail and has grown again, past the position: so it is where its
// leader does not know the leader epoch of what was read. A checkpoint written by hand
// makes it so. The partition goes on, since what is settled is settled, and says what it
// passes over: in the log, to /readyz and as a metric. The next step ends that.
func TestRequestLogThatWasCutAndHasGrownAgain(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const n = 40
	c := kafkatest.Shared(t)
	s := newSetup(t, c)
	p, target, out := s.running(t)
	s.spread(t, target, "id-", n, time.Now().Add(20*time.Second))
	pending(t, n, p)
	stopped(t, p)
	cp, err := wire.DecodeCheckpoint(s.checkpoint(t))
	if err != nil || cp.Epoch == 0 {
		t.Fatalf("no epoch of requests is known: %+v, %v", cp, err)
	}
	cp.Epoch, cp.Step = cp.Epoch+100, "by hand"
	manual := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	rig.Send(t, manual, &kgo.Record{Topic: topics.Changelog(s.requests), Key: wire.CheckpointKey(),
		Value: cp.AppendTo(nil)})

	p = rig.Start(t, s.arguments()...)
	p.Ready(partitions, readyLimit)
	says := fmt.Sprintf("%s/0 was cut at offset 0 and has grown again: requests up to %d were settled before",
		s.requests, cp.Position)
	if _, body := p.Readyz(); !strings.Contains(body, says) {
		t.Errorf("/readyz does not say %q: %s", says, body)
	}
	if got := p.Metric("waterclock_requests_cut_total", "topic", s.requests); got != float64(cp.Position) {
		t.Errorf("%v offsets are counted, want %d", got, cp.Position)
	}
	if said := p.Output(); strings.Count(said, says) != 1 || !strings.Contains(said, "level=ERROR") {
		t.Errorf("the log says %s", said)
	}
	out.WaitFor(n, readyLimit)
	s.spread(t, target, "again-", n, time.Now())
	exactly(t, out, 2*n)
	stopped(t, p)
	p = rig.Start(t, s.arguments()...)
	p.Ready(partitions, readyLimit)
	if _, body := p.Readyz(); strings.Contains(body, "was cut") {
		t.Errorf("it is said again: %s", body)
	}
	pending(t, 0, p)
}
