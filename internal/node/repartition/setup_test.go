package repartition

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	topic = "timers"
	group = "g"
)

// due is when all timers of these tests are due; their values tell them apart.
var due = time.Now().Add(time.Hour).Truncate(time.Second)

// setup is a request topic on a fake broker, and the timers that should be pending.
type setup struct {
	t     *testing.T
	seeds []string
	cl    *kgo.Client
	adm   *kadm.Client
	set   topics.Set
	want  map[string]string // value by ID
}

func newSetup(t *testing.T, partitions int32) *setup {
	t.Helper()
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(partitions, topic))
	w := &setup{t: t, seeds: c.ListenAddrs(), want: make(map[string]string)}
	w.client()
	w.ensure()
	return w
}

// client makes a client that knows the topics as they are now.
func (s *setup) client() {
	s.t.Helper()
	cl := kafkatest.Client(s.t, append(s.options(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	s.cl, s.adm = cl, kadm.NewClient(cl)
}

func (s *setup) options() []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(s.seeds...), kgo.MetadataMinAge(10 * time.Millisecond), kgo.ProducerLinger(0)}
}

func (s *setup) ensure() {
	s.t.Helper()
	set, _, err := topics.Ensure(s.t.Context(), s.adm, topic, topics.Options{Create: true, Grow: true})
	if err != nil {
		s.t.Fatal(err)
	}
	s.set = set
}

func (s *setup) send(recs ...*kgo.Record) {
	s.t.Helper()
	if err := s.cl.ProduceSync(s.t.Context(), recs...).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
}

// homeOf returns the partition to which requests for an ID are written now.
func (s *setup) homeOf(id string) int32 {
	return intake.Murmur2Partition([]byte(id), s.set.Request.Partitions)
}

// pending makes an ID pending as an owner would: its request is processed.
func (s *setup) pending(id, value string) {
	r := s.request(id, value)
	t := timer.Timer{
		ID: []byte(id), Offset: r.Offset, Due: due.UnixMilli(), Occurrence: 1, Value: []byte(value),
		Target: timer.Target{Topic: "out", Partition: timer.AnyPartition, Key: []byte(id)},
	}
	s.send(&kgo.Record{Topic: s.set.Changelog.Name, Partition: r.Partition, Key: wire.TimerKey(nil, t.ID),
		Value: t.AppendTo(nil)})
}

// request writes a request: it schedules, or cancels if it has no value.
func (s *setup) request(id, value string) *kgo.Record {
	r := &kgo.Record{Topic: topic, Partition: s.homeOf(id), Key: []byte(id)}
	delete(s.want, id)
	if value != "" {
		r.Value, s.want[id] = []byte(value), value
		r.Headers = []kgo.RecordHeader{
			{Key: waterclock.HeaderAt, Value: []byte(due.Format(time.RFC3339))},
			{Key: waterclock.HeaderTargetTopic, Value: []byte("out")},
		}
	}
	s.send(r)
	return r
}

// taken writes checkpoints: all requests so far are processed.
func (s *setup) taken() {
	for i := range s.set.Request.Partitions {
		_, _, end, err := partlog.Bounds(s.t.Context(), s.cl, partlog.Log{Topic: topic, Partition: i})
		if err != nil {
			s.t.Fatal(err)
		}
		cp := wire.Checkpoint{Request: s.set.Request.ID, Changelog: s.set.Changelog.ID, Position: end, Step: "s",
			Group: group}
		s.send(&kgo.Record{Topic: s.set.Changelog.Name, Partition: i, Key: wire.CheckpointKey(),
			Value: cp.AppendTo(nil)})
	}
}

func (s *setup) grow(to int) {
	s.t.Helper()
	kafkatest.GrowTopics(s.t, s.adm, to, topic)
	s.client()
	s.ensure()
}

func (s *setup) run(ctx context.Context, now func() time.Time) (Report, error) {
	return Run(ctx, Options{
		Client: s.options(), Admin: s.cl, Set: &s.set, Group: group, Now: now,
		Rules: &intake.Rules{Topic: topic, Partitions: s.set.Request.Partitions, PartitionerCheck: intake.DeadLetter,
			Allow: func(string) bool { return true }},
	})
}

// found returns the pending timers by partition, and the positions of the requests.
func (s *setup) found() (pending []map[string]*timer.Timer, positions []int64) {
	s.t.Helper()
	for i := range s.set.Changelog.Partitions {
		at := partlog.Log{Topic: s.set.Changelog.Name, Partition: i}
		_, _, end, err := partlog.Bounds(s.t.Context(), s.cl, at)
		if err != nil {
			s.t.Fatal(err)
		}
		here, position := make(map[string]*timer.Timer), int64(0)
		j := mover{o: Options{Admin: s.cl, Set: &s.set}}
		err = j.read(s.t.Context(), at, bounds{0, end}, nil, func(rec *kgo.Record) error {
			kind, id, err := wire.ParseKey(rec.Key)
			switch {
			case err != nil || kind == wire.KindClaim:
			case kind == wire.KindCheckpoint:
				var cp wire.Checkpoint
				cp, err = wire.DecodeCheckpoint(rec.Value)
				position = cp.Position
			case rec.Value == nil:
				delete(here, string(id))
			default:
				here[string(id)], err = timer.Decode(rec.Value)
			}
			return err
		})
		if err != nil {
			s.t.Fatal(err)
		}
		pending, positions = append(pending, here), append(positions, position)
	}
	return pending, positions
}

// check processes the rest of the request log, as instances would now, and compares the pending timers, and their
// partitions, with the expected ones.
func (s *setup) check() {
	s.t.Helper()
	pending, positions := s.found()
	got := make(map[string]string)
	generations := make(map[[2]int64]string)
	for i, here := range pending {
		at := partlog.Log{Topic: topic, Partition: int32(i)}
		_, _, end, err := partlog.Bounds(s.t.Context(), s.cl, at)
		if err != nil {
			s.t.Fatal(err)
		}
		for id, t := range here {
			if other, twice := generations[[2]int64{int64(i), t.Offset}]; twice {
				s.t.Errorf("%s and %s have one generation", id, other)
			}
			generations[[2]int64{int64(i), t.Offset}] = id
		}
		j := mover{o: Options{Admin: s.cl, Set: &s.set}}
		err = j.read(s.t.Context(), at, bounds{positions[i], end}, func(*partlog.Unreadable) {},
			func(rec *kgo.Record) error {
				if rec.Value == nil {
					delete(here, string(rec.Key))
				} else {
					here[string(rec.Key)] = &timer.Timer{Value: rec.Value}
				}
				return nil
			})
		if err != nil {
			s.t.Fatal(err)
		}
		for id, t := range here {
			if _, twice := got[id]; twice {
				s.t.Errorf("%s is pending twice", id)
			}
			got[id] = string(t.Value)
			if s.homeOf(id) != int32(i) {
				s.t.Errorf("%s is pending on partition %d and belongs to %d", id, i, s.homeOf(id))
			}
		}
	}
	if !maps.Equal(got, s.want) {
		s.t.Errorf("pending are\n%v, want\n%v", got, s.want)
	}
}
