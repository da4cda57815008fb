package delay

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// served serves until what was sent has come, and stops.
func (s *setup) served(o func(in *rig.Instance)) {
	s.Helper()
	in := rig.Serve(s.T, s.config(), node.Options{})
	in.Ready(s.partitions, patience)
	o(in)
	s.out.WaitFor(s.count(), patience)
	if err := in.Stop(); err != nil {
		s.Fatal(err)
	}
}

// The checkpoints are lost: with an offset committed the partitions refuse, until the
// offset may be believed.
func TestCheckpointsLost(t *testing.T) {
	t.Parallel()
	w := newSetup(t, kafkatest.Shared(t), 2, 1, 100*time.Millisecond)
	w.served(func(*rig.Instance) { w.send("first", 100) })
	kafkatest.DeleteTopics(t, w.c.Admin(t), w.topic+".waterclock.checkpoints")
	w.send("second", 100)
	in := rig.Serve(t, w.config(), node.Options{})
	await.Until(t, patience, "the partitions refuse",
		func() bool { _, failed := states(in); return failed == w.partitions })
	if _, body := in.Readyz(); strings.Count(body, "the checkpoints were lost") != w.partitions ||
		!strings.Contains(body, "--accept-lost-changelog") {
		t.Errorf("/readyz: %s", body)
	}
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	cfg := w.config()
	cfg.AcceptLostChangelog = true
	in = rig.Serve(t, cfg, node.Options{})
	in.Ready(w.partitions, patience)
	w.finish(patience)
}

// The topic is recreated while nobody serves it: it is passed on from its start. While it
// is served that stops it.
func TestTopicMadeAnew(t *testing.T) {
	t.Parallel()
	w := newSetup(t, kafkatest.Shared(t), 2, 1, 100*time.Millisecond)
	adm := w.c.Admin(t)
	recreated := func() {
		w.cl.Close()
		kafkatest.DeleteTopics(t, adm, w.topic)
		var made kadm.CreateTopicResponse
		await.Until(t, patience, "the topic is recreated", func() (ok bool) {
			var err error
			made, err = adm.CreateTopic(t.Context(), int32(w.partitions), 1, nil, w.topic)
			return err == nil
		})
		await.Until(t, patience, "the topic is there", func() bool {
			d, err := adm.ListTopics(kadm.WithAuthorizedOps(t.Context()), w.topic) // not from a cache
			return err == nil && d[w.topic].Err == nil && d[w.topic].ID == made.ID &&
				len(d[w.topic].Partitions) == w.partitions
		})
		w.cl = w.c.Client(t)
	}
	w.served(func(*rig.Instance) { w.send("first", 200) })
	was := len(w.out.Records())
	recreated()
	clear(w.sent)
	in := rig.Serve(t, w.config(), node.Options{})
	in.Ready(w.partitions, patience)
	w.send("second", 100)
	w.out.WaitFor(was+100, patience)
	recreated()
	await.Until(t, patience, "the topic is stopped",
		func() bool { _, failed := states(in); return failed == w.partitions })
	if _, body := in.Readyz(); !strings.Contains(body, "recreated") ||
		!strings.Contains(body, "restart every instance") {
		t.Errorf("/readyz: %s", body)
	}
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	in = rig.Serve(t, w.config(), node.Options{})
	in.Ready(w.partitions, patience)
	w.send("third", 100)
	w.out.WaitFor(was+200, patience)
	w.out.Quiet(quiet)
	if n := len(w.out.Records()); n != was+200 {
		t.Errorf("%d records came, want %d", n, was+200)
	}
}

// The topic is given partitions: after a restart they are served, and so are the others,
// from where they were.
func TestTopicGrows(t *testing.T) {
	t.Parallel()
	w := newSetup(t, kafkatest.Shared(t), 2, 1, 100*time.Millisecond)
	w.served(func(*rig.Instance) { w.send("first", 100) })
	kafkatest.GrowTopics(t, w.c.Admin(t), 5, w.topic)
	w.partitions = 5
	await.Until(t, patience, "the producer knows", func() bool {
		w.cl.ForceMetadataRefresh()
		w.send("second", 50)
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, r := range w.sent {
			if r.Partition > 1 {
				return true
			}
		}
		return false
	})
	w.served(func(*rig.Instance) {})
	w.finish(patience)
}

// Records that retention deletes before they are due are counted, and hold up nobody.
func TestRecordsLostToRetention(t *testing.T) {
	t.Parallel()
	w := newSetup(t, kafkatest.Shared(t), 1, 1, 100*time.Millisecond)
	w.served(func(*rig.Instance) { w.send("first", 10) })
	w.send("deleted", 10)
	for from, r := range w.sent {
		if strings.HasPrefix(string(r.Key), "deleted") {
			delete(w.sent, from)
		}
	}
	adm := w.c.Admin(t)
	at := kadm.Offsets{}
	at.Add(kadm.Offset{Topic: w.topic, Partition: 0, At: 20})
	deleted, err := adm.DeleteRecords(t.Context(), at)
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	in := rig.Serve(t, w.config(), node.Options{})
	in.Ready(w.partitions, patience)
	w.send("last", 10)
	w.finish(patience)
	if n := in.Metric("waterclock_requests_lost_total", "topic", w.topic); n != 10 {
		t.Errorf("%v records lost, want 10", n)
	}
}

// A topic that would delete what is not due is refused at the start, with what is wrong.
func TestRetentionShorterThanTheDelay(t *testing.T) {
	t.Parallel()
	w := newSetup(t, kafkatest.Shared(t), 1, 1, time.Hour)
	kafkatest.SetTopic(t, w.c.Admin(t), w.topic, "retention.ms", "3600000")
	p := w.start()
	if code := p.Exit(patience); code != 1 || !strings.Contains(p.Output(),
		"retention.ms is 3600000, must be more than the delay of 1h:") {
		t.Errorf("exit %d: %s", code, p.Output())
	}
}

// The commands know the topics: they are made, checked, and their rights printed.
func TestCommands(t *testing.T) {
	t.Parallel()
	w := newSetup(t, kafkatest.Shared(t), 3, 1, time.Minute)
	settings := []string{"--brokers", strings.Join(w.c.Seeds(), ","), "--delay", w.topic + ":1m:" + w.target}
	run := func(code int, args ...string) string {
		t.Helper()
		p := rig.Exec(t, nil, append(args, settings...)...)
		if got := p.Exit(patience); got != code {
			t.Errorf("%v: exit %d, want %d: %s", args, got, code, p.Output())
		}
		return p.Output()
	}
	if out := run(1, "topics"); !strings.Contains(out, w.topic+".waterclock.checkpoints") ||
		!strings.Contains(out, "missing") {
		t.Errorf("before they are made: %s", out)
	}
	run(0, "topics", "--create")
	if out := run(0, "topics"); !strings.Contains(out, "LogAppendTime") || strings.Contains(out, "missing") {
		t.Errorf("when they are made: %s", out)
	}
	settings = append(settings, "--targets", w.target)
	out := run(0, "topics", "acls", "--producers", "User:p")
	for _, want := range []string{
		"--operation Read --operation Write --operation DescribeConfigs --operation Create --topic " + w.topic +
			".waterclock.checkpoints",
		"--operation Write --operation DescribeConfigs --operation Create --topic " + w.topic +
			".waterclock.dead-letters",
		"--operation Read --operation DescribeConfigs --topic " + w.topic + "\n",
		"--allow-principal User:p --operation Write --topic " + w.topic + "\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("acls lack %q:\n%s", want, out)
		}
	}
}
