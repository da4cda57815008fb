package partition

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
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
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/partition/questions"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// targetTopic has three partitions, otherTopic one; missingTopic does not exist.
const (
	targetTopic  = "target"
	otherTopic   = "other"
	missingTopic = "missing"
)

var targetTopics = []string{targetTopic, otherTopic, missingTopic}

// setup is what all cores share: one broker for readers of requests, and one store.
type setup struct {
	seeds   []string
	client  *kgo.Client
	reader  *intake.Reader
	store   *statestore.Store
	serial  atomic.Uint32 // of cores: each has a partition of its own
	metrics *Metrics
	seen    map[string]int // what happened in cores, by kind
}

func newSetup(t testing.TB) *setup {
	t.Helper()
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(3, targetTopic))
	r, err := intake.NewReader(1<<20, 1<<20, kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // Run closes it
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.Run(ctx)
	})
	s, err := statestore.Open(statestore.Options{Dir: "store", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &setup{seeds: c.ListenAddrs(), client: cl, reader: r, store: s,
		metrics: NewMetrics(prometheus.NewRegistry()), seen: map[string]int{}}
}

// holder is a token controlled by a test.
type holder struct {
	dead   atomic.Pointer[error]
	unsure atomic.Bool
}

func (h *holder) Err() error {
	if e := h.dead.Load(); e != nil {
		return *e
	}
	return nil
}
func (h *holder) Member() (emitter.Member, error) {
	return emitter.Member{ID: "m", Generation: 1}, h.Err()
}
func (h *holder) Confirmed() (time.Duration, error) { return 0, h.Err() }
func (h *holder) Certain(context.Context) error {
	if h.unsure.Load() {
		return errors.New("nobody knows")
	}
	return h.Err()
}
func (h *holder) Refused(err error) { h.dead.CompareAndSwap(nil, &err) }

// must is the part of testing.T or rapid.T that a core needs.
type must interface {
	Helper()
	Fatalf(format string, args ...any)
}

// change is a committed changelog record.
type change struct {
	offset     int64
	key, value []byte
}

// core drives a partition step by step, on one goroutine. It simulates reader, lane, broker and clock, keeps
// the committed logs, and checks after every step what always holds. Instances of the partition may end at any
// point (crash).
type core struct {
	t       must
	g       *setup
	o       Options
	set     topics.Set
	now     int64     // Unix ms, may go back
	mono    time.Time // never goes back; used by Targets and Health
	brokers *brokers

	p       *Partition
	s       *served        // its rooms
	write   func()         // of the checkpoint that is under way
	unheard bool           // a step was committed, and the partition does not know it
	room    int            // entries of a step in a turn
	lazy    bool           // the test controls checkpoints; otherwise one follows each step
	share   *emitter.Share // sealed, outcome open
	fenced  int            // the number of the last step that has passed the fence
	begun   int            // and of the last one whose commit was begun
	steps   int
	given   int // requests delivered to this instance
	barrier int // requests in the log when this instance acquired the partition
	opened  bool
	fires   map[*subPartition]bool // the catch-up barrier is open for this sub-partition

	requests  []*kgo.Record
	changelog []change
	end       int64 // of the changelog, markers and aborted records included
	position  int64 // of the last committed checkpoint
	before    int64 // position before the last step
	emitted   map[int64]*kgo.Record
	unmet     map[int64]bool // requests whose condition did not hold
	heard     map[int64]bool // requests that are settled
	maybe     map[int64]bool // requests of steps whose outcome nobody heard: unmet or not
	dead      map[int64]int  // dead letters by request offset
	beaten    map[int64]bool
	high      int64                // the latest time that the instance's clock has shown, Unix ms
	told      map[string]int64     // due times of pending timers according to the events; nil: there are none
	aborted   map[*kgo.Record]bool // records of aborted steps
	aborts    int
}

// newRooms returns a partition with the rooms of an acquisition that reads requests from the start. It has no
// store.
func newRooms(o Options) (*Partition, *served) {
	for _, a := range []**budget.Account{&o.Memory.Wheel, &o.Memory.Requests, &o.Memory.Firings} {
		if *a == nil {
			*a = budget.Alone(1 << 20)
		}
	}
	if o.Rules == nil {
		o.Rules = new(intake.Rules)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Topics == nil {
		o.Topics = new(topics.Set)
	}
	if o.Targets == nil {
		o.Targets = targets.NewMetadata(nil, targets.MetadataOptions{})
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(prometheus.NewRegistry())
	}
	o.Health, o.SubPartitions = targets.NewHealth(targets.HealthOptions{Targets: o.Targets, Logger: o.Logger}),
		func() int { return 1 }
	p := New(o)
	return p, p.newServed(p.newLane(nil), 0, 0)
}

func newCore(t must, g *setup, wheelBytes int64, queue int) *core {
	return newCoreOf(t, g, wheelBytes, queue, 1)
}

// newCoreOf returns a core with the given number of sub-partitions.
func newCoreOf(t must, g *setup, wheelBytes int64, queue, subs int) *core {
	n := g.serial.Add(1)
	id := func(kind byte) (b [16]byte) {
		b[0] = kind
		binary.BigEndian.PutUint32(b[12:], n)
		return b
	}
	c := &core{
		t: t, g: g, now: 1_700_000_000_000, mono: time.Unix(1_700_000_000, 0), brokers: newBrokers(),
		emitted: map[int64]*kgo.Record{}, unmet: map[int64]bool{}, heard: map[int64]bool{}, maybe: map[int64]bool{},
		dead: map[int64]int{}, beaten: map[int64]bool{},
		aborted: map[*kgo.Record]bool{}, room: 5,
	}
	c.set = topics.Set{
		Request:     topics.Topic{Name: "r", ID: id(1), Partitions: 1, MaxMessageBytes: 1 << 20},
		Changelog:   topics.Topic{Name: topics.Changelog("r"), ID: id(2), Partitions: 1, MaxMessageBytes: 2 << 20},
		DeadLetters: topics.Topic{Name: topics.DeadLetters("r"), ID: id(3), Partitions: 1, MaxMessageBytes: 2 << 20},
	}
	c.o = Options{
		Options: ownership.Options{
			Topics: &c.set, Group: "g", Owner: "o", Lanes: emitter.NewLanes(emitter.Options{}), Client: g.client,
			Now: func() time.Time { return time.UnixMilli(c.now) }, Clocks: new(clocks.Clocks),
			Logger: slog.New(slog.DiscardHandler),
		},
		Rules: &intake.Rules{
			Topic: "r", Partitions: 1, Limits: intake.DefaultLimits(),
			Allow: func(topic string) bool { return slices.Contains(targetTopics, topic) },
		},
		Store: g.store.Partition(statestore.PartitionID{Topic: c.set.Request.ID}), Reader: g.reader,
		Memory: Memory{
			Wheel: budget.Alone(wheelBytes), Dirty: budget.Alone(1 << 20),
			Requests: budget.Alone(min(1<<20, int64(queue)*queueEntry)),
			Firings:  budget.Alone(min(1<<20, int64(queue)*queueEntry)), Questions: budget.Alone(1 << 20),
		},
		Metrics: g.metrics, SubPartitions: func() int { return subs },
	}
	first := wire.Checkpoint{Request: c.set.Request.ID, Changelog: c.set.Changelog.ID, Step: "claim"}
	c.append(wire.CheckpointKey(), first.AppendTo(nil))
	c.process()
	c.acquire()
	return c
}

func (c *core) append(key, value []byte) int64 {
	at := c.end
	c.end++
	c.changelog = append(c.changelog, change{at, bytes.Clone(key), bytes.Clone(value)}) // copied, as a broker does
	return at
}

// process begins a process that knows nothing about targets.
func (c *core) process() {
	clear(c.brokers.window)
	now := func() time.Time { return c.mono }
	c.o.Targets = targets.NewMetadata(c.brokers, targets.MetadataOptions{Now: now})
	c.o.Health = targets.NewHealth(
		targets.HealthOptions{Probe: c.probe, Targets: c.o.Targets, Now: now, Logger: c.o.Logger})
	c.look(0)
}

// acquire begins a new instance from what is committed; the old one is gone.
func (c *core) acquire() {
	c.t.Helper()
	if c.p != nil {
		c.s.keeper.parking.waiter.Close()
	}
	c.o.Token = &holder{}
	p := New(c.o)
	c.write, c.unheard = nil, false
	store := c.o.Store.Acquire()
	c.storeIsFold(store)
	meta, err := store.Meta()
	c.ok(err)
	replay, err := store.Replay(c.set.Changelog.ID, time.UnixMilli(c.now))
	c.ok(err)
	for _, x := range c.changelog {
		kind, id, err := wire.ParseKey(x.key)
		c.ok(err)
		switch {
		case x.offset < meta.Position:
		case kind == wire.KindCheckpoint:
			c.ok(replay.Checkpoint(x.value))
		case x.value == nil:
			c.ok(replay.Delete(id))
		default:
			tm, err := timer.Decode(x.value)
			c.ok(err)
			c.ok(replay.Put(id, x.value, tm))
		}
	}
	c.ok(replay.Flush(c.changelog[len(c.changelog)-1].offset + 1))
	c.ok(store.Live(time.UnixMilli(c.now), p.o.Token.Confirmed))
	c.storeIsFold(store)
	meta, err = store.Meta()
	c.ok(err)
	s := p.newServed(p.newLane(store), c.position, meta.Pending)
	s.keeper.checkpoints.aside = func(write func()) { c.write = write }
	s.keeper.checkpoints.stop() // nobody answers Partition.Checkpoint unless a test does
	p.served.Store(s)
	p.ledger.pending.Store(0)
	p.Questions.Open(questions.Acquisition{Planners: s.subs, Store: store, Flush: p.Checkpoint})
	p.life.SetState(ownership.Live)
	p.life.Steps.Join(s.lane)
	p.life.Own(ownership.Claimed{Behind: c.end, Leader: 1})
	c.ok(s.keeper.parking.open())
	if len(s.keeper.parking.counts) > 0 {
		c.g.seen["taken with parked timers"]++
	}
	c.p, c.s, c.share, c.opened, c.fires = p, s, nil, false, map[*subPartition]bool{}
	c.high = c.now
	c.given, _ = slices.BinarySearchFunc(
		c.requests, c.position, func(r *kgo.Record, at int64) int { return int(r.Offset - at) })
	c.barrier = len(c.requests)
	c.open()
}

func (c *core) ok(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("%v", err)
	}
}

// fold returns the changelog below an offset, folded: timers by ID.
func (c *core) fold(below int64) map[string]*timer.Timer {
	m := map[string]*timer.Timer{}
	for _, x := range c.changelog {
		kind, id, err := wire.ParseKey(x.key)
		c.ok(err)
		switch {
		case x.offset >= below || kind != wire.KindTimer:
		case x.value == nil:
			delete(m, string(id))
		default:
			tm, err := timer.Decode(x.value)
			c.ok(err)
			m[string(id)] = tm
		}
	}
	return m
}

// storeIsFold checks that the store holds the fold of the changelog up to the position that it has stored,
// parked or not.
func (c *core) storeIsFold(store *statestore.Handle) {
	c.t.Helper()
	meta, err := c.o.Store.Verify()
	c.ok(err)
	want := c.fold(max(0, meta.Position))
	var ids [][]byte
	for id := range want {
		ids = append(ids, []byte(id))
	}
	got, _, err := store.GetAll(append(ids, []byte("nobody's")))
	c.ok(err)
	refs := make([]timer.Ref, len(ids))
	c.ok(store.LookupAll(ids, refs))
	for i, id := range ids {
		tm := want[string(id)]
		if got[i] == nil || !bytes.Equal(got[i].AppendTo(nil), tm.AppendTo(nil)) || refs[i] != tm.Ref() ||
			got[len(ids)] != nil {
			c.t.Fatalf("store holds %+v (%v) as %q, the changelog below %d says %+v", got[i], refs[i], id,
				meta.Position, tm)
		}
	}
	if meta.Pending != int64(len(want)) {
		c.t.Fatalf("store holds %d timers, the changelog below %d says %d", meta.Pending, meta.Position, len(want))
	}
}

// request appends a record to the request log, with a gap before it.
func (c *core) request(gap int64, id int, headers ...string) *kgo.Record {
	r := &kgo.Record{Topic: "r", Key: []byte(fmt.Sprint("id", id)), Value: []byte("v"),
		Timestamp: time.UnixMilli(c.now), Offset: gap}
	if n := len(c.requests); n > 0 {
		r.Offset += c.requests[n-1].Offset + 1
	}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	c.requests = append(c.requests, r)
	return r
}

func (c *core) schedule(id int, in int64) *kgo.Record {
	return c.request(0, id, waterclock.HeaderAt, strconv.FormatInt(c.now+in, 10), waterclock.HeaderTargetTopic,
		targetTopic)
}

func (c *core) cancel(id int) *kgo.Record { return c.request(0, id, waterclock.HeaderCancel, "true") }

// steer requests an action on the pending timer.
func (c *core) steer(id int, what string) *kgo.Record { return c.request(0, id, what, "true") }

// under puts a request under a condition.
func under(r *kgo.Record, condition string) {
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: waterclock.HeaderIf, Value: []byte(condition)})
}

