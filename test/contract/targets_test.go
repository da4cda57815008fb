package contract

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
)

// tolerance is how long the service may go by what it knew of a target: it refreshes every 5 s.
const tolerance = 7 * time.Second

// TestTargetGainsPartitionsWhileRunning: an emission is placed by the partition count at its firing, not at its
// scheduling; firings go on meanwhile.
func TestTargetGainsPartitionsWhileRunning(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	apart := 5 * time.Millisecond // 13 s in all
	for !targetGainsPartitions(t, apart) {
		if apart *= 2; apart > 40*time.Millisecond {
			t.Fatal("too slow a machine for this test at any pace")
		}
	}
}

// targetGainsPartitions returns false if the machine was too slow: too few timers fall due once the new count must be
// known.
func targetGainsPartitions(t *testing.T, apart time.Duration) bool {
	const before, after = 2, 5
	const timers, known = 2600, 200
	s := newSetup(t, kafkatest.Shared(t), 4, before)
	s.serve(s.Config(), 4)
	start := time.Now().Add(2 * time.Second)
	var wants []want
	for i := range timers {
		w := s.schedule(fmt.Sprint("id-", i), "v", start.Add(time.Duration(i)*apart).UnixMilli())
		w.partition = anywhere
		if i > timers*3/4 && i%5 == 0 { // a partition that is not there yet
			w.partition = after - 1
			w.request.Headers = append(w.request.Headers, header("timer-target-partition", fmt.Sprint(after-1)))
		}
		wants = append(wants, w)
	}
	s.send(wants...)
	s.Out.WaitFor(500, patience)
	kafkatest.GrowTopics(t, s.Cluster.Admin(t), after, s.Target)
	grown := time.Now()
	s.until("the topic has grown", func() bool {
		topics, err := s.Cluster.Admin(t).ListTopics(t.Context(), s.Target)
		return err == nil && len(topics[s.Target].Partitions) == after
	})
	if left := time.Until(start.Add((timers - known) * apart)); left < tolerance {
		t.Logf("the topic grew %s before the last timers, %s apart", left, apart)
		return false
	}
	// A consumer that was there before hears of new partitions minutes later.
	s.Out = kafkatest.Collect(t, s.Cluster, s.Target)
	s.Out.WaitFor(timers, time.Until(start.Add(timers*apart))+patience)
	s.end(timers)
	s.onTime(time.Time{})
	explicit := make(map[string]bool)
	for _, w := range wants {
		explicit[source(w.request)] = w.partition >= 0
	}
	written := 0
	for _, r := range s.Out.Records() {
		if explicit[r.Header("waterclock-source")] {
			continue
		}
		old, latest := javaPartition(s.Target, r.Key, before), javaPartition(s.Target, r.Key, after)
		late := r.Timestamp.After(grown.Add(tolerance))
		if late {
			written++
		}
		if (late || r.Partition != old) && (r.Partition != latest || r.Timestamp.Before(grown.Add(-time.Second))) {
			t.Errorf("%s, written %s after the topic grew, is on partition %d; before it is %d, then %d", show(r.Key),
				r.Timestamp.Sub(grown), r.Partition, old, latest)
		}
	}
	if written < known {
		t.Errorf("only %d emissions were written once the new count must be known", written)
	}
	return true
}

// TestTargetRecreatedWhileRunning: while it is gone its emissions are dead letters; once it is there again emissions to
// it are delivered, those of the dead letters too when they are sent again as they are. Another target gets what is for
// it at all times.
func TestTargetRecreatedWhileRunning(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const n = 50
	s := served(t)
	other := s.target("other", 2)
	s.Out = kafkatest.Collect(t, s.Cluster, s.Target, other)
	serial := 0
	send := func(reason waterclock.Reason, due time.Time) {
		var wants []want
		for range n {
			serial++
			w := s.schedule(fmt.Sprint("id-", serial), "v", due.UnixMilli())
			w.refused = reason
			wants = append(wants, w, s.timer(other, fmt.Sprint("other-", serial), "v", due.UnixMilli()))
		}
		s.send(wants...)
		s.arrived()
	}
	send("", time.Now())
	kafkatest.DeleteTopics(t, s.Cluster.Admin(t), s.Target)
	send(waterclock.ReasonTargetUnknown, time.Now().Add(time.Second))
	fire, _ := s.asked()
	s.checkAll(fire)

	s.Topic(s.Target, 3)
	s.Out = kafkatest.Collect(t, s.Cluster, s.Target, other)
	s.sent = slices.DeleteFunc(s.sent, func(w want) bool { return w.topic == s.Target && w.refused == "" }) // lost
	await.For(t, tolerance)
	send("", time.Now().Add(200*time.Millisecond))
	// What was refused is sent again as it lies there, and fires at once.
	for _, l := range s.dead.Records() {
		r := &kgo.Record{Topic: s.Requests, Key: l.Key, Value: l.Value, Headers: l.Headers}
		s.send(plain(r, s.Target, number(l, "timer-at")))
	}
	s.end(len(s.sent) + n)
}

// TestTargetSizeLimitChangesWhileRunning: after max.message.bytes of a target was lowered, what is larger is a dead
// letter and its neighbours of the same step and partition are not; after it was raised it is delivered.
func TestTargetSizeLimitChangesWhileRunning(t *testing.T) {
	t.Parallel()
	s := newSetup(t, kafkatest.Shared(t), 4, 1)
	s.serve(s.Config(), 4)
	large := noise(20_000)
	send := func(round string, refused waterclock.Reason) {
		var wants []want
		due := time.Now().Add(500 * time.Millisecond).UnixMilli()
		for i := range 40 {
			w := s.schedule(fmt.Sprintf("%s-%d", round, i), "small", due)
			if i%20 == 7 {
				w.value, w.request.Value, w.refused = large, large, refused
			}
			wants = append(wants, w)
		}
		s.send(wants...)
		s.arrived()
	}
	send("at first", "")
	kafkatest.SetTopic(t, s.Cluster.Admin(t), s.Target, "max.message.bytes", "10000")
	send("lowered", waterclock.ReasonTargetTooLarge)
	kafkatest.SetTopic(t, s.Cluster.Admin(t), s.Target, "max.message.bytes", "1000000")
	await.For(t, tolerance)
	send("raised", "")
	s.end(len(s.sent))
}

// TestATargetMadeJustInTime: what is due for a topic that does not exist, yet, fires when it is made within 10 s; what
// is due for one that is not made becomes a dead letter then, and others do not wait.
func TestATargetMadeJustInTime(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const usual = 25 * time.Second // the first two steps, on a machine that is busy, come well within
	s := newSetup(t, kafkatest.Shared(t), 1, 1)
	s.serve(s.Config(), 1, node.Options{MissingAfter: usual})
	due := time.Now()
	for _, topic := range []string{s.Requests + "-late", s.Requests + "-never", s.Target} {
		s.Send(s.timer(topic, topic, "v", due.UnixMilli()).request)
	}
	s.Out.WaitFor(1, patience)
	s.onTime(time.Time{}) // beside two without a target
	s.awaitMetric(2, "waterclock_parked_timers_by_target", "partition", "unknown")
	kafkatest.Collect(t, s.Cluster, s.target("late", 3)).WaitFor(1, patience)
	r := s.dead.WaitFor(1, patience)[0]
	if waited := r.At.Sub(due); waited < usual || string(r.Key) != s.Requests+"-never" {
		t.Errorf("a dead letter of %s after %s, want one of never after %s", r.Key, waited, usual)
	}
	s.dead.Quiet(quiet)
}
