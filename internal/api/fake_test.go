package api_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

// fake is a cluster without Kafka. It has owners that handle requests with the real judge and
// state machine, and knows the owners of partitions.
type fake struct {
	mu    sync.Mutex // guards all fields below
	parts map[timer.TopicPartition]*fakePartition
	// owner maps partitions to the process IDs of their owners; "" means none.
	owner map[timer.TopicPartition]string
	urls  map[string]string // of the APIs of instances, by process
	// lose makes owners lose a partition between writing and deciding. refuse makes Kafka refuse
	// what is written, and unknown makes the answer to a write be lost.
	lose, refuse, unknown bool
	// unjudged has instances write requests that owners reject, as an instance with other settings does.
	unjudged bool
	// delayRules judge the records of the fixed-delay topic.
	delayRules api.Rules
	may        func(ctx context.Context, role access.Role, topic, id string) error // nil: all
	deferred   []route.DeferredTarget                                              // what each instance reports
	missing    []route.MissingCalendar
}

type fakePartition struct {
	rules   *intake.Rules
	at      timer.TopicPartition
	next    int64
	pending map[string]*timer.Timer
	decided map[int64]query.Decision
}

func newFake(topic string, partitions int32) *fake {
	f := &fake{parts: make(map[timer.TopicPartition]*fakePartition), owner: make(map[timer.TopicPartition]string),
		urls: make(map[string]string)}
	rules := &intake.Rules{
		Topic: topic, Changelog: topic + ".waterclock.changelog", Partitions: partitions,
		Limits: intake.DefaultLimits(),
		Allow:  func(topic string) bool { return topic != "forbidden" }, Never: func(string) string { return "" },
	}
	rules.Limits.ValueBytes, rules.Limits.RecordBytes = 1000, 1<<20
	for p := range partitions {
		at := timer.TopicPartition{Topic: topic, Partition: p}
		f.parts[at] = &fakePartition{rules: rules, at: at, pending: make(map[string]*timer.Timer),
			decided: make(map[int64]query.Decision)}
		f.owner[at] = "p0"
	}
	return f
}

// judge implements api.Rules with the rules of the fake's owners.
type judge struct{ rules *intake.Rules }

func (j judge) Reject(partition int32, r *route.Request) *timer.Refusal {
	_, _, refused := j.rules.Validate(recordOf(j.rules.Topic, partition, r), time.Now().UnixMilli())
	return refused
}

// rules returns the rules by which calls are judged before they are written; nil if the fake has none.
func (f *fake) rules() api.Rules {
	if f.unjudged {
		return nil
	}
	for at, p := range f.parts {
		if at.Topic == "timers" {
			return judge{p.rules}
		}
	}
	return nil
}

// written returns how many requests are in the log.
func (f *fake) written() (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.parts {
		n += p.next
	}
	return n
}

func recordOf(topic string, partition int32, r *route.Request) *kgo.Record {
	rec := &kgo.Record{Topic: topic, Partition: partition, Key: r.ID, Value: r.Value, Timestamp: time.Now()}
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return rec
}

// Owners implements route.Directory.
func (f *fake) Owners(context.Context) (map[timer.TopicPartition]route.Owner, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[timer.TopicPartition]route.Owner)
	for at, process := range f.owner {
		if process != "" {
			all[at] = route.Owner{Process: process, API: f.urls[process]}
		}
	}
	return all, nil
}

// local is an instance of the fake. It implements route.Local.
type local struct {
	f       *fake
	process string
}

func (l *local) Owned(at timer.TopicPartition) route.Partition {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	if l.f.owner[at] != l.process {
		return nil
	}
	return &answering{l, l.f.parts[at]}
}

func (l *local) Strays(topic string) (strays []route.Partition) {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	for at, p := range l.f.parts {
		for id := range p.pending {
			if at.Topic == topic && l.f.owner[at] == l.process &&
				intake.Murmur2Partition([]byte(id), p.rules.Partitions) != at.Partition {
				strays = append(strays, &answering{l, p})
				break
			}
		}
	}
	return strays
}

