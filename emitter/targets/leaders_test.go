package targets

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
)

// The successor of an unreachable leader is left alone until its followers may have caught up. Only time, or the return
// of the broker, ends that. Until then metadata is refreshed often, so that the change is noticed immediately.
func TestNewLeadersAreLeftAloneAtFirst(t *testing.T) {
	now := time.Now()
	reach := &kafkatest.Reach{}
	targets := NewMetadata(nil, MetadataOptions{Now: func() time.Time { return now }, Reach: reach})
	targets.Leaders.setBrokers([]kmsg.MetadataResponseBroker{{NodeID: 0, Host: "a", Port: 1},
		{NodeID: 1, Host: "b", Port: 1}, {NodeID: 2, Host: "c", Port: 1}})
	targets.topics["t"] = &cachedTopic{used: now}
	led := func(leaders ...int32) {
		answer := kmsg.NewMetadataResponseTopic()
		answer.Topic = kmsg.StringPtr("t")
		for p, leader := range leaders {
			answer.Partitions = append(answer.Partitions,
				kmsg.MetadataResponseTopicPartition{Partition: int32(p), Leader: leader})
		}
		targets.mu.Lock()
		defer targets.mu.Unlock()
		targets.apply(targets.topics["t"], &answer, now)
	}
	want := func(when string, pause time.Duration, unreachable ...bool) {
		t.Helper()
		for p, want := range unreachable {
			if got := targets.Leaders.Unreachable(timer.TopicPartition{Topic: "t", Partition: int32(p)}); got != want {
				t.Errorf("%s: partition %d is unreachable: %v, want %v", when, p, got, want)
			}
		}
		if got := targets.Leaders.refreshEvery(); got != pause {
			t.Errorf("%s: asked again after %s, want %s", when, got, pause)
		}
	}
	led(0, 1, 1)
	want("all is well", targetRefresh, false, false, false)
	led(2, 1, 1)
	want("a leader moved while all is well", targetRefresh, false, false, false)
	led(0, 1, 1)
	reach.Lose("a:1")
	want("a broker is lost, long ago", targetRefresh, true, false, false)
	led(1, 2, -1)
	want("the lost one has a successor, one that is there another", unreachableRefresh, true, false, false)
	now = now.Add(newLeaderTime)
	want("no longer new", targetRefresh, false, false, false)
	led(1, 2, 2)
	want("one without leader has one", unreachableRefresh, false, false, true)
	reach.Restore()
	want("the broker is back", targetRefresh, false, false, false)
}

// lostAt is a Reach that lost its broker at this time.
type lostAt struct {
	*kafkatest.Reach
	at time.Time
}

func (l *lostAt) LastLost() time.Time { return l.at }

func (l *lostAt) Dying() bool { return NewLeaders(l, time.Now).Dying() }

// A partition is excluded while a lost broker is in its in-sync replicas, but not for long: the broker may be
// unreachable only from here.
func TestPartitionsOfALostBrokerAreLeftAlone(t *testing.T) {
	p := timer.TopicPartition{Topic: "t", Partition: 0}
	for _, tc := range []struct {
		name string
		ends func(targets *Metadata, reach *lostAt, isr func(...int32))
	}{
		{"it leaves them", func(_ *Metadata, _ *lostAt, isr func(...int32)) { isr(1, 2) }},
		{"it is back", func(_ *Metadata, reach *lostAt, _ func(...int32)) { reach.Restore() }},
		{"it takes too long",
			func(_ *Metadata, reach *lostAt, _ func(...int32)) { reach.at = time.Now().Add(-BrokerDeath) }},
	} {
		reach := &lostAt{&kafkatest.Reach{}, time.Now()}
		targets := NewMetadata(nil, MetadataOptions{Reach: reach})
		targets.Leaders.setBrokers(
			[]kmsg.MetadataResponseBroker{{NodeID: 0, Host: "a", Port: 1}, {NodeID: 1, Host: "b", Port: 1},
				{NodeID: 2, Host: "c", Port: 1}})
		targets.topics["t"] = &cachedTopic{used: time.Now()}
		isr := func(ids ...int32) {
			answer := kmsg.NewMetadataResponseTopic()
			answer.Topic = kmsg.StringPtr("t")
			answer.Partitions = []kmsg.MetadataResponseTopicPartition{{Leader: 1, ISR: ids}}
			targets.mu.Lock()
			defer targets.mu.Unlock()
			targets.apply(targets.topics["t"], &answer, time.Now())
		}
		isr(1, 2)
		reach.Lose("a:1")
		if targets.Leaders.Exclude(p) || targets.Leaders.Unreachable(p) {
			t.Errorf("%s: excluded, and waits for nobody", tc.name)
		}
		isr(0, 1, 2)
		if targets.Leaders.Unreachable(p) || !targets.Leaders.Exclude(p) || !targets.Leaders.Unreachable(p) ||
			targets.Leaders.refreshEvery() != unreachableRefresh {
			t.Errorf("%s: not excluded by who has waited in vain, or before", tc.name)
		}
		tc.ends(targets, reach, isr)
		if targets.Leaders.Unreachable(p) || targets.Leaders.Exclude(p) ||
			targets.Leaders.refreshEvery() != targetRefresh {
			t.Errorf("%s, and it is still excluded", tc.name)
		}
	}
}