// replaces reports whether a request replaces whatever is pending.
func (c *core) replaces(r *kgo.Record) bool {
	return !c.bad(r) && header(r, waterclock.HeaderIf) == "" &&
		(header(r, waterclock.HeaderAt) != "" || header(r, waterclock.HeaderCancel) != "")
}

// between reports whether some request for g's timer, behind g and before an offset, satisfies is.
func (c *core) between(g *kgo.Record, before int64, is func(r *kgo.Record) bool) bool {
	return slices.ContainsFunc(c.requests, func(r *kgo.Record) bool {
		return r.Offset > g.Offset && r.Offset < before && bytes.Equal(r.Key, g.Key) && is(r)
	})
}

func has(name string) func(*kgo.Record) bool {
	return func(r *kgo.Record) bool { return header(r, name) != "" }
}

// paused reports whether g, if it is pending, is certainly paused at an offset: by an unconditional request,
// without one that has resumed or triggered it since.
func (c *core) paused(g *kgo.Record, before int64) bool {
	return c.between(g, before, func(r *kgo.Record) bool {
		return has(waterclock.HeaderPause)(r) && !has(waterclock.HeaderIf)(r) &&
			!c.between(r, math.MaxInt64, has(waterclock.HeaderResume))
	}) && !c.between(g, math.MaxInt64, has(waterclock.HeaderTrigger))
}