func (l *local) Status() route.Instance {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	s := route.Instance{Name: l.process, API: l.f.urls[l.process], Member: true}
	for at, process := range l.f.owner {
		if process == l.process {
			s.Partitions = append(s.Partitions, route.PartitionStatus{Topic: at.Topic, Partition: at.Partition,
				State: "live", Pending: int64(len(l.f.parts[at].pending))})
		}
	}
	s.Deferred, s.MissingCalendars = slices.Clone(l.f.deferred), slices.Clone(l.f.missing)
	return s
}

func (l *local) Produce(_ context.Context, at timer.TopicPartition, requests []route.Request) []route.Written {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	written := make([]route.Written, len(requests))
	for i, r := range requests {
		if !l.f.refuse {
			written[i].Offset = l.f.parts[at].take(&r)
		}
		if l.f.refuse || l.f.unknown {
			written[i] = route.Written{Offset: -1, Unknown: l.f.unknown, Problem: "the broker is not well"}
		}
	}
	return written
}

func (f *fakePartition) take(r *route.Request) int64 {
	offset := f.next
	f.next++
	rec := recordOf(f.at.Topic, f.at.Partition, r)
	rec.Offset = offset
	req, _, refused := f.rules.Validate(rec, time.Now().UnixMilli())
	if refused != nil {
		f.decided[offset] = query.Decision{Outcome: "rejected", Reason: refused.Reason, Detail: refused.Detail}
		return offset
	}
	is := f.pending[string(r.ID)]
	e := req.Apply(is.Ref(), is)
	if e.After == nil {
		delete(f.pending, string(r.ID))
	} else {
		f.pending[string(r.ID)] = e.After
	}
	names := map[timer.Outcome]string{
		timer.Scheduled: "scheduled", timer.Replaced: "replaced", timer.Cancelled: "cancelled",
		timer.NotFound: "not-found", timer.Triggered: "triggered", timer.Paused: "paused", timer.Resumed: "resumed",
		timer.Unmet: "condition-not-met", timer.Unchanged: "unchanged", timer.Moved: "moved",
	}
	f.decided[offset] = query.Decision{Outcome: names[e.Outcome], Pending: f.show(e.After)}
	return offset
}

func (f *fakePartition) show(t *timer.Timer) *query.Timer {
	if t == nil {
		return nil
	}
	q := &query.Timer{Timer: t, Topic: f.at.Topic, Partition: f.at.Partition, State: query.Pending,
		Source: waterclock.Source{Topic: f.at.Topic, Partition: f.at.Partition, Offset: t.Offset}.String()}
	switch {
	case t.IsRemembered():
		q.State, q.Source = query.Remembered, waterclock.Source{Topic: f.at.Topic, Partition: f.at.Partition,
			Offset: t.Ref().Generation()}.String()
	case t.IsTriggered():
		q.State = query.Triggered
	case t.IsPaused():
		q.State = query.Paused
	}
	return q
}

// answering is a partition that an instance owns, or owned when it was asked for.
type answering struct {
	l *local
	p *fakePartition
}

func (a *answering) lock() error {
	a.l.f.mu.Lock()
	if a.l.f.owner[a.p.at] != a.l.process {
		a.l.f.mu.Unlock()
		return route.ErrMoving
	}
	return nil
}

func (a *answering) Get(_ context.Context, id []byte) (*query.Timer, error) {
	if err := a.lock(); err != nil {
		return nil, err
	}
	defer a.l.f.mu.Unlock()
	return a.p.show(a.p.pending[string(id)]), nil
}

// List reads only three timers more than the page may have, so pages may be short, like real
// ones.
func (a *answering) List(_ context.Context, page query.Page) (query.List, error) {
	if err := a.lock(); err != nil {
		return query.List{}, err
	}
	defer a.l.f.mu.Unlock()
	var all []*query.Timer
	for _, t := range a.p.pending {
		q := a.p.show(t)
		if place := query.CursorOf(page.Order, q); page.After.IsZero() || place.Compare(page.After) > 0 {
			all = append(all, q)
		}
	}
	slices.SortFunc(all, func(x, y *query.Timer) int {
		return query.CursorOf(page.Order, x).Compare(query.CursorOf(page.Order, y))
	})
	var l query.List
	for i, q := range all {
		if len(l.Timers) == page.Limit || i == page.Limit+3 {
			l.Next = query.CursorOf(page.Order, all[i-1])
			break
		}
		if page.Filter.Match(q) {
			l.Timers = append(l.Timers, q)
		}
	}
	return l, nil
}

