package calendars

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// rig is a topic of calendars with tables that follow it.
type rig struct {
	*kafkatest.Setup
	topic    string
	producer *kgo.Client
}

func newRig(t *testing.T, v *kafkatest.Setup) *rig {
	r := &rig{v, topics.Calendars(v.Topic), v.Client()}
	r.make(t)
	return r
}

func (r *rig) make(t *testing.T) {
	_, err := topics.EnsureCalendars(r.Ctx, r.Adm, r.Topic, nil, topics.Options{Create: true})
	must(t, err)
}

// table returns a table that follows the topic.
func (r *rig) table(t *testing.T) *Table {
	table := New(Options{Client: r.Client(), Topic: r.topic, Logger: slog.New(slog.DiscardHandler),
		Registry: prometheus.NewRegistry()})
	table.goneAfter = 500 * time.Millisecond
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = table.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return table
}

func (r *rig) write(t *testing.T, key string, value []byte) {
	t.Helper()
	must(t, r.producer.ProduceSync(r.Ctx, &kgo.Record{Topic: r.topic, Key: []byte(key), Value: value}).FirstErr())
}

func names(t *testing.T, r *rig, table *Table) string {
	t.Helper()
	must(t, table.CaughtUp(r.Ctx))
	return strings.Join(table.Now().Names(), " ")
}

// What was acknowledged before a call of CaughtUp is known after it, however many call it.
func TestCaughtUp(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, v *kafkatest.Setup) {
		r := newRig(t, v)
		r.write(t, "first", []byte(`{}`))
		one, two := r.table(t), r.table(t)
		for i := range 50 {
			name := fmt.Sprint("c", i)
			r.write(t, name, []byte(`{"weekly":["sun"]}`))
			var all sync.WaitGroup
			for _, table := range []*Table{one, two, one, two} {
				all.Go(func() {
					if err := table.CaughtUp(r.Ctx); err != nil {
						t.Error(err)
					}
					if c, ok := table.Now().Get(name); !ok || c.Changed < time.Now().Add(-time.Hour).UnixMilli() {
						t.Errorf("%s is not known: %+v", name, c)
					}
				})
			}
			all.Wait()
		}
		before := one.Now().Offset()
		r.write(t, "first", nil)
		must(t, one.CaughtUp(r.Ctx))
		if _, ok := one.Now().Get("first"); ok || one.Now().Changed("first") < 1 || one.Now().Offset() <= before {
			t.Errorf("a deletion is not known: %+v", one.Now())
		}
	})
}

// A table that nobody asks notices changes by itself.
func TestChanges(t *testing.T) {
	v := kafkatest.OnFake(t, 1)
	r := newRig(t, v)
	table := r.table(t)
	must(t, table.CaughtUp(r.Ctx))
	r.write(t, "c", []byte(`{}`))
	await.Until(t, 10*time.Second, "the calendar is known", func() bool { return table.Now().Len() == 1 })
}

// Nothing on the topic is trusted: what is wrong is counted and ignored, and the version before stays.
func TestIgnored(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, v *kafkatest.Setup) {
		r := newRig(t, v)
		r.write(t, "good", []byte(`{"weekly": ["sat"]}`))
		for _, bad := range []string{"", "no json", `{"weekly":["x"]}`, `{"more":1}`, `[]`,
			strings.Repeat(" ", 256<<10) + "{}"} {
			r.write(t, "good", []byte(bad))
		}
		r.write(t, "bad name", []byte(`{}`))
		r.write(t, "bad name", nil)
		r.write(t, "", []byte(`{}`))
		r.write(t, "last", []byte(`{}`))
		table := r.table(t)
		if got := names(t, r, table); got != "good last" {
			t.Fatal(got)
		}
		if c, _ := table.Now().Get("good"); string(c.Text) != `{"weekly": ["sat"]}` {
			t.Errorf("%s", c.Text)
		}
		var m dto.Metric
		if must(t, table.ignored.Write(&m)); m.GetCounter().GetValue() != 9 {
			t.Errorf("%v are ignored", m.GetCounter().GetValue())
		}
	})
}

