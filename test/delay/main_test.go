// Package delay holds what fixed-delay topics must show: instances as processes, killed,
// paused, moved and cut off, on a real broker, with plain clients around them.
package delay

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	// session is long enough for a member not to be dropped on a busy machine.
	session = 6 * time.Second
	// patience is how long something may take that must happen.
	patience = 60 * time.Second
	// quiet is how long nothing more must come, once everything has.
	quiet = time.Second
)

func TestMain(m *testing.M) {
	rig.PlayVictim()
	kafkatest.Main(m)
}

// setup is a fixed-delay topic, its target, and what users have: plain clients.
type setup struct {
	*testing.T
	c             *kafkatest.Cluster
	topic, target string
	delay         time.Duration
	partitions    int
	out, dead     *kafkatest.Collector
	cl            *kgo.Client

	mu   sync.Mutex // guards sent
	sent map[string]*kgo.Record
}

func newSetup(t *testing.T, c *kafkatest.Cluster, partitions, targets int32, delay time.Duration) *setup {
	t.Helper()
	w := &setup{T: t, c: c, delay: delay, partitions: int(partitions), sent: make(map[string]*kgo.Record)}
	w.topic = c.CreateTopic(t, partitions, nil)
	w.target = c.CreateTopic(t, targets, nil, w.topic+"-out")
	w.out = kafkatest.Collect(t, c, w.target)
	w.dead = kafkatest.Collect(t, c, w.topic+".waterclock.dead-letters")
	w.cl = c.Client(t)
	return w
}

// config is that of an instance with a directory of its own.
func (s *setup) config() *config.Config {
	cfg := rig.Config(s.T, s.c.Seeds(), s.topic)
	cfg.Requests = nil
	cfg.Delay = []config.DelayTopic{{Topic: s.topic, Delay: s.delay, Target: s.target}}
	cfg.SessionTimeout = session
	return cfg
}

func (s *setup) group() string { return "group-of-" + s.topic }

// start starts the binary.
func (s *setup) start() *rig.Process {
	s.Helper()
	return rig.Start(s.T, "serve", "--brokers", strings.Join(s.c.Seeds(), ","), "--delay",
		s.topic+":"+span.String(s.delay)+":"+s.target,
		"--targets", "*", "--group", s.group(), "--data-dir", s.TempDir(), "--session-timeout", session.String())
}

// record is the i-th of a name.
func (s *setup) record(name string, i int) *kgo.Record {
	return &kgo.Record{Topic: s.topic, Key: fmt.Appendf(nil, "%s-%d", name, i),
		Value:   fmt.Appendf(nil, "value of %s-%d", name, i),
		Headers: []kgo.RecordHeader{{Key: "user", Value: fmt.Appendf(nil, "%d", i)}, {Key: "user", Value: nil}}}
}

// produce sends a record and notes that it must come.
func (s *setup) produce(r *kgo.Record) {
	s.cl.Produce(s.Context(), r, func(r *kgo.Record, err error) {
		if err != nil {
			s.Errorf("send: %v", err)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sent[source(r)] = r
	})
}

func (s *setup) flush() {
	s.Helper()
	if err := s.cl.Flush(s.Context()); err != nil {
		s.Fatalf("send: %v", err)
	}
}

// send sends n records and returns when they are in the log.
func (s *setup) send(name string, n int) {
	s.Helper()
	for i := range n {
		s.produce(s.record(name, i))
	}
	s.flush()
}

// stream sends perSecond records a second until the function that it returns is called.
func (s *setup) stream(perSecond int) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(10 * time.Millisecond)
		defer t.Stop()
		for i, start := 0, time.Now(); ; {
			select {
			case <-end:
				return
			case <-t.C:
			}
			for ; i < int(time.Since(start).Seconds()*float64(perSecond)); i++ {
				s.produce(s.record("stream", i))
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(end)
		<-done
		s.flush()
	})
}

// trickle sends n records, evenly over some time, and does not wait for that.
func (s *setup) trickle(n int, over time.Duration) {
	const parts = 100
	go func() {
		for part := range parts {
			for i := part * n / parts; i < (part+1)*n/parts; i++ {
				s.produce(s.record("r", i))
			}
			await.For(s.T, over/parts)
		}
	}()
}

