package delaytopics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/kit/clocks"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/timer"
)

// holder is a token.
type holder struct{ err error }

func (h *holder) Err() error                        { return h.err }
func (h *holder) Member() (emitter.Member, error)   { return emitter.Member{ID: "m"}, h.err }
func (h *holder) Certain(context.Context) error     { return h.err }
func (h *holder) Confirmed() (time.Duration, error) { return 0, h.err }
func (h *holder) Refused(err error)                 { h.err = err }

// setup is what the partitions of a test share.
type setup struct {
	reader  *intake.Reader
	targets *targets.Metadata
	metrics *partition.Metrics
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(3, "orders"), kfake.SeedTopics(1, "mail"))
	g := &setup{targets: targets.NewMetadata(cl, targets.MetadataOptions{}),
		metrics: partition.NewMetrics(prometheus.NewRegistry())}
	g.metrics.Mute()
	if err := g.targets.Refresh(t.Context(), "orders", "mail"); err != nil {
		t.Fatal(err)
	}
	var err error
	if g.reader, err = intake.NewReader(1<<20, 1<<20, kgo.SeedBrokers(c.ListenAddrs()...)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // Run closes it
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = g.reader.Run(ctx)
	})
	return g
}

type must interface {
	Helper()
	Fatalf(format string, args ...any)
}

const delay = 100 // ms

// core drives a partition on one goroutine. It simulates reader, lane, broker and clock, and keeps what is committed.
type core struct {
	t      must
	o      Options
	now    int64 // Unix ms, may go back
	p      *Partition
	r      *relay
	share  *emitter.Share    // sealed, outcome open
	source *ownership.Source // of r
	log    []*kgo.Record     // of the topic
	given  int               // how many of them this instance was given
	end    int64             // of the checkpoints
	at     int64             // the last committed position
	came   []int64           // offsets with an outcome, in order
	dead   map[int64]bool
	health *targets.Health
}

func newCore(t must, g *setup) *core {
	c := &core{t: t, now: 1_700_000_000_000, dead: make(map[int64]bool)}
	c.health = targets.NewHealth(targets.HealthOptions{Targets: g.targets, Logger: slog.New(slog.DiscardHandler)})
	set := &topics.Set{
		Request:   topics.Topic{Name: "d", ID: [16]byte{1}, Partitions: 1},
		Changelog: topics.Topic{Name: topics.Checkpoints("d"), ID: [16]byte{2}, Partitions: 1},
		DeadLetters: topics.Topic{Name: topics.DeadLetters("d"), ID: [16]byte{3}, Partitions: 1,
			MaxMessageBytes: 1 << 20}, Delay: delay * time.Millisecond,
	}
	c.o = Options{
		Options: ownership.Options{
			Topics: set, Group: "g", Owner: "o", Lanes: emitter.NewLanes(emitter.Options{}), Targets: g.targets,
			Health: c.health, Now: func() time.Time { return time.UnixMilli(c.now) }, Clocks: new(clocks.Clocks),
			Logger: slog.New(slog.DiscardHandler),
		},
		Rules:  &intake.Rules{Topic: "d", DefaultTarget: "orders", Allow: func(string) bool { return true }},
		Reader: g.reader, Queue: budget.Alone(1 << 20), Metrics: g.metrics,
	}
	c.take()
	return c
}

// take begins a new instance from what is committed.
func (c *core) take() {
	c.o.Token = &holder{}
	c.p = New(c.o)
	c.r = newRelay(&c.p.o, c.p.life)
	c.r.begin(c.at, 0)
	c.p.relay.Store(c.r)
	c.source = c.p.life.Steps.Join(c.r)
	c.p.life.Own(ownership.Claimed{Behind: c.end, Leader: 1})
	c.given, c.share = int(c.at), nil
}

// write appends a record to the log. at is the difference of its timestamp from now.
func (c *core) write(at int64, headers ...string) {
	r := &kgo.Record{Topic: "d", Offset: int64(len(c.log)), Timestamp: time.UnixMilli(c.now + at),
		Key: fmt.Append(nil, len(c.log)%5)}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	c.log = append(c.log, r)
}