// While brokers do not answer, CaughtUp waits, and its context ends it.
func TestCaughtUpWaits(t *testing.T) {
	v := kafkatest.OnFake(t, 1)
	r := newRig(t, v)
	table := r.table(t)
	must(t, table.CaughtUp(r.Ctx))
	held := make(chan struct{})
	v.Fake.ControlKey(kmsg.ListOffsets.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		v.Fake.KeepControl()
		v.Fake.SleepControl(func() { <-held })
		return nil, nil, false
	})
	ctx, cancel := context.WithTimeout(r.Ctx, 300*time.Millisecond)
	defer cancel()
	if err := table.CaughtUp(ctx); err == nil {
		t.Error("caught up without an answer")
	}
	close(held)
	must(t, table.CaughtUp(r.Ctx))
	if len(table.waiting) > 0 {
		t.Errorf("%d still wait", len(table.waiting))
	}
}

// A topic that is recreated is read from its start. While it is gone, the calendars stay in force.
func TestRecreated(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, v *kafkatest.Setup) {
		r := newRig(t, v)
		r.write(t, "a", []byte(`{}`))
		r.write(t, "b", []byte(`{}`))
		table := r.table(t)
		if got := names(t, r, table); got != "a b" {
			t.Fatal(got)
		}
		_, err := v.Adm.DeleteTopics(v.Ctx, r.topic)
		must(t, err)
		if got := names(t, r, table); got != "a b" {
			t.Fatalf("while it is gone: %s", got)
		}
		r.make(t)
		r.producer = v.Client() // the old one knows the old topic
		r.write(t, "b", []byte(`{"weekly":["sun"]}`))
		r.write(t, "c", []byte(`{}`))
		if got := names(t, r, table); got != "b c" {
			t.Fatalf("recreated: %s", got)
		}
		if table.Now().Changed("a") < 1 {
			t.Error("the time of a's end is not known")
		}
	})
}

// A producer's time that is long ago, or to come, does not make calendars decide anew what has passed, or what comes.
func TestOddTimes(t *testing.T) {
	v := kafkatest.OnFake(t, 1)
	r := newRig(t, v)
	table := r.table(t)
	must(t, table.CaughtUp(r.Ctx))
	for i, at := range []int64{1, time.Now().UnixMilli() - 3_600_000, time.Now().UnixMilli() + 3_600_000, 1 << 60} {
		begun, name := time.Now().UnixMilli(), fmt.Sprint("c", i)
		must(t, r.producer.ProduceSync(r.Ctx, &kgo.Record{Topic: r.topic, Key: []byte(name), Value: []byte(`{}`),
			Timestamp: time.UnixMilli(at)}).FirstErr())
		must(t, table.CaughtUp(r.Ctx))
		if got := table.Now().Changed(name); got < begun || got > time.Now().UnixMilli() {
			t.Errorf("a calendar of %d has changed at %d", at, got)
		}
	}
}

// Without a topic there are no calendars, and CaughtUp does not wait for one.
func TestNoTopic(t *testing.T) {
	v := kafkatest.OnFake(t, 1)
	r := &rig{v, topics.Calendars(v.Topic), v.Client()}
	table := r.table(t)
	if got := names(t, r, table); got != "" {
		t.Fatal(got)
	}
	r.make(t)
	r.write(t, "a", []byte(`{}`))
	if got := names(t, r, table); got != "a" {
		t.Fatal(got)
	}
}

func TestWriter(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, v *kafkatest.Setup) {
		r := newRig(t, v)
		w := &Writer{Table: r.table(t), Options: []kgo.Opt{kgo.SeedBrokers(v.Seeds...)}}
		text := []byte("{\"weekly\": [\"sat\"]}\n")
		must(t, w.Now().Takes("c", text))
		must(t, w.Write(r.Ctx, "c", text))
		if c, ok := w.Now().Get("c"); !ok || string(c.Text) != string(text) {
			t.Fatalf("%+v", c)
		}
		must(t, w.Write(r.Ctx, "c", nil))
		if w.Now().Len() != 0 {
			t.Error("it is not deleted")
		}
		other := r.table(t)
		if names(t, r, other) != "" || other.Now().Changed("c") < 1 {
			t.Error("the deletion cannot be read")
		}
	})
}
