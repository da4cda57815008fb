package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
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
	*testing.T
	requests, target, unhealthy string
	delayed, later              string // a fixed-delay topic and its target
	cl                          *kgo.Client
}

func (b *builds) timer(id string, due time.Time, headers ...string) *kgo.Record {
	r := rig.Timer(b.requests, b.target, id, due)
	put(r, headers...)
	return r
}

func (b *builds) says(id string, headers ...string) *kgo.Record {
	r := &kgo.Record{Topic: b.requests, Key: []byte(id)}
	put(r, headers...)
	return r
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
		put(recs[len(recs)-2], "timer-every", "1s", "timer-count", "3", "timer-catch-up", "all")
		recs = append(recs, rig.Timer(b.requests, b.unhealthy, fmt.Sprint("parked-", i), soon))
	}
	for i := range mixed / 10 {
		recs = append(recs,
			b.timer(fmt.Sprint("every-", i), soon, "timer-every", "5s", "timer-catch-up", "all"),
			b.says(fmt.Sprint("cron-", i), "timer-cron", "*/5 * * * * *", "timer-zone", "Europe/Paris",
				"timer-catch-up", "all", "timer-target-topic", b.target))
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

func (b *builds) stopLeader(c *kafkatest.Cluster, adm *kadm.Client) {
	b.Helper()
	kafkatest.AssignFirst(b, adm, []int32{away}, b.unhealthy)
	await.Until(b, time.Minute, "a leader", func() bool {
		topics, err := adm.ListTopics(kadm.WithAuthorizedOps(b.Context()), b.unhealthy) // not from a cache
		p := topics[b.unhealthy].Partitions[0]
		return err == nil && p.Leader == away && len(p.Replicas) == 1
	})
	c.Stop(away)
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
	b := &builds{T: t, requests: c.CreateTopic(t, partitions, nil), cl: c.Client(t)}
	b.target = c.CreateTopic(t, 3, nil, b.requests+"-out")
	b.unhealthy = c.CreateTopic(t, 1, map[string]*string{"min.insync.replicas": new("1")}, b.requests+"-unhealthy")
	b.delayed, b.later = c.CreateTopic(t, 1, nil, b.requests+"-delayed"), c.CreateTopic(t, 1, nil, b.requests+"-later")
	adm, passed := kadm.NewClient(b.cl), kafkatest.Collect(t, c, b.later)
	b.stopLeader(c, adm)
	seen := rig.Watch(t, c, b.requests, partitions, b.target, b.unhealthy)
	builds := map[string]string{"old": os.Getenv(envOldBinary), "new": rig.Binary(t)}
	if builds["old"] == "" {
		builds["old"] = builds["new"]
	}
	file, data := filepath.Join(t.TempDir(), "waterclock.yaml"), t.TempDir()
	if err := os.WriteFile(file, fmt.Appendf(nil, "tenants:\n  %s: {targets: '*', events: true}\n", b.requests),
		0o600); err != nil {
		t.Fatal(err)
	}
	serve := func(build, name, dir string) *rig.Process {
		return rig.StartFile(
			t, builds[build], rig.Arguments(c.Seeds(), b.requests, dir, "--config", file, "--instance-id", name,
				"--delay", b.delayed+":1s:"+b.later)...)
	}
	start := func(build string) *rig.Process {
		p := serve(build, "one", data)
		t.Logf("%s: live after %s, %v offsets replayed", build, p.Ready(owned, limit).Round(time.Millisecond),
			p.Metric("waterclock_replayed_offsets_total"))
		return p
	}
	p := start("old")
	rig.Send(t, b.cl, b.begin()...)
	stream := stream(t, c, b.requests, b.target)
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
		rig.Send(t, b.cl, b.turn(n)...)
		p = start(build)
		written := int64(0)
		for _, end := range ends(t, adm, topics.Changelog(b.requests)) {
			written += end
		}
		if replayed := p.Metric("waterclock_replayed_offsets_total"); replayed > float64(written)/4 ||
			strings.Contains(p.Output(), "wiping the local view") {
			t.Errorf("%s replayed %v of %d offsets: the directory was of no use to it", build, replayed, written)
		}
	}
	beside := serve("old", "two", t.TempDir())
	await.Until(t, limit, "both builds have a partition",
		func() bool { return serving(owned, p, beside) && p.Live() > 0 && beside.Live() > 0 })
	seen.Look(&p.Web, "group-of-"+b.requests)
	sent, delayed := stream.Stop(), delays.Stop()
	beside.Kill() // a static member: its partition is free when its session ends
	c.Restart(away)
	rig.Send(t, b.cl, b.end(len(turns))...)
	p.Ready(owned, limit)
	passed.WaitFor(delayed, limit)
	p.Balanced(0)
	seen.Look(&p.Web, "group-of-"+b.requests)
	p.Term()
	if code := p.Exit(20 * time.Second); code != 0 {
		t.Errorf("exit %d on SIGTERM", code)
	}
	seen.Stored(data)
	seen.Check(true)
	h := seen.History(true)
	if n := len(h.Letters); n > 0 {
		t.Errorf("%d dead letters", n)
	}
	inOrder(t, passed.Records(), delayed)
	t.Logf("%d streamed timers beside %d of other kinds, %d records delayed: %d emissions, %d events", sent,
		buildsPending, delayed, len(h.Emissions), len(h.Events))
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