// deliver hands over up to n records.
func (c *core) deliver(n int) {
	n = min(n, len(c.log)-c.given)
	if n > 0 {
		c.r.Deliver(partlog.Read{Records: c.log[c.given : c.given+n], Next: int64(c.given + n), End: int64(len(c.log))})
		c.given += n
	}
}

// seal asks for a share, and checks that nothing in it is early.
func (c *core) seal(entries int) *emitter.Share {
	c.t.Helper()
	room := &emitter.Room{Entries: entries, Bytes: 1 << 20}
	share := c.source.Seal("step", room)
	if c.share != nil && share != nil {
		c.t.Fatalf("a second share is out")
	}
	if share == nil {
		return nil
	}
	c.share = share
	if taken := entries - room.Entries; taken != len(share.Emissions)+len(share.Records)-1 {
		c.t.Fatalf("%d entries are taken for %d emissions and %d records", taken, len(share.Emissions),
			len(share.Records))
	}
	for _, e := range share.Emissions {
		if own := c.log[e.Seq].Timestamp.UnixMilli() + delay; e.Due > c.now || e.Due < own ||
			e.Record.Timestamp.UnixMilli() != c.now {
			c.t.Fatalf("offset %d is due at %d, its own time is %d, the clock shows %d", e.Seq, e.Due, own, c.now)
		}
	}
	return share
}

// ends reports the outcome of the share that is out. It has passed the fence, also if another share of the step has
// not.
func (c *core) ends(o emitter.Outcome) {
	c.t.Helper()
	s := c.share
	s.Records[0].Offset = c.end + wire.ClaimRecords
	if s.Check(1) == nil {
		c.t.Fatalf("a step behind the claim of somebody else may be committed")
	}
	s.Records[0].Offset = c.end
	c.end += 2 // and a marker
	if err := s.Check(1); err != nil {
		c.t.Fatalf("fenced: %v", err)
	}
	if o == emitter.Committed {
		c.commit(s)
	}
	c.share = nil
	s.Done(o)
}

// commit records what a step did, and checks that it is the next thing to do.
func (c *core) commit(s *emitter.Share) {
	c.t.Helper()
	outcome := make(map[int64]bool)
	for i, e := range s.Emissions {
		if i > 0 && e.Seq <= s.Emissions[i-1].Seq {
			c.t.Fatalf("offset %d behind %d", e.Seq, s.Emissions[i-1].Seq)
		}
		outcome[e.Seq] = true
	}
	for _, r := range s.Records[1:] {
		d, err := waterclock.ParseDeadLetter(r)
		if err != nil {
			c.t.Fatalf("%v", err)
		}
		outcome[d.Source.Offset], c.dead[d.Source.Offset] = true, true
	}
	cp, err := wire.DecodeCheckpoint(s.Records[0].Value)
	if err != nil || cp.Position != s.Offset.At {
		c.t.Fatalf("checkpoint at %d, fence at %d: %v", cp.Position, s.Offset.At, err)
	}
	if int64(len(outcome)) != cp.Position-c.at {
		c.t.Fatalf("%d outcomes between %d and %d", len(outcome), c.at, cp.Position)
	}
	for ; c.at < cp.Position; c.at++ {
		if !outcome[c.at] {
			c.t.Fatalf("offset %d has no outcome", c.at)
		}
		c.came = append(c.came, c.at)
	}
}

