package calendars

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/metric"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

const (
	// lookEvery is how often a table looks for changes if CaughtUp is not called.
	lookEvery = time.Second
	// maxAbsence is how long a table may be behind and still read on. Later it reads everything again, because
	// compaction may have removed deletions: the topic keeps them for at least topics.MinDeleteRetention, which is
	// checked at the start of each instance.
	maxAbsence = topics.MinDeleteRetention / 2
	// ignoredEvery is how often the log names a record that is ignored.
	ignoredEvery = 10 * time.Second
	// goneAfter is how long brokers must have denied the topic before it counts as gone: one that has just started
	// denies topics that exist.
	goneAfter = 10 * time.Second
	// maxDelayed is how long before it was read a new record may say that it was written.
	maxDelayed = time.Minute
	// goneEvery is how often the log says that the topic is gone.
	goneEvery = time.Minute
)

// Options of a Table.
type Options struct {
	// Client lends its connections. It should not consume.
	Client   *kgo.Client
	Topic    string
	Logger   *slog.Logger
	Registry prometheus.Registerer // takes the metrics; nil: there are none
}

// Table follows the calendars of a group. It is safe for concurrent use.
//
// Run owns the reader, and makes each Set. Others read the last Set, or wait in CaughtUp for the end of a round: Run
// asks for the end of the log, and reads up to it.
type Table struct {
	o     Options
	set   atomic.Pointer[Set]
	ask   beats.Signal
	fixed bool // it has no log: see Of
	// goneAfter is that of the reader, which tests shorten.
	goneAfter time.Duration

	ignored      prometheus.Counter
	ignoredAgain beats.Reminder // only Run uses it
	goneAgain    beats.Reminder // only Run uses it

	mu      sync.Mutex // guards the fields below
	waiting []chan struct{}
	inSync  time.Time // when the last round ended
}

// New returns a table, which is empty until Run has read its log.
func New(o Options) *Table {
	t := &Table{o: o, ask: beats.NewSignal(), inSync: time.Now(), goneAfter: goneAfter}
	t.set.Store(newSet())
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	in := metric.In(o.Registry)
	t.ignored = in.Counter("waterclock_calendars_ignored_total",
		"Records on the topic of calendars that were ignored, because their name or their rules are wrong, or go "+
			"beyond a limit.")
	in.GaugeFunc("waterclock_calendars", "Exclusion calendars of the group.",
		func() float64 { return float64(t.Now().Len()) })
	in.GaugeFunc("waterclock_calendars_behind_seconds",
		"Seconds since this instance last knew all calendars; about 1 while brokers answer.", t.behind)
	return t
}

// Of returns a table without a log, for tests: its calendars have the given rules, and were put at the time 0.
func Of(rules map[string]string) (*Table, error) {
	t := New(Options{})
	t.fixed = true
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		if err := t.Change(name, []byte(rules[name]), 0); err != nil {
			return nil, fmt.Errorf("calendar %s: %w", name, err)
		}
	}
	return t, nil
}

// Change changes a table without a log, as a record with that time (Unix ms) would. nil deletes a calendar.
func (t *Table) Change(name string, text []byte, at int64) error {
	set := t.Now().clone()
	set.offset++
	if err := set.apply(name, text, at); err != nil {
		return err
	}
	t.set.Store(set)
	return nil
}

// Now returns the calendars as they are known now.
func (t *Table) Now() *Set { return t.set.Load() }

func (t *Table) behind() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fixed {
		return 0
	}
	return time.Since(t.inSync).Seconds()
}

// CaughtUp waits until Now has everything that was acknowledged on the topic before the call. While brokers do not
// answer it waits, until ctx ends.
//
// So an answered PUT of a calendar holds for every request that is written after it. The owner of the request's
// partition calls CaughtUp after it has fetched the request, and plans the request with Now afterwards. The answer to
// the PUT came before the request was written, hence before it was fetched, hence before this call; and the PUT was
// answered when all in-sync replicas had the record. The round that ends this call has begun after it, so it asks for
// an end of the log that includes the record, and reads up to there. The premise is that the broker that answers leads
// the partition: one that was deposed and does not know it yet, for a few seconds, tells an older end.
//
// Callers that arrive while a round is in progress wait for the next one, all of them for the same one.
func (t *Table) CaughtUp(ctx context.Context) error {
	if t.fixed {
		return ctx.Err()
	}
	done := make(chan struct{})
	t.mu.Lock()
	t.waiting = append(t.waiting, done)
	t.mu.Unlock()
	t.ask.Send()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		t.waiting = slices.DeleteFunc(t.waiting, func(c chan struct{}) bool { return c == done })
		return fmt.Errorf("read the calendars: %w", ctx.Err())
	}
}

// Run follows the log until ctx ends.
func (t *Table) Run(ctx context.Context) error {
	if t.fixed {
		<-ctx.Done()
		return nil
	}
	gone := false
	for ctx.Err() == nil {
		err := t.follow(ctx, gone)
		gone = errors.Is(err, partlog.ErrTopicGone)
		switch {
		case gone:
			t.logGone()
			t.wait(ctx)
		case err != nil && ctx.Err() == nil:
			t.o.Logger.Warn("cannot read calendars, trying again", "topic", t.o.Topic, "err", err)
			beats.Sleep(ctx, lookEvery)
		}
	}
	return nil
}

// logGone says that there is no topic: now and then if there are calendars, which may have been lost with it.
func (t *Table) logGone() {
	if n := t.Now().Len(); n > 0 && t.goneAgain.Due(goneEvery) {
		t.o.Logger.Error("calendar topic deleted, this instance keeps its calendars until it stops: put them again",
			"topic", t.o.Topic, "calendars", n)
	}
}

