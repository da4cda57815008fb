package ownership

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
)

// counted has the counts of a Life.
type counted struct{ replayed, damaged, ended, lost, near, cut atomic.Int64 }

func (c *counted) Replayed(n int64)       { c.replayed.Add(n) }
func (c *counted) Damaged()               { c.damaged.Add(1) }
func (c *counted) Ended(n int)            { c.ended.Add(int64(n)) }
func (c *counted) Lost(_ string, n int64) { c.lost.Add(n) }
func (c *counted) NearRetention(string)   { c.near.Add(1) }
func (c *counted) Cut(_ string, n int64)  { c.cut.Add(n) }

// holder is a token controlled by a test.
type holder struct{ dead atomic.Pointer[error] }

func (h *holder) Err() error {
	if e := h.dead.Load(); e != nil {
		return *e
	}
	return nil
}

func (h *holder) Member() (emitter.Member, error) {
	return emitter.Member{ID: "m", Generation: 1}, h.Err()
}

func (h *holder) Certain(context.Context) error     { return h.Err() }
func (h *holder) Confirmed() (time.Duration, error) { return 0, h.Err() }

func (h *holder) Refused(err error) { h.dead.CompareAndSwap(nil, &err) }

// leader answers for metadata: it leads the one partition of every topic; -1 means no leader.
type leader struct{ broker, epoch int32 }

func (*leader) DiscoveredBrokers() []*kgo.Broker { return nil }

func (l *leader) Request(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
	req, ok := r.(*kmsg.MetadataRequest)
	if !ok {
		return r.ResponseKind(), nil
	}
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	for _, rt := range req.Topics {
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Leader, p.LeaderEpoch = l.broker, l.epoch
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.Partitions = rt.Topic, append(t.Partitions, p)
		resp.Topics = append(resp.Topics, t)
	}
	return resp, nil
}

// led sets the leader, or none, and makes it known to o.
func (l *leader) led(t *testing.T, o *Options, by int32) {
	t.Helper()
	l.broker = by
	must(t, o.Targets.Refresh(t.Context(), o.Topics.Changelog.Name))
}

// must ends the test with an error, if there is one.
func must(t interface {
	Helper()
	Fatal(args ...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// offline returns a Life whose only broker is b.
func offline(b *leader) *Life {
	set := &topics.Set{Request: topics.Topic{Name: "r"}, Changelog: topics.Topic{Name: "r.changelog"}}
	return New(Options{
		Topics: set, Group: "g", Token: &holder{}, Targets: targets.NewMetadata(b, targets.MetadataOptions{}),
		Lanes: emitter.NewLanes(emitter.Options{}), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	}, &counted{})
}

// online returns a Life on a fake broker with a request topic and its changelog.
func online(t *testing.T) (*Life, *kfake.Cluster) {
	t.Helper()
	const requests = "r"
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, requests, topics.Changelog(requests)))
	details, err := kadm.NewClient(cl).ListTopics(t.Context())
	must(t, err)
	l := offline(&leader{})
	l.o.Client = cl
	for to, name := range map[*topics.Topic]string{&l.o.Topics.Request: requests,
		&l.o.Topics.Changelog: topics.Changelog(requests)} {
		*to = topics.Topic{Name: name, ID: details[name].ID, Partitions: 1, DeleteRetention: 2 * time.Hour}
	}
	l.o.Settings = NewSettings(nil, l.o.Topics)
	l.tail.aside = func(run func()) { run() }
	return l, c
}

// ready is a kind that has something for each step.
type ready struct{}

func (ready) Seal(string, *emitter.Room) *emitter.Share { return &emitter.Share{} }
func (ready) Wait() time.Duration                       { return time.Hour }

// A step that does not end delays a revocation by DrainTimeout and no more.
func TestDrainGivesUpOnAStuckStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := offline(&leader{})
		p := l.Steps.Join(ready{})
		l.Steps.inFlight, l.Steps.owner = true, true
		start := time.Now()
		l.Drain()
		if took := time.Since(start); took != DrainTimeout {
			t.Errorf("drained after %s, want %s", took, DrainTimeout)
		}
		l.Steps.inFlight = false
		if p.Seal("late", &emitter.Room{Entries: 1, Bytes: 1}) != nil {
			t.Error("a revoked partition seals")
		}
	})
}

// A claim that its changelog does not accept is offered again for as long as it takes, and the acquisition names the
// transaction that it waits for.
func TestAClaimWaitsForItsChangelog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := offline(&leader{})
		set, p := l.o.Topics, l.Steps.Join(ready{})
		made := make(chan error, 1)
		go func() { // like claimBehind, which reads the changelog in between
			for {
				o, err := (&claim{o: &l.o, steps: l.Steps, recs: l.Records, done: make(chan emitter.Outcome, 1)}).make(
					t.Context(), l.failure)
				if err != nil || o == emitter.Committed {
					made <- err
					return
				}
			}
		}()
		synctest.Wait()
		for range 10 {
			share := p.Seal("step", &emitter.Room{Entries: 1, Bytes: 1})
			if share == nil {
				t.Fatal("the claim is not offered")
			}
			share.Held = map[timer.TopicPartition]error{{Topic: set.Changelog.Name}: kerr.NotEnoughReplicas}
			share.Done(emitter.Aborted)
			if s := l.Status(); s.State != Acquiring || !strings.Contains(s.Reason, "r.changelog/0 takes no writes") {
				t.Errorf("state %s, %q", s.State, s.Reason)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		p.Seal("step", &emitter.Room{Entries: 1, Bytes: 1}).Done(emitter.Committed)
		if err := <-made; err != nil || l.Status().Reason != "" {
			t.Errorf("%v, %q", err, l.Status().Reason)
		}
		if p.Seal("step", &emitter.Room{Entries: 1, Bytes: 1}) != nil {
			t.Error("a share is sealed before the partition is owned")
		}
		if l.Own(Claimed{}); p.Seal("step", &emitter.Room{Entries: 1, Bytes: 1}) == nil {
			t.Error("no share is sealed of a partition that is owned")
		}
	})
}

// A cut is reported once. The next checkpoint ends that, even if it settles no request, and so
// does not hold up the next acquisition either.
func TestACutIsReportedUntilTheNextCheckpoint(t *testing.T) {
	t.Parallel()
	l, c := online(t)
	cl := l.o.Client
	for range 5 {
		must(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "r"}).FirstErr())
	}
	c.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.OffsetForLeaderEpochRequest)
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		rt, rp := kmsg.NewOffsetForLeaderEpochResponseTopic(), kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		rt.Topic, rp.EndOffset, rp.LeaderEpoch = "r", 2, 0
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	at, _, err := l.Input.ReadFrom(t.Context(), &wire.Checkpoint{Position: 4, Epoch: 1})
	if n := l.acquirer.metrics.(*counted).cut.Load(); err != nil || at != 4 || n != 2 {
		t.Fatalf("read from %d, %d offsets cut, %v", at, n, err)
	}
	next, err := wire.DecodeCheckpoint(l.Records.Checkpoint(at, "s", 0).Value) // of a step that has only firings
	must(t, err)
	again := time.Now()
	at, _, err = l.Input.ReadFrom(t.Context(), &next)
	if n, took := l.acquirer.metrics.(*counted).cut.Load(), time.Since(again); err != nil || at != 4 || n != 2 ||
		took > behindPatience/2 {
		t.Errorf("again it takes %s to read from %d, %d offsets cut in all, %v", took, at, n, err)
	}
}