// Whatever happens between seals, each record has one outcome, in order, and none is early.
func TestEachRecordOnce(t *testing.T) {
	g := newSetup(t)
	rapid.Check(t, func(t *rapid.T) {
		c := newCore(t, g)
		bad := make(map[int64]bool)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"write", "bad", "deliver", "seal", "commit", "abort", "refuse", "suspect",
				"lose", "clock", "back", "crash"}).Draw(t, "what") {
			case "write":
				c.write(rapid.Int64Range(-300, 50).Draw(t, "at"))
			case "bad":
				bad[int64(len(c.log))] = true
				c.write(0, "timer-after", "1s")
			case "deliver":
				c.deliver(rapid.IntRange(1, 10).Draw(t, "n"))
			case "seal":
				if c.share == nil {
					c.seal(rapid.IntRange(1, 10).Draw(t, "room"))
				}
			case "commit":
				if c.share != nil {
					c.ends(emitter.Committed)
				}
			case "abort":
				if c.share != nil {
					c.ends(emitter.Aborted)
				}
			case "refuse":
				if c.share != nil && len(c.share.Emissions) > 0 {
					e := &c.share.Emissions[rapid.IntRange(0, len(c.share.Emissions)-1).Draw(t, "which")]
					e.Err, bad[e.Seq] = kerr.MessageTooLarge, true
					c.ends(emitter.Aborted)
				}
			case "suspect":
				if c.share != nil && len(c.share.Emissions) > 0 {
					c.share.Emissions[rapid.IntRange(0, len(c.share.Emissions)-1).Draw(t, "which")].Suspect = true
					c.ends(emitter.Aborted)
				}
			case "lose": // no answer for the checkpoint's record: there is doubt, and a look
				if c.share != nil {
					s := c.share
					c.share = nil
					s.Done(emitter.Aborted)
					if !c.p.life.Steps.Doubt() || c.seal(10) != nil {
						t.Fatalf("a step is sealed in doubt")
					}
					c.p.life.Own(ownership.Claimed{Behind: c.end, Leader: 1})
				}
			case "clock":
				c.now += rapid.Int64Range(1, 200).Draw(t, "ms")
			case "back":
				c.now -= rapid.Int64Range(1, 200).Draw(t, "ms")
			case "crash": // an uncommitted refusal is forgotten
				for at := c.at; at < int64(len(c.log)); at++ {
					if len(c.log[at].Headers) == 0 {
						delete(bad, at)
					}
				}
				c.take()
			}
		}
		if c.share != nil {
			c.ends(emitter.Committed)
		}
		c.deliver(len(c.log))
		for c.now += 10_000; c.seal(3) != nil; {
			c.ends(emitter.Committed)
		}
		if len(c.came) != len(c.log) {
			t.Fatalf("%d of %d records have an outcome", len(c.came), len(c.log))
		}
		for at := range c.log {
			if bad[int64(at)] != c.dead[int64(at)] {
				t.Fatalf("offset %d: refused %v, a dead letter %v", at, bad[int64(at)], c.dead[int64(at)])
			}
		}
	})
}

// A suspect is sealed by itself, in its place.
func TestSuspectsGoAlone(t *testing.T) {
	c := newCore(t, newSetup(t))
	for range 5 {
		c.write(-delay)
	}
	c.deliver(5)
	c.seal(10)
	c.share.Emissions[2].Suspect = true
	c.ends(emitter.Aborted)
	for _, want := range []int{2, 1, 2} {
		s := c.seal(10)
		if len(s.Emissions) != want || s.Emissions[0].Alone != (want == 1) {
			t.Fatalf("%d emissions, alone %v, want %d", len(s.Emissions), s.Emissions[0].Alone, want)
		}
		c.ends(emitter.Committed)
	}
}

// A suspect that its target accepted alone, in a step that was aborted, goes with others again.
func TestAClearedSuspectGoesWithOthersAgain(t *testing.T) {
	c := newCore(t, newSetup(t))
	for range 3 {
		c.write(-delay)
	}
	c.deliver(3)
	c.seal(10)
	c.share.Emissions[0].Suspect = true
	c.ends(emitter.Aborted)
	if s := c.seal(10); len(s.Emissions) != 1 || !s.Emissions[0].Alone {
		t.Fatalf("%d emissions, want the suspect alone", len(s.Emissions))
	}
	c.share.Emissions[0].Cleared = true
	c.ends(emitter.Aborted)
	if s := c.seal(10); len(s.Emissions) != 3 || s.Emissions[0].Alone {
		t.Errorf("%d emissions, the first one alone: %v, want 3", len(s.Emissions), s.Emissions[0].Alone)
	}
	c.ends(emitter.Committed)
}

