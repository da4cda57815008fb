package partition

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
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

// setup has the parts that all cores share: one broker for readers of requests, and one store.
type setup struct {
	seeds   []string
	client  *kgo.Client
	reader  *intake.Reader
	store   *statestore.Store
	serial  atomic.Uint32 // of cores: each has a partition of its own
	metrics *Metrics
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
		metrics: NewMetrics(prometheus.NewRegistry())}
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

// change is a committed changelog record.
type change struct {
	offset     int64
	key, value []byte
}

// core drives a partition step by step, on one goroutine. It simulates reader, lane, broker and clock, keeps the
// committed logs, and checks the invariants after every step. An instance of the partition ends where the next one
// acquires it.
type core struct {
	t       testing.TB
	g       *setup
	o       Options
	set     topics.Set
	now     int64     // Unix ms, may go back
	mono    time.Time // never goes back; used by Targets and Health
	brokers *brokers

	p       *Partition
	s       *served           // its rooms
	write   func()            // of the checkpoint that is under way
	room    int               // entries of a step in a turn
	lazy    bool              // the test controls checkpoints; otherwise one follows each step
	share   *emitter.Share    // sealed, outcome open
	asked   *ownership.Source // asks s.lane
	fenced  int               // the number of the last step that has passed the fence
	begun   int               // and of the last one whose commit was begun
	steps   int
	given   int // requests delivered to this instance
	barrier int // requests in the log when this instance acquired the partition
	opened  bool

	requests  []*kgo.Record
	changelog []change
	end       int64 // of the changelog, markers and aborted records included
	position  int64 // of the last committed checkpoint
	emitted   map[int64]*kgo.Record
	dead      map[int64]int        // dead letters by request offset
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

func newCore(t testing.TB, g *setup, wheelBytes int64, queue int) *core {
	return newCoreOf(t, g, wheelBytes, queue, 1)
}

// newCoreOf returns a core with the given number of sub-partitions.
func newCoreOf(t testing.TB, g *setup, wheelBytes int64, queue, subs int) *core {
	n := g.serial.Add(1)
	id := func(kind byte) (b [16]byte) {
		b[0] = kind
		binary.BigEndian.PutUint32(b[12:], n)
		return b
	}
	c := &core{
		t: t, g: g, now: 1_700_000_000_000, mono: time.Unix(1_700_000_000, 0), brokers: newBrokers(),
		emitted: map[int64]*kgo.Record{}, dead: map[int64]int{}, aborted: map[*kgo.Record]bool{}, room: 5,
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
	now := func() time.Time { return c.mono }
	c.o.Targets = targets.NewMetadata(c.brokers, targets.MetadataOptions{Now: now})
	c.o.Health = targets.NewHealth(
		targets.HealthOptions{Probe: c.probe, Targets: c.o.Targets, Now: now, Logger: c.o.Logger})
	c.look(0)
}

// acquire begins a new instance from the committed logs; the old one is gone.
func (c *core) acquire() {
	c.t.Helper()
	if c.p != nil {
		c.s.keeper.parking.close()
	}
	c.o.Token = &holder{}
	p := New(c.o)
	c.write = nil
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
	s.keeper.checkpoints.stop() // Partition.Checkpoint is not answered unless a test does
	p.served.Store(s)
	p.ledger.pending.Store(0)
	p.Questions.Open(questions.Acquisition{Planners: s.subs, Store: store, Flush: p.Checkpoint})
	p.life.SetState(ownership.Live)
	c.asked = p.life.Steps.Join(s.lane)
	p.life.Own(ownership.Claimed{Behind: c.end, Leader: 1})
	c.ok(s.keeper.parking.open())
	c.p, c.s, c.share, c.opened = p, s, nil, false
	c.given, _ = slices.BinarySearchFunc(c.requests, c.position,
		func(r *kgo.Record, at int64) int { return int(r.Offset - at) })
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

// work plans the requests that are delivered.
func (c *core) work() {
	c.t.Helper()
	for _, s := range c.s.subs.all {
		c.ok(s.planHanded(c.t.Context()))
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

// number parses a header.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// due returns when a schedule is due, the end of time for any other request.
func (c *core) due(r *kgo.Record) int64 {
	if at := header(r, waterclock.HeaderAt); at != "" {
		return number(at)
	}
	return math.MaxInt64
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
	c.ok(c.s.keeper.store.Park(to.Name(), parked))
	c.s.keeper.parking.waiter.Wait(to)
}

// parkedBy returns how many timers are parked, by target.
func (c *core) parkedBy() map[timer.TopicPartition]int64 {
	c.t.Helper()
	counts, err := c.s.keeper.parking.look()
	c.ok(err)
	return counts
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
	c.share = c.asked.Seal(fmt.Sprint("step", c.steps), &emitter.Room{Entries: entries, Bytes: 1 << 20})
	if c.share == nil {
		return
	}
	for _, r := range c.share.Records {
		c.sealed(r)
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

// commit commits the open step, as a broker would.
func (c *core) commit() {
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
			if c.dead[at]++; c.dead[at] > 1 || c.emitted[at] != nil {
				c.t.Fatalf("a dead letter of request %d: the %d., fired %v", at, c.dead[at], c.emitted[at] != nil)
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
			c.position = cp.Position
		}
	}
	for _, e := range c.share.Emissions {
		c.emit(e.Record)
	}
	share := c.share
	c.share = nil
	c.fence(share)
	c.committing(share)
	c.end++ // its marker
	share.Done(emitter.Committed)
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
	case r.Timestamp.UnixMilli() < number(header(r, waterclock.HeaderDue)):
		c.t.Fatalf("early: request %d due %s fires at %d", at, header(r, waterclock.HeaderDue), r.Timestamp.UnixMilli())
	}
	written := *r // a copy: its memory is reused
	written.Headers = slices.Clone(r.Headers)
	for i := range written.Headers {
		written.Headers[i].Value = bytes.Clone(written.Headers[i].Value)
	}
	c.emitted[at] = &written
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
	if share.Check(1) == nil {
		c.t.Fatalf("a step behind the claim of somebody else may be committed")
	}
	for _, r := range share.Records {
		r.Offset -= wire.ClaimRecords
	}
	c.ok(share.Check(1))
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

// apply does the keeper's work behind a commit.
func (c *core) apply() {
	c.s.requests.resumeIfFree()
	if !c.lazy {
		c.checkpoint()
	}
}

// freeze begins a checkpoint, store writes it, and thaw tells the partition.
func (c *core) freeze() {
	if d := c.s.checkpoints; !d.writing && !d.since.IsZero() {
		c.s.checkpoints.begin(context.Background())
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
	_, err := c.s.checkpoints.end()
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
	if last := c.changelog[len(c.changelog)-1].offset; meta.Position <= last {
		c.t.Fatalf("the store's position is %d after an orderly end, the last record is at %d", meta.Position, last)
	}
}

// finish heals all targets and lets everything complete. Each request that nothing replaced has had its outcome, and
// nothing is left of them.
func (c *core) finish() {
	c.t.Helper()
	c.abort()
	last, later := c.now, map[string]bool{} // later: IDs of later requests
	for _, g := range c.requests {
		if due := c.due(g); due < math.MaxInt64 {
			last = max(last, due)
		}
	}
	c.pass(last - c.now + 100_000)
	c.heal()
	c.rest(func() bool { return len(c.fold(math.MaxInt64)) == 0 })
	c.checkpoint()
	c.storeIsFold(c.s.keeper.store)
	for _, g := range slices.Backward(c.requests) {
		at, id := g.Offset, string(g.Key)
		if len(g.Headers) == 0 && c.dead[at] != 1 {
			c.t.Fatalf("%d dead letters of bad request %d", c.dead[at], at)
		}
		if c.due(g) < math.MaxInt64 && header(g, waterclock.HeaderIf) == "" && !later[id] && c.emitted[at] == nil &&
			c.dead[at] == 0 {
			c.t.Fatalf("lost: request %d never fired and nothing replaced it", at)
		}
		later[id] = true
	}
	if n := len(c.requests); n > 0 && c.position != c.requests[n-1].Offset+1 {
		c.t.Fatalf("position %d at the end, last request %d", c.position, c.requests[n-1].Offset)
	}
	c.work()
	if items, bytes := c.s.subs.size(); items > 0 || bytes > 0 {
		c.t.Fatalf("the planner keeps %d items and %d bytes when nothing is pending", items, bytes)
	}
	if b := c.s.backlog; b.requests != (timer.Size{}) || b.firings != (timer.Size{}) {
		c.t.Fatalf("on their way at the end: %+v", b)
	}
	c.s.keeper.parking.waiter.Close()
}

// rest goes on until nothing moves any more and done agrees.
func (c *core) rest(done func() bool) {
	c.t.Helper()
	for round, still := 0, 0; still < 4 || !done(); round++ {
		if round > 1000 { // well over an hour; probes are at most 5 minutes apart
			c.t.Fatalf("no end: %d of %d requests delivered, position %d, paused %v, parked %v, unhealthy %v",
				c.given, len(c.requests), c.position, c.s.requests.paused, c.parkedBy(),
				c.o.Health.Unhealthy())
		}
		after := 5 * time.Second
		if still > 4 { // it waits for nothing but probes
			after = time.Minute
		}
		worked := c.turn(after)
		if c.s.subs.any(func(x *planner.Planner) bool { return x.Stats().Wanted }) || c.s.checkpoints.writing {
			c.checkpoint()
		}
		if still++; worked || c.s.backlog.onTheirWay().Entries > 0 || c.given < len(c.requests) {
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
	c.commit()
	c.apply()
	return stepped
}

// pass lets time pass, for all clocks.
func (c *core) pass(ms int64) {
	c.now += ms
	c.mono = c.mono.Add(time.Duration(ms) * time.Millisecond)
}
