package simulation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/test/rig"
	"github.com/waterclock/waterclock/test/witness"
)

// watcher is a plain read_committed consumer of all topics that keeps all it gets.
type watcher struct {
	w    *world
	turn chan struct{} // has an item while it is stopped

	mu      sync.Mutex  // guards what follows
	client  *kgo.Client // nil: it does not read
	records []*kgo.Record
	seen    []time.Time                    // when they came
	behind  map[timer.TopicPartition]int64 // behind the last record that came, markers included
}

func (w *world) newWatcher() *watcher {
	x := &watcher{w: w, turn: make(chan struct{}, 1), behind: make(map[timer.TopicPartition]int64)}
	x.turn <- struct{}{}
	x.start()
	return x
}

// start has it read all logs from their beginnings, what it has not read before. It has been stopped.
func (w *watcher) start() {
	defer func() { <-w.turn }()
	cl := w.w.client(
		kgo.ConsumeTopics(allTopics()...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.MetadataMaxAge(time.Second), // to find new partitions
	)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.client = cl
}

// stop has it read nothing before it is started again.
func (w *watcher) stop() {
	w.turn <- struct{}{}
	w.mu.Lock()
	cl := w.client
	w.client = nil
	w.mu.Unlock()
	cl.Close()
}

func (w *watcher) reading() *kgo.Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.client
}

// run reads until ctx ends.
func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		cl := w.reading()
		if cl == nil {
			w.w.wait(ctx, watchEvery)
			continue
		}
		fetches := cl.PollFetches(ctx)
		now := time.Now()
		w.mu.Lock()
		if cl != w.client {
			w.mu.Unlock()
			continue
		}
		fetches.EachRecord(func(r *kgo.Record) {
			at := timer.TopicPartition{Topic: r.Topic, Partition: r.Partition}
			if r.Offset < w.behind[at] {
				return // read again after its leader has moved
			}
			if w.behind[at] = r.Offset + 1; !r.Attrs.IsControl() {
				w.records, w.seen = append(w.records, r), append(w.seen, now)
			}
		})
		w.mu.Unlock()
	}
}

// readTo is the offset behind the last record of a partition that was read.
func (w *watcher) readTo(topic string, partition int32) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.behind[timer.TopicPartition{Topic: topic, Partition: partition}]
}

// begin forgets how far a topic was read: it begins again.
func (w *watcher) begin(topic string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.behind, func(at timer.TopicPartition, _ int64) bool { return at.Topic == topic })
}

// lacks says what is not read yet; "" if everything is, and no transaction is open.
func (w *watcher) lacks() string {
	var all []string
	for _, topic := range allTopics() {
		for _, p := range w.w.cluster.partitions(topic) {
			if read := w.readTo(topic, p.Partition); read < p.HighWatermark {
				all = append(all, fmt.Sprintf("%s/%d is read up to %d, stable up to %d, of %d", topic, p.Partition,
					read, p.LastStableOffset, p.HighWatermark))
			}
		}
	}
	return strings.Join(all, "; ")
}

// history is what was seen. The clients have ended.
func (w *world) history(views []witness.StoreContents) *witness.History {
	h := &witness.History{
		History: history.History{Faults: slices.Concat(w.faults, w.stuck), Readings: w.readings, Rates: w.rates,
			Scope: history.Scope{Ended: w.ended, Settle: settle, Events: map[string]bool{requests: true}}},
		Answers: w.answers, Ledgers: w.ledgers, Lags: w.lags, Stores: views,
	}
	if w.watcher == nil {
		return h
	}
	rules := &intake.Rules{
		Topic: requests, Changelog: topics.Changelog(requests), Partitions: partitions,
		Allow:            func(string) bool { return true },
		PartitionerCheck: intake.Warn, Limits: intake.DefaultLimits(),
	}
	for i, r := range w.watcher.records {
		if err := rig.Observe(h, rules, r, w.watcher.seen[i]); err != nil {
			w.refuse("a record that cannot be read: %v", err)
		}
	}
	// what was in it before may not have been read, and owners whose clocks were ahead dated it later
	if !w.recreated.IsZero() {
		h.Scope.Unseen = map[string]int64{spare: w.recreated.UnixMilli() + ahead(w.readings)}
	}
	for i := range w.cuts {
		c := &w.cuts[i]
		c.excuse(&h.Scope, h.Requests)
		h.Stores = slices.DeleteFunc(h.Stores, func(v witness.StoreContents) bool {
			return c.topic != requests && v.Partition == c.partition && v.Position > c.from
		}) // perhaps of what is lost
	}
	h.Lags = slices.DeleteFunc(h.Lags, w.misled)
	h.Answers = w.withoutExcused(h)
	return h
}

// readLedgers notes what instances count. Nothing is on its way.
func (w *world) readLedgers() {
	for n, p := range w.owners() {
		of := fmt.Sprint("the owner of partition ", n)
		w.ledgers = append(w.ledgers,
			witness.Ledger{Instance: of, Requests: requests, At: time.Now(), AtRest: true, Off: p.Status().Ledger})
	}
}

// watchLag reads the lag now and then. It does not while two groups serve the request topic.
func (w *world) watchLag(ctx context.Context) {
	if w.plan.has(otherGroup) {
		return
	}
	for ; ctx.Err() == nil; w.wait(ctx, lagEvery) {
		w.readLag(ctx, false)
	}
}

// misled reports whether a look at the group's offsets came before the faults were over, and somebody had set them
// elsewhere, or a log was cut, which may have lost the step that set them.
func (w *world) misled(l witness.Lag) bool {
	set, over := false, time.Time{}
	for _, f := range w.faults {
		set = set || f.Kind == logCut || f.Kind == offsetsMoved
		if f.To.After(over) {
			over = f.To
		}
	}
	return set && l.Asked.Before(over.Add(settle))
}

// readLag reads the group's offsets and the ends of the request log, as Kafka's tools do. At rest instances say the
// same as these: otherwise their word is of another moment.
func (w *world) readLag(ctx context.Context, rest bool) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	l := witness.Lag{Asked: time.Now(), Requests: requests, Reported: -1}
	offsets, err := w.admin.FetchOffsets(ctx, group)
	if err != nil {
		return
	}
	ends, err := w.admin.ListCommittedOffsets(ctx, requests)
	if err != nil {
		return
	}
	l.Given = time.Now()
	owners := w.owners()
	for n := range int32(partitions) {
		at, ok := offsets.Lookup(requests, n)
		end, has := ends.Lookup(requests, n)
		if l.Partition, l.Position, l.End = n, at.At, end.Offset; ok && has && at.Err == nil && end.Err == nil {
			if owner := owners[n]; rest && owner != nil {
				l.Reported = owner.Status().Behind
			}
			w.mu.Lock()
			w.lags = append(w.lags, l)
			w.mu.Unlock()
		}
	}
}

// ahead returns by how many ms an instance's clock was ahead at most.
func ahead(readings []history.Reading) (ms int64) {
	for _, r := range readings {
		ms = max(ms, r.Shows-r.At.UnixMilli())
	}
	return ms
}
