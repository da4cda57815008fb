package crash

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// envOldBinary names the binary of an earlier build, made in a worktree of its commit. Without it
// this build stands in for it.
const envOldBinary = "WATERCLOCK_OLD_BINARY"

// mixed is how many timers of each kind wait for the last build. There are ten times as many plain ones.
const mixed = 200

// builds is a request topic, and all that is pending there while builds take turns.
type builds struct {
	*rig.Setup
	unhealthy      string
	delayed, later string // a fixed-delay topic and its target
}

func (b *builds) timer(id string, due time.Time, headers ...string) *kgo.Record {
	return rig.With(b.Valued(id, "1", due), headers...)
}

func (b *builds) says(id string, headers ...string) *kgo.Record {
	return rig.With(b.Cancel(id), headers...)
}

// begin is what the first build is given: timers of all kinds.
func (b *builds) begin() (recs []*kgo.Record) {
	soon, far := time.Now().Add(time.Second), time.Now().Add(24*time.Hour)
	for i := range 10 * mixed {
		recs = append(recs, b.timer(fmt.Sprint("plain-", i), far))
	}
	for i := range mixed {
		for _, kind := range []string{"paused-", "recurring-paused-"} {
			recs = append(recs, b.timer(fmt.Sprint(kind, i), soon), b.says(fmt.Sprint(kind, i), "timer-pause", "true"))
		}
		rig.With(recs[len(recs)-2], "timer-every", "1s", "timer-count", "3", "timer-catch-up", "all")
		recs = append(recs, rig.Timer(b.Requests, b.unhealthy, fmt.Sprint("parked-", i), soon))
	}
	for i := range mixed / 10 {
		recs = append(recs,
			b.timer(fmt.Sprint("every-", i), soon, "timer-every", "5s", "timer-catch-up", "all"),
			b.says(fmt.Sprint("cron-", i), "timer-cron", "*/5 * * * * *", "timer-zone", "Europe/Paris",
				"timer-catch-up", "all", "timer-target-topic", b.Target))
	}
	return recs
}

// buildsPending is how many of those stay pending until end.
const buildsPending = 13*mixed + 2*mixed/10

// turn is what each build is given while none runs: a few of the plain timers are replaced, or
// cancelled and scheduled again, or gone and back, so that rows of another build change.
func (b *builds) turn(n int) (recs []*kgo.Record) {
	far := time.Now().Add(48 * time.Hour)
	for i := n * mixed; i < (n+1)*mixed; i++ {
		id := fmt.Sprint("plain-", i)
		switch i % 4 {
		case 0:
			recs = append(recs, b.timer(id, far))
		case 1:
			recs = append(recs, b.says(id, "timer-cancel", "true"), b.timer(id, far))
		case 2:
			recs = append(recs, b.timer(id, time.Now()), b.timer(id+"-again", far))
		}
	}
	return recs
}

// end makes all fire that is pending.
func (b *builds) end(turns int) (recs []*kgo.Record) {
	for i := range 10 * mixed {
		id := fmt.Sprint("plain-", i)
		if i < turns*mixed && i%4 == 2 {
			id += "-again"
		}
		recs = append(recs, b.says(id, "timer-trigger", "true", "timer-if", "present"))
	}
	for i := range mixed {
		for _, kind := range []string{"paused-", "recurring-paused-"} {
			recs = append(recs, b.says(fmt.Sprint(kind, i), "timer-resume", "true"))
		}
	}
	for i := range mixed / 10 {
		recs = append(recs, b.says(fmt.Sprint("every-", i), "timer-cancel", "true"),
			b.says(fmt.Sprint("cron-", i), "timer-cancel", "true"))
	}
	return recs
}

// away is the broker that leads the unhealthy target, and is not there.
const away = 2

func (b *builds) stopLeader() {
	b.Helper()
	kafkatest.AssignFirst(b, b.Admin, []int32{away}, b.unhealthy)
	await.Until(b, rig.Patience, "a leader", func() bool {
		topics, err := b.Admin.ListTopics(kadm.WithAuthorizedOps(b.Context()), b.unhealthy) // not from a cache
		p := topics[b.unhealthy].Partitions[0]
		return err == nil && p.Leader == away && len(p.Replicas) == 1
	})
	b.Cluster.Stop(away)
}