func source(r *kgo.Record) string { return fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset) }

func (s *setup) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sent)
}

// finish waits until all that was sent has come, and checks that each record came once,
// in order, not early, and as it was.
func (s *setup) finish(limit time.Duration) {
	s.Helper()
	s.out.WaitFor(s.count(), limit)
	s.out.Quiet(quiet)
	wrong := 0
	complain := func(format string, args ...any) {
		if wrong++; wrong <= 10 {
			kafkatest.Inexact(s, format, args...)
		}
	}
	came, last := make(map[string]bool), make(map[string]int64)
	for _, r := range s.out.Records() {
		from := r.Header("waterclock-source")
		sent := s.sent[from]
		switch {
		case sent == nil:
			complain("record %s/%d/%d comes from %q, which nobody sent", r.Topic, r.Partition, r.Offset, from)
			continue
		case came[from]:
			complain("%s came twice", from)
		}
		came[from] = true
		if err := s.compare(sent, &r); err != nil {
			complain("%s: %v", from, err)
		}
		way := fmt.Sprint(sent.Partition, " to ", r.Partition)
		if before, ok := last[way]; ok && before >= sent.Offset {
			complain("%s came behind offset %d", from, before)
		}
		last[way] = sent.Offset
	}
	for from := range s.sent {
		if !came[from] {
			complain("%s did not come", from)
		}
	}
	s.Logf("%d records sent, %d came, %d wrong", len(s.sent), len(came), wrong)
}

// compare checks one record that came.
func (s *setup) compare(sent *kgo.Record, r *kafkatest.Received) error {
	due, err := strconv.ParseInt(r.Header("waterclock-due"), 10, 64)
	if err != nil {
		return err
	}
	if least := sent.Timestamp.UnixMilli() + s.delay.Milliseconds(); due < least {
		return fmt.Errorf("due at %d, its timestamp says %d", due, least)
	}
	if r.Timestamp.UnixMilli() < due || r.At.UnixMilli() < due {
		return fmt.Errorf("early: due at %d, written at %d, received at %d", due, r.Timestamp.UnixMilli(),
			r.At.UnixMilli())
	}
	if !bytes.Equal(r.Key, sent.Key) || !bytes.Equal(r.Value, sent.Value) || (r.Value == nil) != (sent.Value == nil) {
		return fmt.Errorf("key %q value %q, sent %q and %q", r.Key, r.Value, sent.Key, sent.Value)
	}
	if len(r.Headers) < len(sent.Headers) {
		return fmt.Errorf("headers %v, sent %v", r.Headers, sent.Headers)
	}
	for i, h := range sent.Headers {
		if got := r.Headers[i]; got.Key != h.Key || !bytes.Equal(got.Value, h.Value) {
			return fmt.Errorf("headers %v, sent %v", r.Headers, sent.Headers)
		}
	}
	if got := r.Header("waterclock-attempt"); got != "1" {
		return fmt.Errorf("attempt %q", got)
	}
	return nil
}

// deleteOffsets removes the group's offsets, once the group has no members.
func (s *setup) deleteOffsets() {
	s.Helper()
	adm := s.c.Admin(s.T)
	set := kadm.TopicsSet{}
	for p := range s.partitions {
		set.Add(s.topic, int32(p))
	}
	await.Until(s, patience, "offsets deleted", func() bool {
		resp, err := adm.DeleteOffsets(s.Context(), s.group(), set)
		if err == nil {
			err = resp.Error()
		}
		if err != nil && !errors.Is(err, kerr.GroupSubscribedToTopic) && !errors.Is(err, kerr.NonEmptyGroup) {
			s.Fatalf("delete offsets: %v", err)
		}
		return err == nil
	})
	at, err := adm.FetchOffsets(s.Context(), s.group())
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		s.Fatal(err)
	}
	if n := len(at[s.topic]); n > 0 {
		s.Fatalf("%d offsets are left", n)
	}
}