// An unhealthy target stops the partition at the first record for it; the records before that go on. If a breaker opens
// while a step is out, it stops the partition there.
func TestAnUnhealthyTargetStopsThePartition(t *testing.T) {
	c := newCore(t, newSetup(t))
	for i := range 6 {
		if i == 2 || i == 4 {
			c.write(-delay, "timer-target-topic", "mail")
		} else {
			c.write(-delay)
		}
	}
	c.deliver(6)
	mail := timer.TopicPartition{Topic: "mail"}
	if s := c.seal(10); len(s.Emissions) != 6 {
		t.Fatalf("%d emissions", len(s.Emissions))
	}
	for i := range c.share.Emissions {
		if e := &c.share.Emissions[i]; e.Record.Topic == "mail" {
			e.Err = emitter.ErrUnhealthy
		}
	}
	c.health.Trip(map[timer.TopicPartition]error{mail: errors.New("silent")})
	c.ends(emitter.Aborted)
	if s := c.seal(10); len(s.Emissions) != 2 {
		t.Fatalf("%d emissions, want those before the target", len(s.Emissions))
	}
	c.ends(emitter.Committed)
	if s := c.seal(10); s != nil {
		t.Fatalf("%d emissions pass", len(s.Emissions))
	}
	if s := c.p.Status(); s.ParkedBy[mail] != 4 {
		t.Errorf("parked: %v", s.ParkedBy)
	}
}