// TestBuildsTakeTurns: an earlier build and this one serve a request topic in turn, with one
// directory, each killed by kill -9. Timers of all kinds are pending meanwhile. Each build reads
// what the other has left on disk and in the changelog, and goes on from there; all that is due
// fires once, and what a fixed-delay topic holds is passed on once. In the end both are members of the group at the
// same time.
func TestBuildsTakeTurns(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const partitions, owned, limit = 2, 3, 2 * time.Minute
	c := kafkatest.Three(t)
	b := &builds{Setup: rig.NewSetup(t, c, partitions, 3)}
	b.unhealthy = c.CreateTopic(t, 1, map[string]*string{"min.insync.replicas": new("1")}, b.Requests+"-unhealthy")
	b.delayed, b.later = c.CreateTopic(t, 1, nil, b.Requests+"-delayed"), c.CreateTopic(t, 1, nil, b.Requests+"-later")
	passed := kafkatest.Collect(t, c, b.later)
	b.stopLeader()
	seen := rig.Watch(t, c, b.Requests, partitions, b.Target, b.unhealthy)
	builds := map[string]string{"old": os.Getenv(envOldBinary), "new": rig.Binary(t)}
	if builds["old"] == "" {
		builds["old"] = builds["new"]
	}
	file := eventsOn(b.Setup)
	serve := func(build, name string, s *rig.Setup) *rig.Process {
		return rig.StartFile(t, builds[build],
			s.Arguments("--config", file, "--instance-id", name, "--delay", b.delayed+":1s:"+b.later)...)
	}
	start := func(build string) *rig.Process {
		p := serve(build, "one", b.Setup)
		p.Ready(owned, limit)
		return p
	}
	p := start("old")
	b.Send(b.begin()...)
	stream := stream(b.Setup)
	delays := rig.StartStream(
		t, c.Client(t), 100, func(n int) *kgo.Record { return &kgo.Record{Topic: b.delayed, Key: fmt.Append(nil, n)} })
	turns := []string{"new", "old", "new"}
	for n, build := range turns {
		await.Until(t, limit, "timers are parked",
			func() bool { return p.Metric("waterclock_parked_timers") > mixed/2 })
		// What is not on disk is replayed.
		flushed := p.Metric("waterclock_store_flushes_total")
		await.Until(t, limit, "all is on disk",
			func() bool { return p.Metric("waterclock_store_flushes_total") > flushed })
		p.Kill()
		b.Send(b.turn(n)...)
		p = start(build)
		written := b.Written(b.Changelog())
		if replayed := p.Metric(replayedMetric); replayed > float64(written)/4 ||
			strings.Contains(p.Output(), "wiping the local view") {
			t.Errorf("%s replayed %v of %d offsets: the directory was of no use to it", build, replayed, written)
		}
	}
	beside := serve("old", "two", b.Twin())
	await.Until(t, limit, "both builds have a partition",
		func() bool { return rig.Serving(owned, p, beside) && p.Live() > 0 && beside.Live() > 0 })
	seen.Look(&p.Web, b.Group())
	sent, delayed := stream.Stop(), delays.Stop()
	beside.Kill() // a static member: its partition is free when its session ends
	c.Restart(away)
	b.Send(b.end(len(turns))...)
	p.Ready(owned, limit)
	passed.WaitFor(delayed, limit)
	p.Balanced(0)
	seen.Look(&p.Web, b.Group())
	p.End()
	seen.Stored(b.Dir)
	seen.Check(true)
	h := seen.History(true)
	if n := len(h.Letters); n > 0 {
		t.Errorf("%d dead letters", n)
	}
	inOrder(t, passed.Records(), delayed)
	t.Logf("%d streamed timers beside %d of other kinds, %d records delayed: %d emissions, %d events", sent,
		buildsPending, delayed, len(h.Emissions), len(h.Events))
}