// A topic that is first used while some leader is unreachable still becomes known: its timers do not need that broker.
func TestATopicIsMetWhileABrokerIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, cl := kafkatest.Bubble(t, 3, "t", "good")
		reach := &kafkatest.Reach{}
		targets := NewMetadata(cl, MetadataOptions{Reach: reach})
		must(t, errors.Join(c.MoveTopicPartition("t", 0, 0), c.MoveTopicPartition("good", 0, 1)))
		if _, known := targets.lookUp(t, "t"); !known {
			t.Fatal("a topic is not known while all is well")
		}
		reach.Lose(c.ListenAddrs()[0])
		targets.ReachabilityChanged()
		if _, known := targets.lookUp(t, "good"); !known {
			t.Error("a topic is not known while the leader of another is unreachable")
		}
	})
}

// Partitions led by an unreachable broker are unreachable, and our own ones among them stalled, until metadata, which
// is now refreshed often, shows another leader.
func TestPartitionsOfABrokerThatIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, cl := kafkatest.Bubble(t, 3, "t", "good")
		reach, changed := &kafkatest.Reach{}, make(chan struct{}, 100)
		targets := NewMetadata(cl, MetadataOptions{Reach: reach, Changed: func() { changed <- struct{}{} }})
		health := NewHealth(HealthOptions{Targets: targets, Logger: slog.New(slog.DiscardHandler)})
		told := make(chan struct{}, 100)
		waiter := health.Waiter(func() { told <- struct{}{} })
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = targets.Run(ctx) })
		defer run.Wait()
		defer cancel()

		p, good := timer.TopicPartition{Topic: "t", Partition: 0}, timer.TopicPartition{Topic: "good", Partition: 0}
		must(t, errors.Join(c.MoveTopicPartition("t", 0, 0), c.MoveTopicPartition("good", 0, 1)))
		if err := targets.Refresh(t.Context(), "t", "good"); err != nil {
			t.Fatal(err)
		}
		reach.Lose(c.ListenAddrs()[0])
		targets.ReachabilityChanged()
		<-changed
		admit := func(p timer.TopicPartition) int { n, _ := waiter.Admit(p, 5); return n }
		waiter.Wait(p)
		health.due(true)
		for what, ok := range map[string]bool{
			"unreachable": targets.Leaders.Unreachable(p) && !targets.Leaders.Unreachable(good),
			"stalled": targets.Leaders.Stalled(p.Topic, p.Partition) &&
				!targets.Leaders.Stalled(good.Topic, good.Partition),
			"unhealthy": !health.AllHealthy() && !health.Allow(p, nil) && health.Allow(good, nil),
			"admitted":  admit(p) == 0 && admit(good) == 5,
			"told":      len(told) == 0,
		} {
			if !ok {
				t.Errorf("%s: not as it should be", what)
			}
		}
		must(t, c.MoveTopicPartition("t", 0, 2))
		start := time.Now()
		for targets.Leaders.Unreachable(p) {
			select {
			case <-changed:
			case <-time.After(20 * time.Second):
				t.Fatal("unreachable forever")
			}
		}
		if took := time.Since(start); took > targetRefresh/2 {
			t.Errorf("another leader was known after %s", took)
		}
		if ps := health.due(true); len(ps) > 0 {
			t.Errorf("%v to be probed", ps)
		}
		if !health.Allow(p, nil) || len(told) == 0 || !slices.Contains(waiter.Ready(), p) || admit(p) != 5 ||
			len(health.Unhealthy()) > 0 {
			t.Error("unhealthy, and somebody leads it")
		}
	})
}