func (a *answering) Count(_ context.Context, f query.Filter, limit int) (query.Count, error) {
	if err := a.lock(); err != nil {
		return query.Count{}, err
	}
	defer a.l.f.mu.Unlock()
	n := query.Count{Exact: true}
	looked := 0
	for _, t := range a.p.pending {
		if looked++; limit > 0 && looked > limit {
			n.Exact = false
			break
		}
		if f.Match(a.p.show(t)) {
			n.N++
		}
	}
	return n, nil
}

func (a *answering) CountUntil(_ context.Context, f query.Filter, until []int64) ([]query.Count, error) {
	if err := a.lock(); err != nil {
		return nil, err
	}
	defer a.l.f.mu.Unlock()
	counts := make([]query.Count, len(until))
	for i, at := range until {
		counts[i].Exact = true
		for _, t := range a.p.pending {
			if ref := t.Ref(); ref.Due < at && f.Match(a.p.show(t)) {
				counts[i].N++
			}
		}
	}
	return counts, nil
}

func (a *answering) Watch() (route.Watch, error) {
	if err := a.lock(); err != nil {
		return nil, err
	}
	defer a.l.f.mu.Unlock()
	return a, nil
}

func (a *answering) Decision(_ context.Context, offset int64) (query.Decision, error) {
	a.l.f.mu.Lock()
	defer a.l.f.mu.Unlock()
	if a.l.f.lose {
		return query.Decision{}, route.ErrMoving
	}
	d, ok := a.p.decided[offset]
	if !ok {
		return d, errors.New("no such request")
	}
	return d, nil
}

func (a *answering) Close() {}

func (a *answering) Explain(err error) error { return err }

// fire fires everything that is pending, which may then be remembered, and forgets what was
// remembered before.
func (f *fake) fire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.parts {
		for id, t := range p.pending {
			if p.pending[id] = t.Ended(time.Now().UnixMilli()); p.pending[id] == nil {
				delete(p.pending, id)
			}
		}
	}
}

// all returns the pending timers by due time.
func (f *fake) all() (all []*query.Timer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.parts {
		for _, t := range p.pending {
			all = append(all, p.show(t))
		}
	}
	slices.SortFunc(all, func(x, y *query.Timer) int {
		return cmp.Or(cmp.Compare(x.Due, y.Due), bytes.Compare(x.ID, y.ID))
	})
	return all
}

// move gives a partition to another instance, or to none.
func (f *fake) move(at timer.TopicPartition, process string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owner[at] = process
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func place(t testing.TB, topic, id string, partitions int32) timer.TopicPartition {
	t.Helper()
	return timer.TopicPartition{Topic: topic, Partition: intake.Murmur2Partition([]byte(id), partitions)}
}

// emptyLogs are topics of one partition without records. It implements api.Logs.
type emptyLogs struct{}

func (emptyLogs) Bounds(context.Context, string) (map[int32][2]int64, error) {
	return map[int32][2]int64{0: {0, 0}}, nil
}

func (emptyLogs) Since(context.Context, string, time.Time) (map[int32]int64, error) {
	return nil, nil
}

func (emptyLogs) Read(context.Context, string, map[int32][2]int64, func(*api.Record) error) error {
	return nil
}

func (emptyLogs) Follow(ctx context.Context, _ string, _ api.Position, fn func(*api.Record) error) error {
	if err := fn(nil); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (f *fake) allows(ctx context.Context, role access.Role, topic, id string) error {
	f.mu.Lock()
	may := f.may
	f.mu.Unlock()
	if may == nil {
		return nil
	}
	return may(ctx, role, topic, id)
}

func (f *fake) some(ctx context.Context, role access.Role, topic string) error {
	return f.allows(ctx, role, topic, "")
}
