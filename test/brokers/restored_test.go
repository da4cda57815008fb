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

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/kit/child"
	"github.com/waterclock/waterclock/internal/kit/localkafka"
	"github.com/waterclock/waterclock/test/rig"
)

// Three brokers are stopped, and the data of an earlier copy is put back: topics, the cluster's own data, all. Others
// serve until the changelog has grown past where an instance was whose directory was kept. That instance serves what
// the changelog says and nothing else: no timer of the time that was lost, and all others.
func TestClusterRestoredAndDirectoriesKept(t *testing.T) {
	runs.NeedSlow(t)
	const partitions, early, lost, late = 2, 40, 200, 1000
	c := kafkatest.Start(t, brokerCount)
	s := rig.NewSetup(t, c, partitions, 1)
	fresh := s.Twin()
	var said string
	serve := func(s *rig.Setup, pending int, do func(*rig.Process)) {
		t.Helper()
		p := s.StartReady()
		do(p)
		s.Pending(pending, p)
		p.End()
		said = p.Output()
	}
	send := func(what string, to int, request func(id string) *kgo.Record) {
		t.Helper()
		var recs []*kgo.Record
		for i := range to {
			recs = append(recs, request(fmt.Sprint(what, i)))
		}
		rig.Send(t, c.Client(t), recs...)
	}
	tomorrow := func(id string) *kgo.Record { return s.Valued(id, "1", time.Now().Add(24*time.Hour)) }
	trigger := func(id string) *kgo.Record { return rig.With(s.Cancel(id), "timer-trigger", "true") }
	ends := func() (all [partitions]int64) {
		t.Helper()
		listed, err := c.Admin(t).ListEndOffsets(t.Context(), s.Changelog())
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			o, _ := listed.Lookup(s.Changelog(), int32(i))
			all[i] = o.Offset
		}
		return all
	}

	serve(s, early, func(*rig.Process) { send("early", early, tomorrow) })
	copied := t.TempDir()
	whileStopped(t, c, func(data, name string) error { return os.CopyFS(filepath.Join(copied, name), os.DirFS(data)) })
	serve(s, early/2+lost, func(*rig.Process) {
		send("early", early/2, s.Cancel)
		send("lost", lost, tomorrow)
	})
	before := ends()
	whileStopped(t, c, func(data, name string) error {
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		return os.CopyFS(data, os.DirFS(filepath.Join(copied, name)))
	})
	back := ends()
	serve(fresh, early+late, func(*rig.Process) { send("late", late, tomorrow) })
	for i, grown := range ends() {
		if back[i] >= before[i] || grown <= before[i] {
			t.Fatalf("changelog %d was %d long, then %d, then %d: that shows nothing", i, before[i], back[i], grown)
		}
	}

	serve(s, 0, func(p *rig.Process) {
		if n := p.Metric("waterclock_pending_timers"); n != early+late {
			t.Errorf("%v timers are pending, want %d", n, early+late)
		}
		send("early", early, trigger)
		send("lost", lost, trigger)
		send("late", late, trigger)
		s.Out.WaitFor(early+late, rig.Patience)
	})
	if !strings.Contains(said, "the log was cut and has grown again") {
		t.Error("the log does not say why the view was thrown away")
	}
	found := rig.Emissions(t, s.Out.Records())
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
