package waterclocktest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/client"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// maxMessage is max.message.bytes of each topic.
	maxMessage = 1 << 20
	// process is the ID of the only instance.
	process = "test"
)

// Options of a Server.
type Options struct {
	// Topics are the request topics: timers, if there are none.
	Topics []string
	// Start is the time at which the clock starts; zero: now.
	Start time.Time
	// Allow reports whether requests may name a target; nil: any.
	Allow func(target string) bool
	// Around wraps the API, for example to fail some calls; nil: nothing does.
	Around func(http.Handler) http.Handler
}

// Firing is a record that a timer has written to its target.
type Firing struct {
	waterclock.Emission
	Record *kgo.Record
}

// Server is a waterclock in memory. It is safe for concurrent use.
type Server struct {
	URL string // of its API

	api  *api.API
	http *httptest.Server

	mu     sync.Mutex        // guards all below
	now    int64             // Unix ms
	began  int64             // now at the start
	served map[string]*topic // the request topics
	logs   map[string]*log
	fired  []Firing
}

// topic is a request topic.
type topic struct {
	rules   *intake.Rules
	letters topics.Topic
	next    int64 // offset of the next request
	pending map[string]*timer.Timer
	decided map[int64]decision
}

// decision is the outcome of a request.
type decision struct {
	outcome timer.Outcome
	refused *timer.Refusal
	after   *timer.Timer
}

// New starts a server that ends with the test.
func New(t testing.TB, o Options) *Server {
	t.Helper()
	s := Start(o)
	t.Cleanup(s.Close)
	return s
}

// Start starts a server outside of a test, for example in TestMain or an Example. The caller has to close it.
func Start(o Options) *Server {
	if o.Start.IsZero() {
		o.Start = time.Now()
	}
	if o.Topics == nil {
		o.Topics = []string{"timers"}
	}
	if o.Allow == nil {
		o.Allow = func(string) bool { return true }
	}
	s := &Server{now: o.Start.UnixMilli(), began: o.Start.UnixMilli(), served: make(map[string]*topic),
		logs: make(map[string]*log)}
	shown := make(map[string]api.Topic)
	for _, name := range o.Topics {
		q := &topic{
			rules: &intake.Rules{Topic: name, Partitions: 1, Limits: intake.DefaultLimits(), Allow: o.Allow,
				Never: func(target string) string {
					return topics.NeverTarget(target, slices.Contains(o.Topics, target), false)
				}},
			letters: topics.Topic{Name: topics.DeadLetters(name), Partitions: 1,
				MaxMessageBytes: maxMessage},
			pending: make(map[string]*timer.Timer), decided: make(map[int64]decision),
		}
		s.served[name] = q
		shown[name] = api.Topic{Partitions: 1, MaxBytes: maxMessage, DeadLetters: q.letters.Name,
			Events: topics.Events(name), Rules: judge{s, q.rules}}
		s.logs[q.letters.Name], s.logs[topics.Events(name)] = newLog(), newLog()
	}
	router := route.New(route.Options{Local: local{s}, Directory: local{s}, Process: process, MaxBody: maxMessage,
		May: func(context.Context, *route.Call) error { return nil }})
	s.api = api.New(api.Options{Version: "test", Process: process, Asker: router, Topics: shown, Logs: logs{s},
		Marks:       logs{s},
		PartitionOf: intake.Murmur2Partition, Logger: slog.New(slog.DiscardHandler), Now: s.Now})
	router.HaveJobs(s.api)
	handler := http.Handler(s.api)
	if o.Around != nil {
		handler = o.Around(handler)
	}
	s.http = httptest.NewServer(handler)
	s.URL = s.http.URL
	return s
}

// Close ends the server.
func (s *Server) Close() {
	s.api.Close()
	s.http.CloseClientConnections()
	s.http.Close()
}

// Client returns a client of the server.
func (s *Server) Client() *client.Client {
	c, err := client.New(client.Options{URLs: []string{s.URL}, HTTP: s.http.Client()})
	if err != nil {
		panic(err) // the URL is right
	}
	return c
}

// Now returns the time of the server's clock.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.UnixMilli(s.now).UTC()
}

// Advance moves the clock, fires all that is due by then, each at its time, and returns it in the order of firing.
func (s *Server) Advance(by time.Duration) []Firing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.advance(s.now + by.Milliseconds())
}

// AdvanceTo moves the clock to a time, as Advance does. The clock never goes back.
func (s *Server) AdvanceTo(at time.Time) []Firing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.advance(max(s.now, at.UnixMilli()))
}

// AdvanceToNext moves the clock to the next time at which a timer is due, and returns the firings of that time: none,
// if no timer will fire. A timer that has expired, or is forgotten, counts as one that fires.
func (s *Server) AdvanceToNext() []Firing {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, t := s.next(); t != nil {
		return s.advance(max(s.now, t.FiresAt()))
	}
	return nil
}

// Fired returns all that has fired so far.
func (s *Server) Fired() []Firing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.fired)
}

// ProduceSync takes requests as Kafka does, so the server is a [client.Producer], too.
func (s *Server) ProduceSync(_ context.Context, rs ...*kgo.Record) (results kgo.ProduceResults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rec := range rs {
		q := s.served[rec.Topic]
		if q == nil {
			results = append(results, kgo.ProduceResult{Record: rec, Err: fmt.Errorf("no request topic %s", rec.Topic)})
			continue
		}
		if rec.Timestamp.IsZero() {
			rec.Timestamp = time.UnixMilli(s.now)
		}
		rec.Partition, rec.Offset = 0, q.next
		s.take(q, rec)
		results = append(results, kgo.ProduceResult{Record: rec})
	}
	return results
}