// deliver gives the instance the next n requests, unless it has asked to pause.
func (c *core) deliver(n int) {
	n = min(n, len(c.requests)-c.given)
	if n == 0 || c.s.requests.paused {
		return
	}
	recs := c.requests[c.given : c.given+n]
	c.given += n
	next := recs[len(recs)-1].Offset + 1
	if c.given < len(c.requests) {
		next = c.requests[c.given].Offset // only markers lie in between
	}
	c.s.requests.Deliver(partlog.Read{Records: recs, Next: next, End: c.requests[len(c.requests)-1].Offset + 1})
	c.open()
}

// open opens the catch-up barrier once everything that was in the log at the acquisition is delivered.
func (c *core) open() {
	if c.opened || c.given < c.barrier {
		return
	}
	c.opened = true
	c.s.requests.open()
}

// work plans what is delivered. Those requests beat the earlier generations of their IDs that are not due yet.
func (c *core) work() {
	c.t.Helper()
	for _, s := range c.s.subs.all {
		c.workOn(s)
	}
}

// workOn makes one sub-partition plan what it was handed.
func (c *core) workOn(s *subPartition) {
	c.t.Helper()
	for _, d := range s.inbox.list {
		c.fires[s] = c.fires[s] || d.open
		for _, r := range d.recs {
			c.beats(r, c.fires[s])
		}
	}
	c.ok(s.planHanded())
}

