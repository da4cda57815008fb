package audit

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/audit/observe"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
)

const (
	// fetchBytes is how much one fetch asks for. Its records take at most pageBytes at a time.
	fetchBytes, pageBytes = 256 << 10, 8 << 20
	// cutAge is the maximum age of the end to which a changelog is read. A record below it may be compacted away once a
	// later one of its key is min.compaction.lag.ms old: 15 minutes, and the service warns if it is less than one.
	cutAge = 30 * time.Second
	// logAppendTime is a record's timestamp type (message.timestamp.type).
	logAppendTime = 1
)

// reader reads logs into the spill.
type reader struct {
	*planner
	sorter   *sorter
	clients  []*kgo.Client
	progress func(stage string, done, total int64)
	done     atomic.Int64 // offsets of the stage
}

// each calls do for 0 to n-1, several at a time, until one fails.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers())
	for i := range n {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return do(ctx, i)
		})
	}
	return g.Wait()
}

// readAll reads the logs of a stage.
func (r *reader) readAll(ctx context.Context, stage int) error {
	jobs := r.plan.Stages[stage]
	total := int64(0)
	for _, j := range jobs {
		total += j.To - j.From
	}
	r.done.Store(0)
	return each(ctx, len(jobs), func(ctx context.Context, i int) error {
		return r.read(ctx, r.clients[i%len(r.clients)], stage, &jobs[i], total)
	})
}

// read reads the rest of a range. Each batch of facts contains the position after it.
func (r *reader) read(ctx context.Context, cl *kgo.Client, stage int, j *logRange, total int64) error {
	at := j.From
	value, err := r.spill.get(positionKey(stage, j.Log))
	if err != nil {
		return err
	}
	if len(value) == 8 { // an audit that was interrupted has read so far
		at = int64(binary.BigEndian.Uint64(value))
	}
	r.done.Add(at - j.From)
	take, err := r.sorter.writerFor(stage, j.Log.Topic)
	if err != nil {
		return err
	}
	log := partlog.NewReader(cl, partlog.Log{Topic: j.Log.Topic, Partition: j.Log.Partition}, at)
	log.SetMaxBytes(fetchBytes)
	log.SetMaxUnpacked(partlog.MaxUnpacked)
	log.SetRoom(pageBytes)
	log.SetCompacted(stage == cutStage || stage == afterStage)
	for asked := r.plan.Began; ; {
		if err := r.readTo(ctx, log, stage, j, take, total); err != nil {
			return r.without(stage, j, err)
		}
		if stage != cutStage || time.Since(asked) < cutAge {
			return nil
		}
		asked = time.Now()
		log.SetPosition(min(log.Position(), j.To)) // the last fetch may have gone beyond it
		if err := r.cut(ctx, j); err != nil {
			return err
		}
		r.plan.cutAt(asked)
	}
}

// readTo reads a log to the end of its job.
func (r *reader) readTo(ctx context.Context, log *partlog.Reader, stage int, j *logRange,
	take func(*pebble.Batch, *kgo.Record) error, total int64) error {
	from := log.Position()
	for page, err := range log.To(ctx, j.To) {
		if err := r.tooOld(stage, j); err != nil {
			return err
		}
		var gone *partlog.OutOfRangeError
		if errors.As(err, &gone) && gone.LogStart > from {
			from = min(gone.LogStart, j.To)
			log.SetPosition(from)
			r.deleted(stage, j, from)
			continue
		}
		if bad := (*partlog.Unreadable)(nil); errors.As(err, &bad) && stage != cutStage && stage != afterStage {
			// Not written by the service. A batch of a request topic has a dead letter.
			r.plan.note("%s/%d: %v, its contents are unknown", j.Log.Topic, j.Log.Partition, bad)
			from = min(bad.Next, j.To)
			log.SetPosition(from)
			continue
		}
		if err != nil {
			return err
		}
		b := r.spill.db.NewBatch()
		noted := false
		for _, rec := range page.Records {
			if rec.Offset >= j.To {
				break
			}
			if !j.Noted && tells(stage, j, rec) {
				r.begins(stage, j, rec)
				noted = true
			}
			if err := take(b, rec); err != nil {
				return errors.Join(err, b.Close())
			}
		}
		to := min(log.Position(), j.To)
		if err := errors.Join(b.Set(positionKey(stage, j.Log), binary.BigEndian.AppendUint64(nil, uint64(to)), nil),
			r.commit(b, noted)); err != nil {
			return fmt.Errorf("spill: %w", err)
		}
		r.progress(stageNames[stage], r.done.Add(to-from), total)
		from = to
	}
	if j.Noted {
		return nil
	}
	r.begins(stage, j, nil)
	return r.commit(r.spill.db.NewBatch(), true)
}