var _ client.Producer = (*Server)(nil)

// take decides a request, and fires the timers that are due by it.
func (s *Server) take(q *topic, rec *kgo.Record) {
	q.next++
	req, _, refused := q.rules.Validate(rec, s.now)
	if refused != nil {
		q.decided[rec.Offset] = decision{outcome: timer.Refused, refused: refused}
		s.reject(q, wire.DeadRequest(&q.letters, rec, refused))
		s.tell(q, wire.Event{Type: waterclock.EventRejected, ID: rec.Key, At: s.now, Source: q.source(rec.Offset),
			Reason: refused.Reason, Detail: refused.Detail, Unknown: true})
		return
	}
	e := planner.Decide(q.rules.Schedules(), &req, q.pending[string(req.ID)])
	q.decided[rec.Offset] = decision{outcome: e.Outcome, after: e.After}
	s.apply(q, &e, nil)
	s.advance(s.now)
}

// apply makes an entry the state, and tells of it. emission is its record, nil for none.
func (s *Server) apply(q *topic, e *timer.Entry, emission *kgo.Record) {
	if q.pending[string(e.ID)] = e.After; e.After == nil {
		delete(q.pending, string(e.ID))
	}
	ev, happened := wire.EventOf(e, e.Outcome, s.now, q.source)
	if emission != nil {
		ev.Partition, ev.Emission = emission.Partition, emission.Headers[len(emission.Headers)-1].Value
	}
	if happened {
		s.tell(q, ev)
	}
}

// tell writes an event.
func (s *Server) tell(q *topic, ev wire.Event) {
	s.logs[topics.Events(q.rules.Topic)].append(s.now, &kgo.Record{Key: wire.EventKey(ev.ID), Value: ev.AppendTo(nil)})
}

// reject writes a dead letter.
func (s *Server) reject(q *topic, letter *kgo.Record) { s.logs[q.letters.Name].append(s.now, letter) }

func (t *topic) source(generation int64) waterclock.Source {
	offset := timer.Ref{Offset: generation}.Generation()
	return waterclock.Source{Topic: t.rules.Topic, Partition: 0, Offset: offset}
}

// next returns the timer that fires next; nil if none does before somebody steers it.
func (s *Server) next() (of *topic, first *timer.Timer) {
	for _, q := range s.served {
		for _, t := range q.pending {
			switch {
			case t.Ref().Compare(timer.BelowPaused) > 0:
			case first == nil, cmp.Or(t.Ref().Compare(first.Ref()), cmp.Compare(q.rules.Topic, of.rules.Topic)) < 0:
				of, first = q, t
			}
		}
	}
	return of, first
}

// advance moves the clock, and fires one timer after the other.
func (s *Server) advance(to int64) []Firing {
	before := len(s.fired)
	for {
		q, t := s.next()
		if t == nil || t.FiresAt() > to {
			s.now = to
			return slices.Clone(s.fired[before:])
		}
		s.now = max(s.now, t.FiresAt())
		e := planner.Occur(q.rules.Schedules(), t, s.now, s.began)
		var emission *kgo.Record
		if e.Emit != nil {
			emission = s.emit(q, e.Emit)
		}
		s.apply(q, &e, emission)
	}
}

// emit writes the emission of a timer.
func (s *Server) emit(q *topic, t *timer.Timer) *kgo.Record {
	rec := &kgo.Record{Topic: t.Target.Topic, Partition: max(0, t.Target.Partition), Key: t.Target.Key, Value: t.Value,
		Timestamp: time.UnixMilli(s.now)}
	for _, h := range t.Headers {
		rec.Headers = append(rec.Headers, kgo.RecordHeader(h))
	}
	own := func(key, value string) {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
	}
	n := strconv.FormatInt(t.FiresAs(), 10)
	event := fmt.Sprintf("test.0.%d.%s", t.Offset, n)
	if t.FiresAs() == 0 {
		event += "." + strconv.FormatInt(t.Steering.By, 10)
	}
	own(waterclock.HeaderID, string(t.ID))
	own(waterclock.HeaderDue, strconv.FormatInt(t.FiresAt(), 10))
	own(waterclock.HeaderOccurrence, n)
	own(waterclock.HeaderSource, q.source(t.Offset).String())
	own(waterclock.HeaderEvent, event)
	e, err := waterclock.ParseEmission(rec)
	if err != nil {
		panic(fmt.Sprintf("waterclocktest: an emission that cannot be read: %v", err))
	}
	for _, f := range slices.Backward(s.fired) {
		if f.Record.Topic == rec.Topic && f.Record.Partition == rec.Partition {
			rec.Offset = f.Record.Offset + 1
			break
		}
	}
	s.fired = append(s.fired, Firing{e, rec})
	return rec
}

// judge implements api.Rules: requests are judged before they are written.
type judge struct {
	s     *Server
	rules *intake.Rules
}

func (j judge) Reject(partition int32, r *route.Request) *timer.Refusal {
	rec := j.s.record(j.rules.Topic, partition, r)
	_, _, refused := j.rules.Validate(rec, rec.Timestamp.UnixMilli())
	return refused
}

// record returns a request as a record.
func (s *Server) record(topic string, partition int32, r *route.Request) *kgo.Record {
	rec := &kgo.Record{Topic: topic, Partition: partition, Key: r.ID, Value: r.Value, Timestamp: s.Now()}
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, kgo.RecordHeader(h))
	}
	return rec
}