// beats records which generations request r certainly wins against: firings that were planned before the clock
// was set back may be in a step already.
func (c *core) beats(r *kgo.Record, open bool) {
	if !c.replaces(r) {
		return
	}
	for _, g := range c.requests {
		if g.Offset < r.Offset && bytes.Equal(g.Key, r.Key) && c.emitted[g.Offset] == nil &&
			(c.due(g) > max(c.high, c.now) && !c.between(g, r.Offset, has(waterclock.HeaderTrigger)) || !open) {
			c.beaten[g.Offset] = true
		}
	}
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// due returns when a schedule is due, the end of time for any other request.
func (c *core) due(r *kgo.Record) int64 {
	n, err := strconv.ParseInt(header(r, waterclock.HeaderAt), 10, 64)
	if err != nil {
		return math.MaxInt64
	}
	return n
}

func (c *core) bad(r *kgo.Record) bool { return len(r.Headers) == 0 }

// ended reports whether a request has ended what was pending.
func (c *core) ended(r *kgo.Record) bool {
	if has(waterclock.HeaderIf)(r) {
		return !c.unmet[r.Offset] && (has(waterclock.HeaderAt)(r) || has(waterclock.HeaderCancel)(r))
	}
	return c.replaces(r)
}

// condition puts a request under a condition, or under none.
func (c *core) condition(t *rapid.T, r *kgo.Record) {
	switch back := rapid.IntRange(0, 12).Draw(t, "condition"); {
	case back < 3:
	case back == 3:
		under(r, waterclock.IfAbsent)
	case back == 4:
		under(r, waterclock.IfPresent)
	default: // one of the earlier requests
		under(r, fmt.Sprint("r/0/", c.requests[max(0, len(c.requests)-back+3)].Offset))
	}
}

// parkDue parks the timers that are due at one time, as if the former owner had done it.
func (c *core) parkDue(due int64) {
	var parked []*timer.Timer
	timers, _, _, err := c.s.keeper.store.Scan(planner.Lowest, planner.Highest, 1<<20, 1<<30)
	c.ok(err)
	for _, x := range timers {
		if x.Due == due {
			parked = append(parked, x)
		}
	}
	if len(parked) == 0 {
		c.t.Fatalf("nothing is due at %d", due)
	}
	to := timer.TopicPartition{Topic: targetTopic}
	c.ok(c.s.keeper.store.Park(targetName(to), parked))
	c.s.keeper.parking.count(to, int64(len(parked)))
	c.s.keeper.parking.waiter.Wait(to)
}

func (c *core) load() {
	_, err := c.s.keeper.load()
	c.ok(err)
}

// seal makes a step, if none is open and something is ready.
func (c *core) seal(entries int) {
	c.t.Helper()
	if c.share != nil {
		return
	}
	c.steps++
	c.share = c.s.lane.Seal(fmt.Sprint("step", c.steps), &emitter.Room{Entries: entries, Bytes: 1 << 20})
	if c.share == nil {
		return
	}
	for _, r := range c.share.Records {
		c.sealed(r)
		if r.Topic == c.set.DeadLetters.Name {
			c.undeliverable(r)
		}
	}
	for _, e := range c.share.Emissions {
		c.sealed(e.Record)
		if at := e.Record.Timestamp.UnixMilli(); at != c.now || e.Due > c.now {
			c.t.Fatalf("an emission due %d with timestamp %d is sealed at %d", e.Due, at, c.now)
		}
	}
	c.passing()
}

// sealed checks that a record is as good as new: kgo keeps in it the context of the step with which it was
// first sent, and refuses it in a later one. The records of an uncommitted step must not be used again: kgo may
// still be sending them.
func (c *core) sealed(r *kgo.Record) {
	c.t.Helper()
	if r.Context != nil || c.aborted[r] {
		c.t.Fatalf("a record for %s of an earlier step is sealed again as it was", r.Topic)
	}
	r.Context = context.Background()
}

// commit commits the open step, as a broker would. The instance hears of it only if told is true.
func (c *core) commit(told bool) {
	c.t.Helper()
	if c.share == nil {
		return
	}
	if c.refused() {
		return
	}
	c.passed()
	fold := c.fold(math.MaxInt64)
	seen := map[string]bool{}
	for _, r := range c.share.Records {
		if r.Topic == c.set.Events.Name {
			continue
		}
		if r.Topic == c.set.DeadLetters.Name {
			at := c.source(r)
			if c.dead[at]++; c.dead[at] > 1 || c.emitted[at] != nil || c.beaten[at] &&
				!c.bad(c.requests[c.indexOf(at)]) {
				c.t.Fatalf("a dead letter of request %d: the %d., beaten %v, fired %v", at, c.dead[at], c.beaten[at],
					c.emitted[at] != nil)
			}
			continue
		}
		r.Offset = c.append(r.Key, r.Value)
		kind, id, err := wire.ParseKey(r.Key)
		c.ok(err)
		if seen[string(r.Key)] {
			c.t.Fatalf("two records under changelog key %q in one step", r.Key)
		}
		seen[string(r.Key)] = true
		if _, there := fold[string(id)]; kind == wire.KindTimer && r.Value == nil && !there {
			c.t.Fatalf("a tombstone for %q, of which the changelog holds nothing", id)
		}
		if kind == wire.KindCheckpoint {
			cp, err := wire.DecodeCheckpoint(r.Value)
			c.ok(err)
			if cp.Position < c.position || cp.Position != c.share.Offset.At {
				c.t.Fatalf("position %d behind %d, offset commit %d", cp.Position, c.position, c.share.Offset.At)
			}
			c.before, c.position = c.position, cp.Position
			c.settlesWhatIsPlanned()
		}
	}
	for _, e := range c.share.Emissions {
		c.emit(e.Record)
	}
	share := c.share
	c.share = nil
	c.hear(share)
	c.fence(share)
	c.committing(share)
	c.end++ // its marker
	if c.unheard = !told; !told {
		for _, r := range c.requests {
			c.maybe[r.Offset] = c.maybe[r.Offset] || r.Offset < c.position && !c.heard[r.Offset]
		}
	}
	for _, r := range c.requests {
		c.heard[r.Offset] = c.heard[r.Offset] || r.Offset < c.position
	}
	if told {
		share.Done(emitter.Committed)
		for e := range c.s.keeper.handover.steps[len(c.s.keeper.handover.steps)-1].step.Entries() {
			switch e.Outcome {
			case timer.None:
				c.g.seen["rolled back"]++
			case timer.Unmet:
				c.g.seen["unmet"]++
				c.unmet[e.Request] = true
			}
		}
	}
}

// settlesWhatIsPlanned checks that no sub-partition has an unplanned request below the position.
func (c *core) settlesWhatIsPlanned() {
	c.t.Helper()
	for _, s := range c.s.subs.all {
		for _, d := range s.inbox.list {
			c.g.seen["a sub is behind"] += len(d.recs)
			if len(d.recs) > 0 && d.recs[0].Offset < c.position {
				c.t.Fatalf("position %d, and request %d is not planned", c.position, d.recs[0].Offset)
			}
		}
	}
}

// source returns the request offset that a record of ours names.
func (c *core) source(r *kgo.Record) int64 {
	s := header(r, waterclock.HeaderSource)
	n, err := strconv.ParseInt(s[strings.LastIndexByte(s, '/')+1:], 10, 64)
	c.ok(err)
	return n
}

// indexOf finds a request by its offset.
func (c *core) indexOf(at int64) int {
	c.t.Helper()
	i, found := slices.BinarySearchFunc(c.requests, at, func(r *kgo.Record, at int64) int { return int(r.Offset - at) })
	if !found {
		c.t.Fatalf("no request has offset %d", at)
	}
	return i
}

// emit checks an emission that has become visible.
func (c *core) emit(r *kgo.Record) {
	c.t.Helper()
	at := c.source(r)
	i := c.indexOf(at)
	switch {
	case c.due(c.requests[i]) == math.MaxInt64:
		c.t.Fatalf("an emission of %d, which is no schedule", at)
	case c.emitted[at] != nil || c.dead[at] > 0:
		c.t.Fatalf("duplicated: request %d fires again", at)
	case c.beaten[at]:
		c.t.Fatalf("request %d fires although it was replaced or cancelled before it was due", at)
	case c.paused(c.requests[i], c.before): // a pause in the same step may stand behind the firing
		c.t.Fatalf("request %d fires although it is paused", at)
	case strconv.FormatInt(c.due(c.requests[i]), 10) != header(r, waterclock.HeaderDue):
		c.triggered(c.requests[i], r)
	case r.Timestamp.UnixMilli() < c.due(c.requests[i]):
		c.t.Fatalf("early: request %d due %d fires at %d", at, c.due(c.requests[i]), r.Timestamp.UnixMilli())
	}
	written := *r // a copy: its memory is reused
	written.Headers = slices.Clone(r.Headers)
	for i := range written.Headers {
		written.Headers[i].Value = bytes.Clone(written.Headers[i].Value)
	}
	c.emitted[at] = &written
}

// triggered checks an emission that is not due by the schedule of its request g.
func (c *core) triggered(g, r *kgo.Record) {
	c.t.Helper()
	due, err := strconv.ParseInt(header(r, waterclock.HeaderDue), 10, 64)
	c.ok(err)
	if r.Timestamp.UnixMilli() < due || !c.between(g, math.MaxInt64, has(waterclock.HeaderTrigger)) {
		c.t.Fatalf("request %d, due %d and triggered at %d, fires at %d", g.Offset, c.due(g), due,
			r.Timestamp.UnixMilli())
	}
	c.g.seen["triggered"]++
}

// fence lets a share pass the fence, once.
func (c *core) fence(share *emitter.Share) {
	c.t.Helper()
	if c.fenced == c.steps {
		return
	}
	c.fenced = c.steps
	for _, r := range share.Records { // as if someone else's claim stood before them
		r.Offset += wire.ClaimRecords
	}
	if share.Fence(1) == nil {
		c.t.Fatalf("a step behind the claim of somebody else may be committed")
	}
	for _, r := range share.Records {
		r.Offset -= wire.ClaimRecords
	}
	c.ok(share.Fence(1))
}

// committing tells a share that its commit begins, once.
func (c *core) committing(share *emitter.Share) {
	if c.begun < c.steps {
		c.begun = c.steps
		share.Committing()
	}
}

func (c *core) abort() {
	if c.share == nil {
		return
	}
	share := c.share
	c.share = nil
	if c.aborts++; c.aborts%2 == 0 { // in every other case it is another partition that must not go on
		for _, r := range share.Records {
			if r.Topic == c.set.Changelog.Name {
				r.Offset = c.end
				c.end++
			}
		}
		c.fence(share)
	}
	c.end++ // its marker
	for _, r := range share.Records {
		c.aborted[r] = true
	}
	for _, e := range share.Emissions {
		c.aborted[e.Record] = true
	}
	share.Done(emitter.Aborted)
	if c.p.life.Steps.Doubt() != (c.aborts%2 == 1) {
		c.t.Fatalf("in doubt %v of an aborted step, fenced %v", c.p.life.Steps.Doubt(), c.aborts%2 == 0)
	}
	if c.p.life.Steps.Doubt() {
		c.p.life.Own(ownership.Claimed{Behind: c.end, Leader: 1})
	}
}

func (c *core) apply() {
	if c.s.keeper.applyNext() && !c.lazy {
		c.checkpoint()
	}
}

// freeze begins a checkpoint, store writes it, and thaw tells the partition.
func (c *core) freeze() {
	if d := c.s.keeper.checkpoints; !d.writing && !d.since.IsZero() {
		c.g.seen["frozen"]++
		c.s.keeper.checkpoints.begin(context.Background())
	}
}

func (c *core) store() {
	if c.write != nil {
		c.write()
		c.write = nil
		c.storeIsFold(c.s.keeper.store)
	}
}

func (c *core) thaw() {
	_, err := c.s.keeper.checkpoints.end()
	c.ok(err)
}

func (c *core) checkpoint() {
	c.store()
	c.thaw()
	c.freeze()
	c.store()
	c.thaw()
}

// settle ends a life in order: the store has everything that is committed.
func (c *core) settle() {
	c.store()
	c.s.keeper.stop()
	c.storeIsFold(c.s.keeper.store)
	meta, err := c.s.keeper.store.Meta()
	c.ok(err)
	if last := c.changelog[len(c.changelog)-1].offset; meta.Position <= last && !c.unheard {
		c.t.Fatalf("the store's position is %d after an orderly end, the last record is at %d", meta.Position, last)
	}
}

// finish lets everything complete, first what needs none of the unhealthy targets, then the rest, and checks
// that each request had exactly one outcome.
func (c *core) finish() {
	c.t.Helper()
	c.abort()
	last := max(c.high, c.now)
	for _, g := range c.requests { // including those scheduled before the clock was set back
		if due := c.due(g); due < math.MaxInt64 {
			last = max(last, due)
		}
	}
	for id := range 44 { // paused timers go on
		c.steer(id, waterclock.HeaderResume)
	}
	c.pass(last - c.now + 100_000)
	c.rest(func() bool {
		for i, g := range c.requests {
			if !c.settled(i) && !c.held(g) {
				return false
			}
		}
		return true
	})
	c.heal()
	c.rest(func() bool { return len(c.fold(math.MaxInt64)) == 0 })
	c.checkpoint()
	c.storeIsFold(c.s.keeper.store)
	for i, g := range c.requests {
		if c.bad(g) && c.dead[g.Offset] != 1 {
			c.t.Fatalf("%d dead letters of bad request %d", c.dead[g.Offset], g.Offset)
		}
		if !c.settled(i) {
			c.t.Fatalf("lost: request %d never fired and nothing replaced it", g.Offset)
		}
	}
	if n := len(c.requests); n > 0 && c.position != c.requests[n-1].Offset+1 {
		c.t.Fatalf("position %d at the end, last request %d", c.position, c.requests[n-1].Offset)
	}
	c.work()
	if items, bytes := c.s.subs.size(); items > 0 || bytes > 0 {
		c.t.Fatalf("the planner keeps %d items and %d bytes when nothing is pending", items, bytes)
	}
	if b := c.s.backlog; b.requests != (timer.Size{}) || b.firings != (timer.Size{}) || b.committed != (timer.Size{}) {
		c.t.Fatalf("on their way at the end: %+v", b)
	}
	c.s.keeper.parking.waiter.Close()
	for range 3 {
		c.look(time.Minute)
	}
	c.heal()
	for range 10 {
		c.look(10 * time.Minute)
	}
	if !c.o.Health.AllHealthy() {
		c.t.Fatalf("unhealthy at the end, when every target answers and nothing waits: %v", c.o.Health.Unhealthy())
	}
}

// rest goes on until nothing moves any more and done agrees.
func (c *core) rest(done func() bool) {
	c.t.Helper()
	for round, still := 0, 0; still < 4 || !done(); round++ {
		if round > 1000 { // well over an hour; probes are at most 5 minutes apart
			c.t.Fatalf("no end: %d of %d requests delivered, position %d, paused %v, parked %v, unhealthy %v",
				c.given, len(c.requests), c.position, c.s.requests.paused, c.s.keeper.parking.counts,
				c.o.Health.Unhealthy())
		}
		after := 5 * time.Second
		if still > 4 { // it waits for nothing but probes
			after = time.Minute
		}
		worked := c.turn(after)
		if c.s.subs.any(func(x *planner.Planner) bool { return x.Stats().Wanted }) || c.s.keeper.checkpoints.writing {
			c.checkpoint()
		}
		if still++; worked || c.s.backlog.onTheirWay().Entries > 0 || c.given < len(c.requests) ||
			len(c.s.keeper.handover.steps) > 0 {
			still = 0
		}
	}
}

// turn is one round of everything that a partition does. It reports whether there was a step.
func (c *core) turn(after time.Duration) bool {
	c.deliver(10)
	c.work()
	c.load()
	c.park()
	c.look(after)
	c.seal(c.room)
	stepped := c.share != nil
	c.commit(true)
	c.apply()
	return stepped
}

// atLeast sets a flag of rapid that still has its default, for one test.
func atLeast(t *testing.T, name, value string) {
	f := flag.Lookup(name)
	if old := f.Value.String(); old == f.DefValue {
		_ = f.Value.Set(value)
		t.Cleanup(func() { _ = f.Value.Set(old) })
	}
}

// pass lets time pass, for all clocks.
func (c *core) pass(ms int64) {
	c.now += ms
	c.high = max(c.high, c.now)
	c.mono = c.mono.Add(time.Duration(ms) * time.Millisecond)
}

// Requests come, workers plan, and steps are sealed, committed, aborted, committed unheard and applied in any
// order. Timers are loaded and evicted, instances end, targets become unhealthy, vanish and recover, and
// firings are rolled back, parked and admitted. Whatever happens, each generation fires once or is beaten, or
// becomes a dead letter when its target was missing for long. None is early, and a request that was planned in
// time wins. The store is the fold of the changelog. Nothing is sent to an unhealthy target except what was
// admitted, and nothing waits for a healthy target.
//
// It runs 1000 times 100 steps, some 5 s, unless flags of rapid say otherwise.
func TestPartitionAgainstModel(t *testing.T) {
	atLeast(t, "rapid.checks", "1000")
	atLeast(t, "rapid.steps", "100")
	g := newSetup(t)
	defer func() {
		t.Logf("seen: %v", g.seen)
		for _, kind := range []string{
			"taken with parked timers", "parked", "unparked for all", "unparked by permit", "rolled back",
			"unhealthy in a step", "gone in a step",
			"event scheduled", "event replaced", "event cancelled", "event fired", "event rejected",
			"event undeliverable", "undeliverable", "null key parked", "topic not known", "set back",
			"a sub is behind", "triggered", "event triggered", "event paused", "event resumed",
			"event condition-not-met", "unmet",
		} {
			if g.seen[kind] == 0 && !t.Failed() && !testing.Short() {
				t.Errorf("it never happened: %s", kind)
			}
		}
	}()
	rapid.Check(t, func(t *rapid.T) {
		c := newCoreOf(t, g,
			rapid.SampledFrom([]int64{250, 1000, 1 << 20}).Draw(t, "wheel bytes"), rapid.SampledFrom(
				[]int{2, 8, 1000}).Draw(t, "queue"), rapid.SampledFrom([]int{1, 2, 5}).Draw(t, "sub-partitions"))
		if c.lazy = true; rapid.Bool().Draw(t, "events") {
			c.tell()
		}
		c.o.Memory.Dirty = budget.Alone(rapid.SampledFrom([]int64{1, 2000, 1 << 20}).Draw(t, "dirty bytes"))
		c.p.o.Memory.Dirty = c.o.Memory.Dirty
		t.Repeat(c.actions())
		c.finish()
	})
}

// actions returns everything that may happen to a partition.
func (c *core) actions() map[string]func(*rapid.T) {
	in := rapid.OneOf(rapid.Int64Range(-50, 100), rapid.Int64Range(10_000, 80_000))
	return map[string]func(*rapid.T){
		"schedule": func(t *rapid.T) {
			c.schedule(rapid.IntRange(0, 5).Draw(t, "id"), in.Draw(t, "in")).Offset += rapid.Int64Range(
				0, 2).Draw(t, "gap")
		},
		"schedule somewhere": func(t *rapid.T) {
			r := c.schedule(rapid.IntRange(0, 9).Draw(t, "id"), in.Draw(t, "in"))
			r.Headers[1].Value = []byte(rapid.SampledFrom(targetTopics).Draw(t, "topic"))
			r.Headers = append(r.Headers, rapid.SampledFrom([][]kgo.RecordHeader{
				nil, {{Key: waterclock.HeaderTargetKeyNull, Value: []byte("true")}},
				{{Key: waterclock.HeaderTargetPartition, Value: []byte("0")}},
				{{Key: waterclock.HeaderTargetPartition, Value: []byte("3")}},
			}).Draw(t, "where")...)
		},
		"null key": func(t *rapid.T) {
			for id := range 4 {
				r := c.schedule(30+id, in.Draw(t, "in"))
				r.Headers = append(
					r.Headers, kgo.RecordHeader{Key: waterclock.HeaderTargetKeyNull, Value: []byte("true")})
			}
		},
		"all unresponsive": func(*rapid.T) {
			for k := range int32(3) {
				c.brokers.unresponsive[timer.TopicPartition{Topic: targetTopic, Partition: k}] = true
			}
		},
		"silence": func(t *rapid.T) {
			c.brokers.unresponsive[timer.TopicPartition{
				Topic: rapid.SampledFrom(targetTopics).Draw(t, "topic"), Partition: rapid.Int32Range(0, 2).Draw(
					t, "partition"),
			}] = true
		},
		"leaderless": func(t *rapid.T) {
			if l := c.brokers.leaders[rapid.SampledFrom(targetTopics).Draw(t, "topic")]; len(l) > 0 {
				l[rapid.IntRange(0, len(l)-1).Draw(t, "partition")] = -1
			}
		},
		"vanish": func(t *rapid.T) { c.vanish(rapid.SampledFrom(targetTopics[1:]).Draw(t, "topic")) },
		"appear": func(t *rapid.T) {
			c.appear(rapid.SampledFrom(targetTopics).Draw(t, "topic"), rapid.IntRange(3, 4).Draw(t, "partitions"))
		},
		"vanish under a step": func(t *rapid.T) {
			c.schedule(40, -1).Headers[1].Value = []byte(otherTopic)
			c.turn(0)
			c.seal(10)
			c.vanish(otherTopic)
			c.commit(true)
		},
		"heal": func(*rapid.T) { c.heal() },
		"look": func(t *rapid.T) {
			c.look(rapid.SampledFrom([]time.Duration{0, time.Second, 6 * time.Second}).Draw(t, "after"))
		},
		"park":  func(*rapid.T) { c.park() },
		"turn":  func(*rapid.T) { c.turn(0) },
		"turn2": func(*rapid.T) { c.turn(2 * time.Second) },
		"many": func(t *rapid.T) {
			for id := range 12 {
				c.schedule(10+id, in.Draw(t, "in"))
			}
		},
		// Requests that steer go to a few timers, which are as often on their way as parked.
		"steer": func(t *rapid.T) {
			r := c.steer(rapid.IntRange(0, 5).Draw(t, "id"), rapid.SampledFrom([]string{
				waterclock.HeaderTrigger, waterclock.HeaderPause, waterclock.HeaderPause, waterclock.HeaderResume,
			}).Draw(t, "what"))
			c.condition(t, r)
		},
		"schedule if": func(t *rapid.T) {
			c.condition(t, c.schedule(rapid.IntRange(0, 5).Draw(t, "id"), in.Draw(t, "in")))
		},
		"cancel if": func(t *rapid.T) { c.condition(t, c.cancel(rapid.IntRange(0, 5).Draw(t, "id"))) },
		"cancel":    func(t *rapid.T) { c.cancel(rapid.IntRange(0, 5).Draw(t, "id")) },
		"bad":       func(t *rapid.T) { c.request(0, rapid.IntRange(0, 5).Draw(t, "id")) },
		"deliver":   func(t *rapid.T) { c.deliver(rapid.IntRange(1, 8).Draw(t, "n")) },
		"work":      func(*rapid.T) { c.work() },
		"work2":     func(t *rapid.T) { c.workOn(rapid.SampledFrom(c.s.subs.all).Draw(t, "sub")) },
		"tick":      func(t *rapid.T) { c.pass(rapid.Int64Range(1, 60).Draw(t, "ms")) },
		"leap":      func(t *rapid.T) { c.pass(rapid.Int64Range(5_000, 40_000).Draw(t, "ms")) },
		"back": func(t *rapid.T) {
			c.g.seen["set back"]++
			c.now -= rapid.Int64Range(1, 30_000).Draw(t, "ms")
		},
		"load":   func(*rapid.T) { c.load() },
		"seal":   func(t *rapid.T) { c.seal(rapid.IntRange(1, 10).Draw(t, "entries")) },
		"commit": func(*rapid.T) { c.commit(true) },
		"abort":  func(*rapid.T) { c.abort() },
		"apply":  func(*rapid.T) { c.apply() },
		"round": func(*rapid.T) {
			_, err := c.s.keeper.round(context.Background())
			c.ok(err)
		},
		"dies": func(t *rapid.T) {
			if rapid.IntRange(0, 3).Draw(t, "rarely") > 0 {
				return
			}
			c.o.Token.Refused(errors.New("lost"))
			c.commit(true)
			for range rapid.IntRange(0, 2).Draw(t, "steps applied") {
				c.apply()
			}
			c.settle()
			c.acquire()
		},
		"freeze": func(*rapid.T) { c.freeze() },
		"store":  func(*rapid.T) { c.store() },
		"thaw":   func(*rapid.T) { c.thaw() },
		"crash": func(t *rapid.T) {
			if rapid.IntRange(0, 3).Draw(t, "rarely") > 0 {
				return
			}
			if rapid.Bool().Draw(t, "committed unheard") {
				c.commit(false)
			}
			if rapid.Bool().Draw(t, "in order") {
				c.settle()
			}
			if rapid.Bool().Draw(t, "another process") {
				c.s.keeper.parking.waiter.Close()
				c.p = nil
				c.process()
			}
			c.acquire()
		},
	}
}