// wait waits for the next round.
func (t *Table) wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-t.ask:
	case <-time.After(lookEvery):
	}
}

// take returns the callers that wait for a round that begins now.
func (t *Table) take() []chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting := t.waiting
	t.waiting = nil
	return waiting
}

// answer ends a round. If it did not reach the end of the log, its callers wait for the next one.
func (t *Table) answer(waiting []chan struct{}, reached bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !reached {
		if t.waiting = append(t.waiting, waiting...); len(t.waiting) > 0 {
			t.ask.Send()
		}
		return
	}
	t.inSync = time.Now()
	for _, w := range waiting {
		close(w)
	}
}

// errAgain says that the log must be read from its start again.
var errAgain = errors.New("the log is read again")

// follow reads the log from its start, and stays at its end until the log must be read again. gone says that there was
// no topic just now.
func (t *Table) follow(ctx context.Context, gone bool) error {
	l := &reading{t: t, set: newSet(), r: partlog.NewReader(t.o.Client, partlog.Log{Topic: t.o.Topic}, 0)}
	l.r.SetCompacted(true)
	l.r.SetMaxUnpacked(partlog.MaxUnpacked)
	l.r.SetGoneAfter(t.goneAfter)
	if gone {
		l.r.SetGoneAfter(0)
	}
	for {
		waiting := t.take()
		err := l.round(ctx)
		t.answer(waiting, err == nil || errors.Is(err, partlog.ErrTopicGone))
		if errors.Is(err, errAgain) {
			return nil
		}
		if err != nil {
			return err
		}
		l.r.SetGoneAfter(t.goneAfter)
		t.wait(ctx)
	}
}

// reading is a log that is read from its start. Only Run uses it.
type reading struct {
	t     *Table
	r     *partlog.Reader
	set   *Set // the calendars that were read; published from the first end on
	epoch partlog.Epoch
	whole bool      // the end was reached, and set is published
	at    time.Time // when that was last
}

// round asks for the end of the log, and reads up to it.
//
// A log is cut only when another broker leads it, or the same one again, and then its leader epoch changes. So after
// such a change everything is read again: there is little of it.
func (re *reading) round(ctx context.Context) error {
	end, err := re.r.LastStable(ctx)
	if err != nil {
		return err
	}
	if re.whole && (re.r.Leader() != re.epoch || end < re.r.Position() || time.Since(re.at) > maxAbsence) {
		return errAgain
	}
	re.epoch = re.r.Leader()
	changed := false
	// Not Follow, which tries again: here a position beyond the log's end means that all must be read again, now.
	for first := true; first || re.r.Position() < end; first = false { // the first one fails if the topic was recreated
		page, err := re.r.Next(ctx, 0)
		if err != nil {
			if err = re.pass(err); err != nil {
				return err
			}
			continue
		}
		if len(page.Records) > 0 && !changed {
			changed, re.set = true, re.set.clone()
		}
		for _, rec := range page.Records {
			re.record(rec)
		}
	}
	if re.r.Leader() != re.epoch {
		return errAgain
	}
	re.at = time.Now()
	if !changed && re.whole {
		return nil
	}
	if !re.whole {
		re.set.since(re.t.Now(), re.at.UnixMilli())
		re.whole = true
	}
	re.t.set.Store(re.set)
	return nil
}

// pass goes on behind a batch that cannot be read. It returns other errors.
func (re *reading) pass(err error) error {
	if bad, ok := errors.AsType[*partlog.Unreadable](err); ok {
		re.ignore("", bad.First, bad)
		re.r.SetPosition(bad.Next)
		return nil
	}
	if out, ok := errors.AsType[*partlog.OutOfRangeError](err); ok {
		if re.whole || re.r.Position() >= out.LogStart {
			return errAgain
		}
		re.r.SetPosition(out.LogStart)
		return nil
	}
	return err
}

func (re *reading) record(rec *kgo.Record) {
	re.set.offset = rec.Offset + 1
	text := rec.Value
	if len(text) <= calendar.MaxRulesBytes {
		text = bytes.Clone(text) // the record shares the memory of its batch
	}
	if err := re.set.apply(string(rec.Key), text, re.changed(rec)); err != nil {
		re.ignore(string(rec.Key), rec.Offset, err)
	}
}

// changed returns when the record of a calendar was written, in Unix ms. A producer may name any time, and those
// between it and the present would be decided anew. So for a record that has just come, a time long ago is not
// believed.
func (re *reading) changed(rec *kgo.Record) int64 {
	at, now := rec.Timestamp.UnixMilli(), time.Now().UnixMilli()
	if at > now || re.whole && now-at > maxDelayed.Milliseconds() {
		return now
	}
	return at
}

// ignore counts and logs a record that cannot be a calendar.
func (re *reading) ignore(name string, offset int64, why error) {
	re.t.ignored.Inc()
	if re.t.ignoredAgain.Due(ignoredEvery) {
		re.t.o.Logger.Warn("invalid calendar record ignored, the previous version stays in effect",
			"topic", re.t.o.Topic, "offset", offset, "calendar", fmt.Sprintf("%.80q", name), "err", why)
	}
}

// Calendar implements calendar.Calendars.
func (t *Table) Calendar(name string) (rules *calendar.Exclusion, changed int64) {
	return t.Now().Calendar(name)
}

// Version changes with every change of a calendar.
func (t *Table) Version() int64 { return t.Now().Offset() }
