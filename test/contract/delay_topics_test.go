package contract

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// passed serves until n more records, which it writes, have come, and stops.
func (d *delayed) passed(name string, n int) {
	d.Helper()
	in := d.serve(d.config(), d.width)
	d.pass(name, n)
	d.Out.WaitFor(d.count(), patience)
	d.stop(in)
}

// The checkpoints are lost: with an offset committed the partitions refuse, until the offset may be believed.
func TestCheckpointsLost(t *testing.T) {
	t.Parallel()
	d := newDelayed(t, 2, 1, 100*time.Millisecond)
	d.passed("first", 100)
	kafkatest.DeleteTopics(t, d.Cluster.Admin(t), d.Requests+".waterclock.checkpoints")
	d.pass("second", 100)
	cfg := d.config()
	in := rig.Serve(t, cfg, node.Options{})
	if body := d.refuses(in); strings.Count(body, "the checkpoints were lost") != d.width ||
		!strings.Contains(body, "--accept-lost-changelog") {
		t.Errorf("/readyz: %s", body)
	}
	d.stop(in)
	cfg.AcceptLostChangelog = true
	d.serve(cfg, d.width)
	d.finish()
}

// The topic is recreated while nobody serves it: it is passed on from its start. While it is served that stops it.
func TestTopicMadeAnew(t *testing.T) {
	t.Parallel()
	d := newDelayed(t, 2, 1, 100*time.Millisecond)
	adm := d.Cluster.Admin(t)
	recreated := func() {
		d.Client.Close()
		kafkatest.DeleteTopics(t, adm, d.Requests)
		var made kadm.CreateTopicResponse
		d.until("the topic is recreated", func() (ok bool) {
			var err error
			made, err = adm.CreateTopic(t.Context(), int32(d.width), 1, nil, d.Requests)
			return err == nil
		})
		d.until("the topic is there", func() bool {
			is, err := adm.ListTopics(kadm.WithAuthorizedOps(t.Context()), d.Requests) // not from a cache
			return err == nil && is[d.Requests].Err == nil && is[d.Requests].ID == made.ID &&
				len(is[d.Requests].Partitions) == d.width
		})
		d.Client = d.Cluster.Client(t)
	}
	d.passed("first", 200)
	recreated()
	in := d.serve(d.config(), d.width)
	d.pass("second", 100)
	d.Out.WaitFor(d.count(), patience)
	recreated()
	if body := d.refuses(in); !strings.Contains(body, "recreated") ||
		!strings.Contains(body, "restart every instance") {
		t.Errorf("/readyz: %s", body)
	}
	d.stop(in)
	d.serve(d.config(), d.width)
	d.pass("third", 100)
	if n := len(d.Out.WaitFor(d.count(), patience)); n != d.count() {
		t.Errorf("%d records came, want %d", n, d.count())
	}
	d.Out.Quiet(quiet)
}

// The topic is given partitions: after a restart they are served, and so are the others, from where they were.
func TestTopicGrows(t *testing.T) {
	t.Parallel()
	d := newDelayed(t, 2, 1, 100*time.Millisecond)
	d.passed("first", 100)
	d.width = 5
	kafkatest.GrowTopics(t, d.Cluster.Admin(t), d.width, d.Requests)
	d.until("the producer knows", func() bool {
		d.Client.ForceMetadataRefresh()
		d.pass("second", 50)
		return slices.ContainsFunc(d.log, func(r *kgo.Record) bool { return r.Partition > 1 })
	})
	d.passed("third", 100)
	d.finish()
}

// Records that retention deletes before they are due are counted, and hold up nobody.
func TestRecordsLostToRetention(t *testing.T) {
	t.Parallel()
	d := newDelayed(t, 1, 1, 100*time.Millisecond)
	d.passed("first", 10)
	for i := range 10 {
		d.Send(d.record("deleted", i))
	}
	at := kadm.Offsets{}
	at.Add(kadm.Offset{Topic: d.Requests, Partition: 0, At: 20})
	deleted, err := d.Cluster.Admin(t).DeleteRecords(t.Context(), at)
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	in := d.serve(d.config(), d.width)
	d.pass("last", 10)
	d.finish()
	if n := in.Metric("waterclock_requests_lost_total", "topic", d.Requests); n != 10 {
		t.Errorf("%v records lost, want 10", n)
	}
}

// A target that no broker knows yet is made: nothing becomes a dead letter.
func TestTargetThatIsMadeLater(t *testing.T) {
	t.Parallel()
	d := newDelayed(t, 1, 1, 100*time.Millisecond)
	cfg := d.config()
	cfg.Delay[0].Target = d.Requests + "-later"
	d.serve(cfg, d.width, node.Options{MissingAfter: patience})
	d.pass("r", 20)
	d.awaitMetric(20, "waterclock_parked_timers", "topic", d.Requests)
	d.Out = kafkatest.Collect(t, d.Cluster, d.target("later", 2))
	d.finish()
}

// A topic that would delete what is not due is refused at the start, with what is wrong.
func TestRetentionShorterThanTheDelay(t *testing.T) {
	t.Parallel()
	d := newDelayed(t, 1, 1, time.Hour)
	kafkatest.SetTopic(t, d.Cluster.Admin(t), d.Requests, "retention.ms", "3600000")
	p := d.start()
	if code := p.Exit(patience); code != 1 || !strings.Contains(p.Output(),
		"retention.ms is 3600000, must be more than the delay of 1h:") {
		t.Errorf("exit %d: %s", code, p.Output())
	}
}

// The commands know the topics: they are made, checked, and their rights printed.
func TestCommandsKnowDelayTopics(t *testing.T) {
	t.Parallel()
	d := newDelayed(t, 3, 1, time.Minute)
	settings := []string{"--brokers", strings.Join(d.Cluster.Seeds(), ","), "--delay", d.Requests + ":1m:" + d.Target}
	run := func(code int, args ...string) string {
		t.Helper()
		p := rig.Exec(t, nil, append(args, settings...)...)
		if got := p.Exit(patience); got != code {
			t.Errorf("%v: exit %d, want %d: %s", args, got, code, p.Output())
		}
		return p.Output()
	}
	if out := run(1, "topics"); !strings.Contains(out, d.Requests+".waterclock.checkpoints") ||
		!strings.Contains(out, "missing") {
		t.Errorf("before they are made: %s", out)
	}
	run(0, "topics", "--create")
	if out := run(0, "topics"); !strings.Contains(out, "LogAppendTime") || strings.Contains(out, "missing") {
		t.Errorf("when they are made: %s", out)
	}
	settings = append(settings, "--targets", d.Target)
	out := run(0, "topics", "acls", "--producers", "User:p")
	for _, want := range []string{
		"--operation Read --operation Write --operation DescribeConfigs --operation Create --topic " + d.Requests +
			".waterclock.checkpoints",
		"--operation Write --operation DescribeConfigs --operation Create --topic " + d.Requests +
			".waterclock.dead-letters",
		"--operation Read --operation DescribeConfigs --topic " + d.Requests + "\n",
		"--allow-principal User:p --operation Write --topic " + d.Requests + "\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("acls lack %q:\n%s", want, out)
		}
	}
}