// The lane asks with each of its steps. While the target of the front record is unhealthy, records that wait behind it
// cost nothing.
func TestRecordsBehindAnUnhealthyTargetCostNothing(t *testing.T) {
	const n, seals, most = 1000, 100, 4 << 10
	c := newCore(t, newSetup(t))
	c.health.Trip(map[timer.TopicPartition]error{{Topic: "mail"}: errors.New("silent")})
	for range n {
		c.write(-delay, "timer-target-topic", "mail")
	}
	c.deliver(n)
	if c.seal(n) != nil {
		t.Fatal("sealed for a target that is not well")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range seals {
		c.seal(n)
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / seals; each > most {
		t.Errorf("%d bytes are allocated each time that nothing of %d records may go, want %d at most", each, n, most)
	}
}

// A transaction marker behind the last record does not count as waiting.
func TestAMarkerAtTheEndIsNotPending(t *testing.T) {
	c := newCore(t, newSetup(t))
	c.write(-delay)
	c.r.Deliver(partlog.Read{Records: c.log, Next: 1, End: 2})
	c.seal(1)
	c.ends(emitter.Committed)
	if n := c.p.Status().Pending; n != 1 {
		t.Errorf("%d pending while nobody knows what it is, want 1", n)
	}
	c.r.Deliver(partlog.Read{Next: 2, End: 1})
	if n := c.p.Status().Pending; n != 0 {
		t.Errorf("%d pending", n)
	}
}

// Records are delivered while a step with a dead letter ends: its counts are not read from a queue that grows
// meanwhile. Only the race detector can detect that.
func TestAStepEndsWhileRecordsAreDelivered(t *testing.T) {
	c := newCore(t, newSetup(t))
	c.write(-c.now - 1) // no timestamp
	c.deliver(1)
	share := c.source.Seal("step", &emitter.Room{Entries: 10, Bytes: 1 << 20})
	if share == nil || len(share.Records) != 2 {
		t.Fatalf("sealed: %+v, want a checkpoint and a dead letter", share)
	}
	share.Records[0].Offset = c.end
	for range 100 {
		c.write(0)
	}
	delivered := make(chan struct{})
	go func() {
		defer close(delivered)
		for range 100 {
			c.deliver(1)
		}
	}()
	share.Done(emitter.Committed)
	<-delivered
	if s := c.p.Status(); s.Queued != 100 {
		t.Errorf("%d records are queued, want 100", s.Queued)
	}
}

// The position passes the marker behind a record together with the record. If the marker is read later, an empty step
// passes it, at most once a second.
func TestPositionPassesMarkers(t *testing.T) {
	c := newCore(t, newSetup(t))
	c.write(-delay)
	commits := func(position int64, emissions int) {
		t.Helper()
		share := c.source.Seal("step", &emitter.Room{Entries: 9, Bytes: 1 << 20})
		if share == nil || share.Offset.At != position || len(share.Emissions) != emissions {
			t.Fatalf("sealed %+v, want position %d with %d emissions", share, position, emissions)
		}
		cp, err := wire.DecodeCheckpoint(share.Records[0].Value)
		if err != nil || cp.Position != position {
			t.Fatalf("the checkpoint is at %d, %v", cp.Position, err)
		}
		share.Records[0].Offset = c.end
		c.end += 2
		if err := share.Check(1); err != nil {
			t.Fatal(err)
		}
		share.Done(emitter.Committed)
	}
	idle := func() {
		t.Helper()
		if share := c.source.Seal("step", &emitter.Room{Entries: 9, Bytes: 1 << 20}); share != nil {
			t.Fatalf("sealed %+v", share)
		}
	}
	c.r.Deliver(partlog.Read{Records: c.log, Next: 3, End: 1})
	commits(3, 1)
	c.r.Deliver(partlog.Read{Next: 5, End: 1})
	idle()
	c.now += ownership.PassPause.Milliseconds()
	commits(5, 0)
	c.now += ownership.PassPause.Milliseconds()
	idle()
	c.now += delay
	c.write(0)
	r := c.log[1]
	r.Offset = 5
	c.r.Deliver(partlog.Read{Records: []*kgo.Record{r}, Next: 6, End: 6})
	c.r.Deliver(partlog.Read{Next: 7, End: 6}) // its marker
	c.now += ownership.PassPause.Milliseconds()
	commits(7, 1)
	if n := c.p.Status().Pending; n != 0 {
		t.Errorf("%d pending", n)
	}
}

// A comparison of the clocks gets a step even if no record is due. The position stays.
func TestAComparisonOfClocksGetsAStep(t *testing.T) {
	c := newCore(t, newSetup(t))
	c.write(0)
	c.r.Deliver(partlog.Read{Records: c.log, Next: 1, End: 1})
	seal := func() *emitter.Share { return c.source.Seal("step", &emitter.Room{Entries: 9, Bytes: 1 << 20}) }
	if share := seal(); share != nil {
		t.Fatalf("sealed %+v", share)
	}
	c.p.o.ClockSkew = partition.NewClockSkew(nil, nil, func() {})
	c.p.o.ClockSkew.Want()
	share := seal()
	if share == nil || share.Offset.At != 0 || len(share.Records) != 1 || len(share.Emissions) != 0 {
		t.Fatalf("sealed %+v, want a checkpoint at position 0", share)
	}
	share.Done(emitter.Committed)
	if share = seal(); share != nil {
		t.Fatalf("sealed %+v after the commit", share)
	}
	if n := c.p.Status().Queued; n != 1 {
		t.Errorf("%d records are queued, want 1", n)
	}
}

// A lane claims a source and asks it a moment later. If the partition fails and is acquired again in between, the lane
// asks the relay of the former acquisition. The records queued there were read again, and the present relay passes them
// on.
func TestARelayOfAFormerAcquisitionSealsNothing(t *testing.T) {
	c := newCore(t, newSetup(t))
	c.write(-delay)
	c.deliver(1)
	former := c.source
	former.Leave()
	c.r = newRelay(&c.p.o, c.p.life)
	c.r.begin(c.at, 0)
	c.source = c.p.life.Steps.Join(c.r)
	c.given = 0
	c.deliver(1)
	if late := former.Seal("late", &emitter.Room{Entries: 10, Bytes: 1 << 20}); late != nil {
		t.Fatalf("%d emissions are sealed that the present relay passes on too", len(late.Emissions))
	}
	if share := c.seal(10); share == nil || len(share.Emissions) != 1 {
		t.Error("the present relay does not pass on what is due")
	}
}