// TestOlderBuildLeavesNewFields: an earlier build that meets timers with fields that it does not know, a period, a
// start of cron, the jitter of a plain timer, labels, calendars, a moved occurrence, serves their partitions no more,
// loses nothing, and leaves them to this build once that joins the group. All fire once.
func TestOlderBuildLeavesNewFields(t *testing.T) {
	runs.NeedSlow(t)
	old := os.Getenv(envOldBinary)
	if old == "" {
		t.Skip("needs " + envOldBinary + ", a build from before these fields")
	}
	t.Parallel()
	const partitions, n, limit = 2, 20, 2 * time.Minute
	s := rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)
	first := s.Start("--instance-id", "one")
	first.Ready(partitions, limit)
	rig.Send(t, s.Client, &kgo.Record{Topic: s.Group() + ".waterclock.calendars", Key: []byte("off"),
		Value: []byte(`{"dates": ["2000-01-01"]}`)})
	due := time.Now().Add(20 * time.Second).Truncate(time.Second)
	times := make(map[string]int) // how often each fires
	var recs []*kgo.Record
	add := func(id string, n int, headers ...string) {
		times[id] = n
		headers = append(headers, "timer-target-topic", s.Target, "timer-at", millis(due))
		recs = append(recs, s.Request(id, "1", headers...))
	}
	for i := range n {
		add(fmt.Sprint("months-", i), 1, "timer-every", "P1M", "timer-zone", "Africa/Lagos", "timer-count", "1")
		add(fmt.Sprint("cron-", i), 5, "timer-cron", "* * * * * *", "timer-count", "5", "timer-catch-up", "all")
		add(fmt.Sprint("jitter-", i), 1, "timer-jitter", "2s")
		add(fmt.Sprint("labels-", i), 1, "timer-labels", "team=a")
		add(fmt.Sprint("calendar-", i), 1, "timer-not-on", "off")
		moved := fmt.Sprint("moved-", i)
		add(moved, 3, "timer-every", "1s", "timer-count", "3", "timer-catch-up", "all")
		recs = append(recs, rig.With(s.Cancel(moved), "timer-move", "true", "timer-at",
			millis(due.Add(500*time.Millisecond))))
		add(fmt.Sprint("plain-", i), 1)
	}
	s.Send(recs...)
	s.Pending(7*n, first)
	first.Kill()
	older := rig.StartFile(t, old, s.Arguments("--instance-id", "one")...)
	await.Until(t, limit, "the older build says why it does not serve", func() bool {
		return strings.Contains(older.Output(), "newer version")
	})
	recs = nil
	for i := range n {
		add(fmt.Sprint("meanwhile-", i), 1)
	}
	s.Send(recs...)
	s.At(due.Add(6 * time.Second))
	if live, fired := older.Live(), len(s.Out.Records()); live > 0 || fired > 0 {
		t.Errorf("the older build serves %d partitions, and %d timers have fired", live, fired)
	}
	newer := rig.Start(t, s.Twin().Arguments("--instance-id", "two")...)
	begun := time.Now()
	await.Until(t, limit, "a newer build has a partition",
		func() bool { return newer.Live() > 0 })
	t.Logf("the newer build serves %d partitions after %s", newer.Live(), time.Since(begun).Round(time.Second))
	older.Kill()
	newer.Ready(partitions, limit)
	total := 0
	for _, k := range times {
		total += k
	}
	s.Out.WaitFor(total, limit)
	newer.Balanced(0)
	newer.End()
	s.NothingDead()
	by := rig.Emissions(t, s.Out.Records())
	for id, k := range times {
		if len(by[id]) != k {
			kafkatest.Inexact(t, "%s has fired %d times, want %d", id, len(by[id]), k)
		}
	}
	t.Logf("%d timers, %d of them with new fields: %d emissions", len(times), 6*n, total)
}

// TestOlderBuildFiresDeferred: timers that wait for the rate of their target in the directory of an instance fire once,
// and soon, if that is opened by a build that does not know rates, or by this build without a rate.
func TestOlderBuildFiresDeferred(t *testing.T) {
	t.Parallel()
	const partitions, n, limit = 2, 100, 2 * time.Minute
	s := rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)
	first := s.Start("--instance-id", "one", "--target-rates", s.Target+"=1/s:1")
	first.Ready(partitions, limit)
	var recs []*kgo.Record
	for i := range n {
		recs = append(recs, s.Valued(fmt.Sprint("deferred-", i), "1", time.Now()))
	}
	s.Send(recs...)
	await.Until(t, limit, "timers are deferred", func() bool {
		return first.Metric("waterclock_deferred_timers") > n/2
	})
	first.Kill()
	fired := len(s.Out.Records())
	file := os.Getenv(envOldBinary)
	if file == "" {
		file = rig.Binary(t)
	}
	older := rig.StartFile(t, file, s.Arguments("--instance-id", "one")...)
	older.Ready(partitions, limit)
	s.Out.WaitFor(n, limit)
	older.Balanced(0)
	older.End()
	s.NothingDead()
	for id, all := range rig.Emissions(t, s.Out.Records()) {
		if len(all) != 1 {
			kafkatest.Inexact(t, "%s has fired %d times", id, len(all))
		}
	}
	t.Logf("%d of %d timers fired before the older build came", fired, n)
}

// inOrder holds that records with the keys 0 to n-1 came, each once and in this order.
func inOrder(t *testing.T, received []kafkatest.Received, n int) {
	t.Helper()
	for i, r := range received {
		if string(r.Key) != fmt.Sprint(i) {
			kafkatest.Inexact(t, "record %s came as number %d", r.Key, i)
			return
		}
	}
	if len(received) != n {
		kafkatest.Inexact(t, "%d records came, want %d", len(received), n)
	}
}
