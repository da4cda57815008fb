package emitter

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
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
	targets.topics["t"] = &target{used: now}
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
			if got := targets.Away(TargetPartition{"t", int32(p)}); got != want {
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
