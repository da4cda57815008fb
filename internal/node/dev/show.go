package dev

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/connect"
	"github.com/waterclock/waterclock/internal/node/policy"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// demoTopic is where the demo timers fire.
	demoTopic = "demo"
	demoCount = 3
	// demoPatience is how long the demo waits for its last emission.
	demoPatience = 10 * time.Second
	// showAtOnce is how many of the records that arrive together are printed. For the rest, only their number is
	// printed.
	showAtOnce = 20
	// showBytes is the length of the longest payload or ID that is printed.
	showBytes = 60
	// showNewTopics is how long it takes at most until a new topic is noticed.
	showNewTopics = time.Second
	// showFetchWait is how long a fetch waits for records. It is short, because a new topic has to wait for the next
	// fetch.
	showFetchWait = 250 * time.Millisecond
)

// show prints the addresses to use, and the outcomes of timers, as a plain read_committed consumer sees them.
type show struct {
	cfg      *config.Config
	program  string
	second   string // the file with the settings of a second instance
	listen   string // the address that the broker listens on, if clients need another one
	out      io.Writer
	registry *prometheus.Registry
	since    time.Time // older records are not shown
	http     atomic.Pointer[string]
	api      atomic.Pointer[string]
	demo     map[waterclock.Source]bool // requests of the demo; they were printed when they were sent
}

func (s *show) run(ctx context.Context) error {
	if err := s.awaitLive(ctx); err != nil {
		return err
	}
	s.greet()
	cl, err := s.consumer()
	if err != nil {
		return err
	}
	defer cl.Close()
	var expected map[waterclock.Source]bool
	if s.cfg.Demo {
		if expected, err = s.schedule(ctx, cl); err != nil {
			return err
		}
		s.demo = maps.Clone(expected)
	}
	patience, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	for len(expected) > 0 && patience.Err() == nil {
		s.print(cl.PollFetches(patience), expected)
	}
	if len(expected) > 0 && ctx.Err() == nil {
		fmt.Fprintf(s.out, "%d of the demo timers have not fired yet\n", len(expected))
	}
	if ctx.Err() == nil {
		s.help()
	}
	for ctx.Err() == nil {
		s.print(cl.PollFetches(ctx), nil)
	}
	return nil
}

// awaitLive waits until every partition is live, by the metrics. From then on no timer has to wait for the start.
func (s *show) awaitLive(ctx context.Context) error {
	for !s.live() {
		if !beats.Sleep(ctx, devPoll) {
			return ctx.Err()
		}
	}
	return nil
}

func (s *show) live() bool {
	all := 0.0
	for _, topic := range slices.Concat(s.cfg.Requests, s.cfg.DelayTopics()) {
		all += s.gauge("waterclock_partitions", "topic", topic)
	}
	return all > 0 && s.gauge("waterclock_partitions", "state", "live") == all
}