// commit commits a batch of facts. If the plan has changed with them, it is in the batch, so an audit that continues
// knows both or neither.
func (r *reader) commit(b *pebble.Batch, planned bool) error {
	if !planned {
		return b.Commit(pebble.NoSync)
	}
	r.plan.mu.Lock()
	defer r.plan.mu.Unlock()
	text, err := json.Marshal(r.plan)
	return errors.Join(err, b.Set(planKey(), text, nil), b.Commit(pebble.NoSync))
}

// deleted notes that retention has deleted records of a log before they were read.
func (r *reader) deleted(stage int, j *logRange, to int64) {
	r.plan.mu.Lock()
	defer r.plan.mu.Unlock()
	j.Cut, j.Noted = true, false
	if stage == requestStage {
		j.From = to
	}
}

// without returns nil if the audit can do without a log that it has no permission to read.
func (r *reader) without(stage int, j *logRange, err error) error {
	var answer *kerr.Error
	if stage != outcomeStage || !errors.As(err, &answer) {
		return err
	}
	r.plan.unreadable(j.Log.Topic, err)
	return nil
}

// tooOld returns an error if compaction may have removed deletions that were written since the audit began.
func (r *reader) tooOld(stage int, j *logRange) error {
	i := slices.IndexFunc(r.topics, func(t Topic) bool { return t.Changelog == j.Log.Topic })
	if i < 0 || stage != cutStage && stage != afterStage {
		return nil
	}
	if keeps := r.topics[i].Keeps; keeps > 0 && time.Since(r.plan.Began) > keeps {
		return fmt.Errorf("the audit began at %s, and %s keeps deletions for %s (delete.retention.ms): begin again, "+
			"with another directory",
			r.plan.Began.Format(time.RFC3339), j.Log.Topic, keeps)
	}
	return nil
}

// tells reports whether the timestamp of a record says when it was written. Other programs that write to targets may
// choose any timestamp.
func tells(stage int, j *logRange, rec *kgo.Record) bool {
	return stage != outcomeStage || j.Young || rec.Attrs.TimestampType() == logAppendTime ||
		slices.ContainsFunc(rec.Headers, func(h kgo.RecordHeader) bool { return h.Key == waterclock.HeaderSource })
}

// begins notes that older records are missing from a log. first is the first record whose time tells; nil: none does.
func (r *reader) begins(stage int, j *logRange, first *kgo.Record) {
	at := time.Now()
	if first != nil {
		at = first.Timestamp
	}
	text, before := at.UTC().Format(time.RFC3339), at.Add(clockMargin)
	switch {
	case stage == outcomeStage && j.Cut && !before.Before(r.from):
		r.plan.unseen(j.Log.Topic, before.UnixMilli(), "%s/%d begins at %s, older records are gone",
			j.Log.Topic, j.Log.Partition, text)
	case stage == outcomeStage && j.Young && first != nil && at.After(r.plan.Oldest.Add(clockMargin)):
		r.plan.unseen(j.Log.Topic, before.UnixMilli(), "%s/%d has no events before %s", j.Log.Topic,
			j.Log.Partition, text)
	case stage == requestStage && j.Cut && !r.from.IsZero() && at.After(r.from):
		r.plan.note("requests of %s/%d before %s are gone: their fate is unknown", j.Log.Topic,
			j.Log.Partition, text)
	}
	r.plan.mu.Lock()
	defer r.plan.mu.Unlock()
	j.Noted = true
	if stage == requestStage && (r.plan.Oldest.IsZero() || at.Before(r.plan.Oldest)) {
		r.plan.Oldest = at
	}
}

// sorter puts the facts in records into the spill, under the ID that they are about.
type sorter struct{ topics []Topic }

// writerFor returns the function that puts a record of a topic into a batch.
func (s *sorter) writerFor(stage int, topic string) (func(*pebble.Batch, *kgo.Record) error, error) {
	for i := range s.topics {
		t := &s.topics[i]
		switch {
		case stage == cutStage && t.Changelog == topic:
			return func(b *pebble.Batch, rec *kgo.Record) error { return s.pending(b, t, rec) }, nil
		case stage == afterStage && t.Changelog == topic:
			return func(b *pebble.Batch, rec *kgo.Record) error { return s.moving(b, t, rec) }, nil
		case stage == requestStage && t.Name == topic:
			return func(b *pebble.Batch, rec *kgo.Record) error { return s.request(b, t, rec) }, nil
		case stage == outcomeStage && t.Letters == topic:
			return s.letter, nil
		case stage == outcomeStage && t.Events == topic:
			return s.event, nil
		}
	}
	if stage == outcomeStage {
		return s.emission, nil
	}
	return nil, fmt.Errorf("%s is not among the topics of the audit", topic)
}

