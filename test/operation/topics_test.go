package operation

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/test/rig"
)

// Topics deleted, recreated, given more partitions or another policy while an
// instance runs: that request topic stops and says so, another one goes on; what
// is only unwise is an alert.
func TestTopicsThatChangeWhileRunning(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := kafkatest.Shared(t)
	adm := kadm.NewClient(c.Client(t))
	name := kafkatest.Topic(t)
	const partitions = 2
	good := c.CreateTopic(t, partitions, nil, name+"-good")
	cases := []struct {
		name string
		says string // the sentence names these, by |
		do   func(requests string)
	}{
		{"grown", "partitions is 3, must be 2", func(r string) { kafkatest.GrowTopics(t, adm, partitions+1, r) }},
		{"deleted", "topic is missing", func(r string) { kafkatest.DeleteTopics(t, adm, r) }},
		{"recreated", "ID is", func(r string) {
			kafkatest.DeleteTopics(t, adm, r)
			await.Until(t, 30*time.Second, "recreated", func() bool {
				_, err := adm.CreateTopic(t.Context(), partitions, 1, nil, r)
				return err == nil
			})
		}},
		{"changelog", ".waterclock.changelog|topic is missing",
			func(r string) { kafkatest.DeleteTopics(t, adm, topics.Changelog(r)) }},
		{"policy", ".waterclock.changelog|cleanup.policy is delete", func(r string) {
			kafkatest.SetTopic(t, adm, topics.Changelog(r), "cleanup.policy", "delete")
		}},
	}
	all := []string{good}
	for _, x := range cases {
		all = append(all, c.CreateTopic(t, partitions, nil, name+"-"+x.name))
	}
	target := c.CreateTopic(t, 1, nil, name+"-out")
	out := kafkatest.Collect(t, c, target)
	cfg := rig.Config(t, c.Seeds(), all...)
	cfg.TopicCheckInterval = time.Second
	in, log := rig.ServeLogged(t, cfg, node.Options{})
	in.Ready(len(all)*partitions, time.Minute)

	// Timers of the topic that will grow: those that would be elsewhere then are shown.
	const long = 20
	grown := name + "-" + cases[0].name
	rig.Send(t, c.Client(t), timers(grown, target, "long-", long, time.Now().Add(time.Hour), time.Second,
		[]byte("v"))...)
	await.Until(t, time.Minute, "they are pending",
		func() bool { return in.Metric("waterclock_pending_timers", "topic", grown) == long })
	if n := in.Metric("waterclock_misplaced_timers", "topic", grown); n != 0 {
		t.Errorf("%v timers lie off their partition before anything has happened", n)
	}
	off := 0
	for i := range long {
		if id := fmt.Append(nil, "long-", i); intake.Murmur2Partition(id, partitions) != intake.Murmur2Partition(
			id, partitions+1) {
			off++
		}
	}

	// Timers for the good topic all the while.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sent atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		cl := c.Client(t)
		for ctx.Err() == nil {
			r := timers(good, target, fmt.Sprint("good-", sent.Load(), "-"), 5, time.Now().Add(300*time.Millisecond),
				100*time.Millisecond, []byte("v"))
			if err := cl.ProduceSync(context.Background(), r...).FirstErr(); err != nil {
				t.Errorf("send: %v", err)
				return
			}
			sent.Add(5)
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	out.WaitFor(50, time.Minute)

	// First what is no reason to stop.
	kafkatest.SetTopic(t, adm, topics.Changelog(good), "min.compaction.lag.ms", "1")
	await.Until(t, 20*time.Second, "the alert", func() bool {
		return in.Metric("waterclock_topic_problems", "topic", good, "severity", "alert") > 0 &&
			in.Metric("waterclock_topic_checks_total", "topic", good, "result", "alert") > 0
	})
	if len(log.Lines("min.compaction.lag.ms is 1")) == 0 {
		t.Error("the alert is not logged")
	}
	if status, body := in.Readyz(); status != 200 {
		t.Errorf("an alert makes it not ready: %s", body)
	}
	for i, x := range cases {
		x.do(all[i+1])
		await.Until(t, 40*time.Second, x.name+" is stopped", func() bool {
			return in.Metric("waterclock_topic_problems", "topic", all[i+1], "severity", "stop") > 0
		})
		status, body := in.Readyz()
		if status == 200 {
			t.Errorf("%s: still ready", x.name)
		}
		for _, text := range append(strings.Split(x.says, "|"), "request topic "+all[i+1]+" is stopped") {
			if !strings.Contains(body, text) {
				t.Errorf("%s: /readyz does not say %q: %s", x.name, text, body)
			}
		}
		before := sent.Load()
		await.Until(t, 30*time.Second, "the good topic goes on",
			func() bool { return int64(len(out.Records())) > before+20 })
	}
	var counted strings.Builder
	moving := *cfg
	moving.Requests = []string{grown}
	if err := commands.Repartition(t.Context(), &moving, commands.RepartitionOptions{DryRun: true},
		&counted); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(counted.String(), fmt.Sprintf("timers to be moved: %d,", off)) {
		t.Errorf("%d timers are to be moved: %s", off, counted.String())
	}
	// Partitions that are still ours are failed, the good ones live.
	await.Until(t, 10*time.Second, "failed partitions", func() bool {
		return in.Metric("waterclock_partitions", "topic", name+"-policy", "state", "failed") == partitions
	})
	if n := in.Metric("waterclock_partitions", "topic", good, "state", "live"); n != partitions {
		t.Errorf("%v partitions of the good topic are live", n)
	}
	cancel()
	<-done
	n := int(sent.Load())
	out.WaitFor(n, time.Minute)
	rig.Exactly(t, out.Records(), n)
}

// Requests that retention deletes before they are read are counted and said
// loudly, and the others fire.
func TestRequestsLostToRetention(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	retention := "60000"
	requests := c.CreateTopic(t, 1, map[string]*string{"retention.ms": &retention})
	target := c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-out")
	out := kafkatest.Collect(t, c, target)
	cfg := rig.Config(t, c.Seeds(), requests)
	in := rig.Serve(t, cfg, node.Options{})
	in.Ready(1, time.Minute)
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	cl := c.Client(t)
	rig.Send(t, cl, timers(requests, target, "lost-", 10, time.Now().Add(5*time.Second), time.Second, nil)...)
	kept := timers(requests, target, "kept-", 10, time.Now().Add(8*time.Second), time.Second, nil)
	for _, r := range kept {
		r.Timestamp = time.Now().Add(-50 * time.Second) // read with 5/6 of the retention gone
	}
	rig.Send(t, cl, kept...)
	offsets := make(kadm.Offsets)
	offsets.AddOffset(requests, 0, kept[0].Offset, -1)
	if r, err := kadm.NewClient(cl).DeleteRecords(t.Context(), offsets); err != nil || r.Error() != nil {
		t.Fatal(err, r.Error())
	}
	in, log := rig.ServeLogged(t, cfg, node.Options{})
	in.Ready(1, time.Minute)
	out.WaitFor(10, time.Minute)
	out.Quiet(time.Second)
	rig.Exactly(t, out.Records(), 10)
	if n := in.Metric("waterclock_requests_lost_total"); n != 10 {
		t.Errorf("%v are counted as lost, want 10", n)
	}
	if len(log.Lines("requests were lost to retention")) != 1 {
		t.Error("it is not said")
	}
	if in.Metric("waterclock_retention_alerts_total") == 0 || len(log.Lines("retention may soon delete")) == 0 {
		t.Error("no alert for intake that lags")
	}
	in.Balanced(0)
}

// The clock is set ahead while timers sleep: what is due by it fires then, not
// when the sleep would have ended; nothing fires before it is due by the clock.
func TestClockSetAhead(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, 2, nil)
	target := c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-out")
	out := kafkatest.Collect(t, c, target)
	var ahead atomic.Int64
	in := rig.Serve(t, rig.Config(t, c.Seeds(), requests),
		node.Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	in.Ready(2, time.Minute)
	const n, jump = 20, 12 * time.Second // within what wheels are loaded for: nothing else wakes the workers
	rig.Send(t, c.Client(t), timers(requests, target, "id-", n, time.Now().Add(11*time.Second),
		500*time.Millisecond, nil)...)
	in.Balanced(n)
	set := time.Now()
	ahead.Store(int64(jump))
	received := out.WaitFor(n, 9*time.Second)
	t.Logf("all fired %s after the jump", time.Since(set))
	ids := make(map[string]bool)
	for _, r := range received {
		ids[r.Header("waterclock-id")] = true
		var due int64
		if _, err := fmt.Sscan(r.Header("waterclock-due"), &due); err != nil || r.Timestamp.UnixMilli() < due {
			kafkatest.Inexact(t, "early by the owner's clock: %s due %d, timestamp %d", r.Key, due,
				r.Timestamp.UnixMilli())
		}
	}
	if len(ids) != n || len(received) != n {
		kafkatest.Inexact(t, "%d emissions of %d timers", len(received), len(ids))
	}
	await.Until(t, time.Minute, "the jump is counted", func() bool {
		return in.Metric("waterclock_clock_jumps_total", "direction", "ahead") == 1
	})
	in.Balanced(0)
}

// A request topic is recreated long before the next check of the topics, and
// requests are written to it: they are not read from the old one's position, the
// partitions fail and say why.
func TestTopicRecreatedBetweenChecks(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, 1, nil)
	target := c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-out")
	out := kafkatest.Collect(t, c, target)
	cl := c.Client(t)
	adm := kadm.NewClient(cl)
	in := rig.Serve(t, rig.Config(t, c.Seeds(), requests), node.Options{})
	in.Ready(1, time.Minute)
	rig.Send(t, cl, timers(requests, target, "before-", 5, time.Now(), time.Millisecond, nil)...)
	out.WaitFor(5, time.Minute)
	kafkatest.DeleteTopics(t, adm, requests)
	await.Until(t, 30*time.Second, "recreated", func() bool {
		_, err := adm.CreateTopic(t.Context(), 1, 1, nil, requests)
		return err == nil
	})
	recreated := c.Client(t)
	await.Until(t, time.Minute, "the partition has failed", func() bool {
		_ = recreated.ProduceSync(
			t.Context(), timers(requests, target, "after-", 1, time.Now(), time.Millisecond, nil)...).FirstErr()
		return in.Metric("waterclock_partitions", "state", "failed") == 1
	})
	if status, body := in.Readyz(); status == 200 || !strings.Contains(body, "recreated") {
		t.Errorf("ready %d: %s", status, body)
	}
	out.Quiet(time.Second)
	rig.Exactly(t, out.Records(), 5)
}
