package emitter

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/timer"
)

// Where a leader that cannot be reached has a successor, that one is left alone until
// its followers may follow; nothing but time ends that, or the broker's return. Who
// leads is asked often meanwhile, so that it is noticed at once.
func TestNewLeadersAreLeftAloneAtFirst(t *testing.T) {
	now := time.Now()
	reach := &fakeReach{}
	targets := NewTargets(nil, TargetOptions{Now: func() time.Time { return now }})
	targets.Watch(reach, func() {})
	targets.meet([]kmsg.MetadataResponseBroker{{NodeID: 0, Host: "a", Port: 1}, {NodeID: 1, Host: "b", Port: 1}, {NodeID: 2, Host: "c", Port: 1}})
	targets.topics["t"] = &cachedTopic{used: now}
	led := func(leaders ...int32) {
		answer := kmsg.NewMetadataResponseTopic()
		answer.Topic = kmsg.StringPtr("t")
		for p, leader := range leaders {
			answer.Partitions = append(answer.Partitions, kmsg.MetadataResponseTopicPartition{Partition: int32(p), Leader: leader})
		}
		targets.mu.Lock()
		defer targets.mu.Unlock()
		targets.heed(targets.topics["t"], &answer, now)
	}
	want := func(when string, pause time.Duration, away ...bool) {
		t.Helper()
		for p, want := range away {
			if got := targets.Away(timer.TopicPartition{Topic: "t", Partition: int32(p)}); got != want {
				t.Errorf("%s: partition %d is away: %v, want %v", when, p, got, want)
			}
		}
		if got := targets.pause(); got != pause {
			t.Errorf("%s: asked again after %s, want %s", when, got, pause)
		}
	}
	led(0, 1, 1)
	want("all is well", targetRefresh, false, false, false)
	led(2, 1, 1)
	want("a leader moved while all is well", targetRefresh, false, false, false)
	led(0, 1, 1)
	reach.lose("a:1")
	want("a broker is lost, long ago", targetRefresh, true, false, false)
	led(1, 2, -1)
	want("the lost one has a successor, one that is there another", awayRefresh, true, false, false)
	now = now.Add(settleTime)
	want("settled", targetRefresh, false, false, false)
	led(1, 2, 2)
	want("one without leader has one", awayRefresh, false, false, true)
	reach.gone = nil
	want("the broker is back", targetRefresh, false, false, false)
}

// A target's leader waits for a broker that died, and takes no writes until that has
// left its in-sync replicas; the other partitions of the step have none there. The
// step leaves it, and the next one does without.
func TestStepLeavesATargetThatWaitsForADeadBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, reach := awayLane(t)
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: kerr.NotEnoughReplicas, Count: -1})
		to := timer.TopicPartition{Topic: "t", Partition: 0}
		reach.lose("127.0.0.1:1")
		reach.burdened = map[timer.TopicPartition]bool{to: true}
		s := plainSource(l)
		l.of.Add(s)
		start := time.Now()
		if _, err := l.step(t.Context()); !errors.Is(err, errAway) {
			t.Error(err)
		}
		if took := time.Since(start); took > brokerDeath-2*time.Second {
			t.Errorf("it took %s", took)
		}
		if _, err := l.step(t.Context()); err != nil || s.outcomes[len(s.outcomes)-1] != Committed {
			t.Errorf("%v, %v", err, s.outcomes)
		}
	})
}

// lostAt is a reach that lost its broker then.
type lostAt struct {
	*fakeReach
	at time.Time
}

func (r *lostAt) LastLost() time.Time { return r.at }

func (r *lostAt) Dying() bool { return dying(r) }

// A partition is shunned while a broker that was lost is in its in-sync replicas, and
// not for long: it may be out of reach from here alone.
func TestShun(t *testing.T) {
	p := timer.TopicPartition{Topic: "t", Partition: 0}
	for _, tc := range []struct {
		name string
		ends func(targets *Targets, reach *lostAt, isr func(...int32))
	}{
		{"it leaves them", func(_ *Targets, _ *lostAt, isr func(...int32)) { isr(1, 2) }},
		{"it is back", func(_ *Targets, reach *lostAt, _ func(...int32)) { reach.gone = nil }},
		{"it takes too long", func(_ *Targets, reach *lostAt, _ func(...int32)) { reach.at = time.Now().Add(-brokerDeath) }},
	} {
		reach := &lostAt{&fakeReach{}, time.Now()}
		targets := NewTargets(nil, TargetOptions{})
		targets.Watch(reach, func() {})
		targets.meet([]kmsg.MetadataResponseBroker{{NodeID: 0, Host: "a", Port: 1}, {NodeID: 1, Host: "b", Port: 1}, {NodeID: 2, Host: "c", Port: 1}})
		targets.topics["t"] = &cachedTopic{used: time.Now()}
		isr := func(ids ...int32) {
			answer := kmsg.NewMetadataResponseTopic()
			answer.Topic = kmsg.StringPtr("t")
			answer.Partitions = []kmsg.MetadataResponseTopicPartition{{Leader: 1, ISR: ids}}
			targets.mu.Lock()
			defer targets.mu.Unlock()
			targets.heed(targets.topics["t"], &answer, time.Now())
		}
		isr(1, 2)
		reach.lose("a:1")
		if targets.Shun(p) || targets.Away(p) {
			t.Errorf("%s: shunned, and waits for nobody", tc.name)
		}
		if isr(0, 1, 2); targets.Away(p) || !targets.Shun(p) || !targets.Away(p) || targets.pause() != awayRefresh {
			t.Errorf("%s: not shunned by who has waited in vain, or before", tc.name)
		}
		tc.ends(targets, reach, isr)
		if targets.Away(p) || targets.Shun(p) || targets.pause() != targetRefresh {
			t.Errorf("%s, and it is still shunned", tc.name)
		}
	}
}