// groupOf returns the ID under which a fact is kept. A fact without a valid ID is kept alone.
func groupOf(id string, source history.Place) string {
	if len(id) == 0 || len(id) > waterclock.MaxIDBytes {
		return source.String()
	}
	return id
}

func (s *sorter) request(b *pebble.Batch, t *Topic, rec *kgo.Record) error {
	// When the service read it is not known, so no horizon rejects it here: its dead letter tells.
	q := observe.Request(t.Rules, rec, math.MaxInt64/2, time.Time{})
	if q.Action == history.Poison && t.Lenient != nil {
		if q = observe.Request(t.Lenient, rec, math.MaxInt64/2, time.Time{}); q.Action != history.Poison {
			q.OtherSettings = true
		}
	}
	if q.Action == history.Schedules {
		if err := b.Set(targetKey(q.OtherSettings, q.Emits.Topic), nil, nil); err != nil {
			return err
		}
	}
	return b.Set(factKey(t.Name, groupOf(q.ID, q.Place), requestKind, q.Place), encode((*codec).request, q), nil)
}

// audited returns the request topic of a source, which may be in its changelog; nil: not audited.
func (s *sorter) audited(source history.Place) *Topic {
	i := slices.IndexFunc(s.topics, func(t Topic) bool { return source.Topic == t.Name || source.Topic == t.Changelog })
	if i < 0 {
		return nil
	}
	return &s.topics[i]
}

func (s *sorter) emission(b *pebble.Batch, rec *kgo.Record) error {
	e, err := observe.Emission(rec, time.Time{})
	if t := s.audited(e.Source); err == nil && t != nil && !t.former(&e) { // targets have other writers
		return b.Set(factKey(t.Name, groupOf(e.ID, e.Source), emissionKind, e.Place), encode((*codec).emission, e), nil)
	}
	return nil
}

// former reports whether an emission is of a topic of the same name that was deleted: waterclock-event has the topic's
// ID.
func (t *Topic) former(e *history.Emission) bool {
	text, _, _ := strings.Cut(e.Event, ".")
	id, err := base64.RawURLEncoding.DecodeString(text)
	return err == nil && len(id) == len(t.ID) && e.Source.Topic == t.Name && t.ID != [16]byte{} &&
		!bytes.Equal(id, t.ID[:])
}

func (s *sorter) letter(b *pebble.Batch, rec *kgo.Record) error {
	l, err := observe.Letter(rec, time.Time{})
	if t := s.audited(l.Source); err == nil && t != nil { // the topic may be shared
		return b.Set(factKey(t.Name, groupOf(l.ID, l.Source), letterKind, l.Place), encode((*codec).letter, l), nil)
	}
	return nil
}

func (s *sorter) event(b *pebble.Batch, rec *kgo.Record) error {
	e, err := observe.Event(rec, time.Time{})
	if err != nil {
		return err
	}
	source := e.Source
	if source.Topic == "" {
		source = e.Request
	}
	t := s.audited(source)
	if t == nil {
		return nil
	}
	return b.Set(factKey(t.Name, groupOf(e.Event.ID, source), eventKind, e.Place), encode((*codec).event, e), nil)
}

// pending applies a record of a changelog to the pending timers.
func (s *sorter) pending(b *pebble.Batch, t *Topic, rec *kgo.Record) error {
	c, err := observe.Change(t.Name, rec, time.Time{})
	if err != nil {
		return err
	}
	switch {
	case c.Kind == history.Claim && c.Step == "": // only a claim's last record has the step
		return nil
	case c.Kind != history.TimerChange:
		return b.Set(stepKey(history.Log{Topic: t.Name, Partition: c.Partition}, c.Offset),
			encode((*codec).step, c), nil)
	}
	key := factKey(t.Name, c.ID, pendingKind, history.Place{Topic: t.Changelog, Partition: c.Partition})
	if c.Timer == nil {
		return b.Delete(key, nil)
	}
	return b.Set(key, encode((*codec).timer, *c.Timer), nil)
}

// moving notes an ID to which something happened after the cut.
func (s *sorter) moving(b *pebble.Batch, t *Topic, rec *kgo.Record) error {
	c, err := observe.Change(t.Name, rec, time.Time{})
	if err != nil || c.Kind != history.TimerChange {
		return err
	}
	return b.Set(factKey(t.Name, c.ID, movingKind, history.Place{Topic: t.Changelog, Partition: c.Partition}), nil, nil)
}