// gauge adds up the samples of a gauge whose label has the value.
func (s *show) gauge(name, label, value string) (sum float64) {
	families, _ := s.registry.Gather() // an error concerns only some of them
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == label && l.GetValue() == value {
					sum += m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}

func (s *show) greet() {
	at := s.cfg.Brokers[0]
	if s.listen != "" {
		at = s.listen + ", for clients " + at
	}
	fmt.Fprintf(s.out, "Kafka broker (embedded, for development only) on %s, data in %s\n", at, s.cfg.DataDir)
	if http := s.http.Load(); http != nil {
		fmt.Fprintf(s.out, "readiness and metrics on http://%[1]s/readyz and http://%[1]s/metrics\n", *http)
	}
	if api := s.api.Load(); api != nil {
		if s.cfg.Console {
			fmt.Fprintf(s.out, "console on %s/\n", *api)
		}
		fmt.Fprintf(s.out, "HTTP API on %[1]s, its description on %[1]s/docs\n", *api)
	}
	pending, elsewhere := 0.0, ""
	for _, topic := range s.cfg.Requests {
		pending += s.gauge("waterclock_pending_timers", "topic", topic)
		if s.gauge("waterclock_partitions", "topic", topic) < s.gauge("waterclock_topic_partitions", "topic", topic) {
			elsewhere = " on the partitions of this instance; another one has the others"
		}
	}
	if pending > 0 {
		fmt.Fprintf(s.out, "timers pending from earlier: %.0f%s\n", pending, elsewhere)
	}
	fmt.Fprintln(s.out)
}

func (s *show) help() {
	topic := ""
	if s.cfg.Requests[0] != "timers" {
		topic = " --topic " + s.cfg.Requests[0]
	}
	list := ""
	if api := s.api.Load(); api != nil {
		list = fmt.Sprintf("  %[1]s list --url %[2]s%[3]s\n  %[1]s watch --url %[2]s%[3]s\n", s.program, *api, topic)
	}
	fmt.Fprintf(s.out, `
Commands to try in another terminal:

  %[1]s schedule --brokers %[2]s%[3]s --id a1 --in 10s --to orders --value 'hello'
  %[1]s tail --brokers %[2]s orders
%[5]s  %[1]s cancel --brokers %[2]s%[3]s --id a1
  %[1]s topics --brokers %[2]s --requests %[4]s

Any Kafka client can do the same, on topic %[4]s. Topics are made on first use.
Consume targets with isolation.level=read_committed. Ctrl-C stops.
A second instance takes over half of the partitions: %[1]s serve --config %[6]s

`, s.program, s.cfg.Brokers[0], topic, s.cfg.Requests[0], list, s.second)
}

// consumer returns a client that reads all request topics, targets and dead letters from their start. print leaves out
// records from before s.since. The client cannot start at that time instead: kgo looks up an offset by timestamp with
// two requests, and would miss records that are committed between the two, such as the first emission to a new topic.
func (s *show) consumer() (*kgo.Client, error) {
	exclude := []string{`^__.*`, `.*\.waterclock\.(changelog|events)$`}
	return kgo.NewClient(
		kgo.SeedBrokers(s.cfg.Brokers...), kgo.ConsumeRegex(), kgo.ConsumeTopics(".*"),
		kgo.ConsumeExcludeTopics(exclude...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.MetadataMaxAge(showNewTopics), kgo.MetadataMinAge(connect.MetadataMinAge), kgo.FetchMaxWait(showFetchWait),
	)
}

// schedule sends the demo timers, and returns their requests.
func (s *show) schedule(ctx context.Context, cl *kgo.Client) (map[waterclock.Source]bool, error) {
	sent := make(map[waterclock.Source]bool)
	for i := 1; i <= demoCount; i++ {
		in := time.Duration(i) * time.Second
		id := fmt.Sprintf("demo-%d", i)
		rec, err := waterclock.Schedule(s.cfg.Requests[0], id, waterclock.After(in), waterclock.To(demoTopic),
			waterclock.Value(fmt.Appendf(nil, "hello %d", i)))
		if err != nil {
			return nil, err
		}
		r, err := cl.ProduceSync(ctx, rec).First()
		if err != nil {
			return nil, fmt.Errorf("schedule %s: %w", id, err)
		}
		sent[waterclock.Source{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}] = true
		fmt.Fprintf(s.out, "scheduled %s on topic %s, due in %s on topic %s\n", id, r.Topic, in, demoTopic)
	}
	return sent, nil
}

// print prints records, and removes their requests from expected.
func (s *show) print(fetches kgo.Fetches, expected map[waterclock.Source]bool) {
	now := time.Now()
	var lines []string
	fetches.EachRecord(func(r *kgo.Record) {
		if r.Timestamp.Before(s.since) {
			return
		}
		if slices.Contains(s.cfg.Requests, r.Topic) {
			lines = append(lines, s.requested(r, now)...)
			return
		}
		e, err := waterclock.ParseEmission(r)
		if err == nil {
			lines = append(lines, fired(r, e, now, expected[e.Source]))
			delete(expected, e.Source)
			return
		}
		if d, err := waterclock.ParseDeadLetter(r); err == nil &&
			(topics.IsOwn(r.Topic) || s.cfg.IsDeadLetters(r.Topic)) {
			lines = append(lines, fmt.Sprintf("refused   %s: %s: %s", readable(r.Key), d.Reason, d.Detail))
			delete(expected, d.Source)
		}
	})
	shown := lines[:min(len(lines), showAtOnce)]
	for line := range slices.Values(shown) {
		fmt.Fprintln(s.out, line)
	}
	if n := len(lines) - len(shown); n > 0 {
		fmt.Fprintf(s.out, "… and %d more\n", n)
	}
}

// requested returns the line for a request that the demo has not sent. A refused request has none: its dead letter is
// printed.
func (s *show) requested(r *kgo.Record, now time.Time) []string {
	if s.demo[waterclock.Source{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}] {
		return nil
	}
	req, _, refused := policy.Rules(s.cfg, topics.Set{Request: topics.Topic{Name: r.Topic}}).Validate(r,
		now.UnixMilli())
	counts := ""
	if req.If.Kind != timer.IfAlways {
		counts = ", if its condition holds"
	}
	switch {
	case refused != nil:
		return nil
	case req.Schedule == nil:
		verb := cmp.Or(map[timer.Steer]string{timer.Trigger: "trigger", timer.Pause: "pause", timer.Resume: "resume",
			timer.Move: "move"}[req.Steer], "cancel")
		return []string{fmt.Sprintf("%-9s %s on topic %s%s", verb, readable(r.Key), r.Topic, counts)}
	}
	due := "at once"
	if in := time.UnixMilli(req.Schedule.Due).Sub(now); in > 0 {
		due = "in " + span.String(in.Round(100*time.Millisecond))
	}
	return []string{fmt.Sprintf("scheduled %s on topic %s, due %s on topic %s%s", readable(r.Key), r.Topic, due,
		req.Schedule.Target.Topic, counts)}
}

// fired returns the line for an emission. It says when the emission was received only if watched is set, because
// otherwise the topic may have been noticed late.
func fired(r *kgo.Record, e waterclock.Emission, now time.Time, watched bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "fired     %s on topic %s: %s (emitted %s after it was due", readable([]byte(e.ID)), r.Topic,
		readable(r.Value),
		r.Timestamp.Sub(e.Due).Round(time.Millisecond))
	if watched {
		fmt.Fprintf(&b, ", received %s after", now.Sub(e.Due).Round(100*time.Microsecond))
	}
	return b.String() + ")"
}

// readable returns b as text: as it is, if that is harmless and fits in a line.
func readable(b []byte) string {
	switch text := string(b); {
	case b == nil:
		return "null"
	case len(b) > showBytes:
		return fmt.Sprintf("%d bytes", len(b))
	case text == "" || !utf8.Valid(b) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }):
		return strconv.Quote(text)
	default:
		return text
	}
}
