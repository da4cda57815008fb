package brokers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/kit/child"
	"github.com/waterclock/waterclock/internal/kit/localkafka"
	"github.com/waterclock/waterclock/test/rig"
)

// Three brokers are stopped, and the data of an earlier copy is put back: topics, the
// cluster's own data, all. Others serve until the changelog has grown past where an instance
// was whose directory was kept. That instance serves what the changelog says and nothing else:
// no timer of the time that was lost, and all others.
func TestClusterRestoredAndDirectoriesKept(t *testing.T) {
	runs.NeedSlow(t)
	const (
		partitions = 2
		limit      = time.Minute
		early      = 40
		lost       = 200
		late       = 1000
	)
	c := kafkatest.Start(t, brokerCount)
	requests, target := c.CreateTopic(t, partitions, nil), c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-target")
	kept := t.TempDir()
	var out string
	serve := func(dir string, pending int, do func(*rig.Process)) {
		t.Helper()
		p := rig.Start(t, rig.Arguments(c.Seeds(), requests, dir)...)
		p.Ready(partitions, limit)
		do(p)
		await.Until(t, limit, fmt.Sprint(pending, " timers are pending"),
			func() bool { return p.Metric("waterclock_pending_timers") == float64(pending) })
		p.Term()
		if code := p.Exit(limit); code != 0 {
			t.Errorf("exit %d", code)
		}
		out = p.Output()
	}
	send := func(what string, from, to int, alter func(*kgo.Record)) {
		t.Helper()
		var recs []*kgo.Record
		for i := from; i < to; i++ {
			r := rig.Timer(requests, target, fmt.Sprint(what, i), time.Now().Add(24*time.Hour))
			alter(r)
			recs = append(recs, r)
		}
		rig.Send(t, c.Client(t), recs...)
	}
	as := func(*kgo.Record) {}
	ends := func() (all [partitions]int64) {
		t.Helper()
		listed, err := c.Admin(t).ListEndOffsets(t.Context(), topics.Changelog(requests))
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			o, _ := listed.Lookup(topics.Changelog(requests), int32(i))
			all[i] = o.Offset
		}
		return all
	}

	serve(kept, early, func(*rig.Process) { send("early", 0, early, as) })
	copied := t.TempDir()
	whileStopped(t, c, func(data, name string) error { return os.CopyFS(filepath.Join(copied, name), os.DirFS(data)) })
	serve(kept, early/2+lost, func(*rig.Process) {
		send("early", 0, early/2, func(r *kgo.Record) { r.Value, r.Headers = nil, nil })
		send("lost", 0, lost, as)
	})
	before := ends()
	whileStopped(t, c, func(data, name string) error {
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		return os.CopyFS(data, os.DirFS(filepath.Join(copied, name)))
	})
	back := ends()
	serve(t.TempDir(), early+late, func(*rig.Process) { send("late", 0, late, as) })
	for i, grown := range ends() {
		if back[i] >= before[i] || grown <= before[i] {
			t.Fatalf("changelog %d was %d long, then %d, then %d: that shows nothing", i, before[i], back[i], grown)
		}
	}

	emitted := kafkatest.Collect(t, c, target)
	serve(kept, 0, func(p *rig.Process) {
		if n := p.Metric("waterclock_pending_timers"); n != early+late {
			t.Errorf("%v timers are pending, want %d", n, early+late)
		}
		trigger := func(r *kgo.Record) {
			r.Value, r.Headers = nil, []kgo.RecordHeader{{Key: "timer-trigger", Value: []byte("true")}}
		}
		send("early", 0, early, trigger)
		send("lost", 0, lost, trigger)
		send("late", 0, late, trigger)
		emitted.WaitFor(early+late, limit)
	})
	if !strings.Contains(out, "the log was cut and has grown again") {
		t.Error("the log does not say why the view was thrown away")
	}
	found := rig.Emissions(t, emitted.Records())
	for id := range found {
		if strings.HasPrefix(id, "lost") {
			kafkatest.Inexact(t, "%s fired, of which the restored cluster knows nothing", id)
		}
	}
	if len(found) != early+late {
		kafkatest.Inexact(t, "%d timers fired, want %d", len(found), early+late)
	}
}

// whileStopped stops all brokers and calls do with the data directory and a name of each.
func whileStopped(t *testing.T, c *kafkatest.Cluster, do func(data, name string) error) {
	t.Helper()
	each := func(do func(*localkafka.Broker) error) {
		t.Helper()
		if err := c.Each(do); err != nil {
			t.Fatal(err)
		}
	}
	each(func(b *localkafka.Broker) error { return b.End(child.Kill) })
	each(func(b *localkafka.Broker) error { return do(filepath.Join(b.Dir(), "data"), fmt.Sprint(b.ID())) })
	each(func(b *localkafka.Broker) error { return b.Start(context.WithoutCancel(t.Context())) })
	c.AwaitInSync(t)
}
