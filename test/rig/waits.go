package rig

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
)

// Shown is an instance as it shows itself over HTTP.
type Shown interface {
	Metric(name string, labels ...string) float64
	Live() int
	Readyz() (status int, body string)
}

var (
	_ Shown = (*Web)(nil)
	_ Shown = (*Instance)(nil)
	_ Shown = (*Process)(nil)
)

// Sum adds up a metric of several instances.
func Sum[S Shown](ins []S, metric string, labels ...string) (n float64) {
	for _, in := range ins {
		n += in.Metric(metric, labels...)
	}
	return n
}

// Serving reports whether the instances are ready and own n live partitions between them.
func Serving[S Shown](n int, ins ...S) bool {
	sum := 0
	for _, in := range ins {
		live := in.Live()
		if live < 0 {
			return false
		}
		sum += live
	}
	return sum == n
}

// Serve starts an instance and returns once it owns all partitions.
func (s *Setup) Serve(cfg *config.Config, o node.Options) *Instance {
	s.Helper()
	in := Serve(s.T, cfg, o)
	in.Ready(int(s.Partitions), Patience)
	return in
}

// StartReady starts a process with the setup's directory and returns once it owns all partitions.
func (s *Setup) StartReady(more ...string) *Process {
	s.Helper()
	p := s.Start(more...)
	p.Ready(int(s.Partitions), Patience)
	return p
}

// Shared waits until the instances own all partitions between them, each of them some.
func (s *Setup) Shared(ins ...Shown) {
	s.Helper()
	await.Until(s, Patience, "each instance has partitions", func() bool {
		for _, in := range ins {
			if in.Live() <= 0 {
				return false
			}
		}
		return Serving(int(s.Partitions), ins...)
	})
}

// Pending waits until the instances hold just n timers between them.
func (s *Setup) Pending(n int, ins ...Shown) {
	s.Helper()
	await.Until(s, Patience, fmt.Sprintf("%d pending timers", n), func() bool {
		return Sum(ins, "waterclock_pending_timers") == float64(n)
	})
}

// NearlyDue schedules n timers, t-0 and so on, and waits until the instance holds them, before they are due. It returns
// what must be emitted.
func (s *Setup) NearlyDue(in Shown, n int) Values {
	s.Helper()
	want := make(Values)
	due := time.Now().Add(s.Lead)
	var recs []*kgo.Record
	for i := range n {
		id := fmt.Sprint("t-", i)
		recs = append(recs, s.Valued(id, "1", due))
		want.Add(id, "1")
	}
	s.Send(recs...)
	s.Pending(n, in)
	s.NotYet(due)
	return want
}

// Spread schedules n timers and returns how many lie on each partition of the request topic, at least one.
func (s *Setup) Spread(prefix string, n int, due time.Time) (on map[int32]int) {
	s.Helper()
	recs := make([]*kgo.Record, n)
	for i := range recs {
		recs[i] = s.Valued(fmt.Sprint(prefix, i), "v", due)
	}
	s.Send(recs...)
	on = make(map[int32]int)
	for _, r := range recs {
		on[r.Partition]++
	}
	if len(on) != int(s.Partitions) {
		s.Fatalf("%d of %d partitions have timers", len(on), s.Partitions)
	}
	return on
}

// NotYet ends the test if it is past an instant: then the machine is too slow for it.
func (s *Setup) NotYet(due time.Time) {
	s.Helper()
	if late := time.Since(due); late > 0 {
		s.Fatalf("the machine is too slow for this test: %s too late", late)
	}
}

// At waits for an instant.
func (s *Setup) At(when time.Time) { await.For(s, time.Until(when)) }

// Says waits until an instance is not ready and /readyz has all the words. It returns what it says.
func Says(t testing.TB, in Shown, want ...string) (body string) {
	t.Helper()
	await.Until(t, Patience, "/readyz says "+strings.Join(want, ", "), func() bool {
		var status int
		status, body = in.Readyz()
		for _, w := range want {
			if !strings.Contains(body, w) {
				return false
			}
		}
		return status != http.StatusOK
	})
	return body
}

// Load sends perSecond timers a second, due that much later each, until it is stopped: load-0 and so on.
func (s *Setup) Load(perSecond int, ahead time.Duration) *Stream {
	return StartStream(s, s.Client, perSecond, func(n int) *kgo.Record {
		return s.Valued(fmt.Sprint("load-", n), "1", time.Now().Add(ahead))
	})
}

// EndLoad stops the stream of Load and adds what it sent to want.
func EndLoad(load *Stream, want Values) {
	for i := range load.Stop() {
		want.Add(fmt.Sprint("load-", i), "1")
	}
}

// Values are the values that must be emitted, by timer ID, one after the other.
type Values map[string][]string

// Add adds values of an ID.
func (v Values) Add(id string, values ...string) { v[id] = append(v[id], values...) }

// Finish waits until every ID of want was emitted with its values, and checks that nothing else comes: nothing lost,
// duplicated or early. It ends with one timer for each request partition that fires immediately: what was decided
// before it is in the target before it.
func (s *Setup) Finish(want Values) {
	s.Helper()
	n := 0
	for _, vs := range want {
		n += len(vs)
	}
	s.Out.WaitFor(n, Patience)
	const barrier = "barrier-"
	for p := range s.Partitions {
		r := s.Valued(fmt.Sprint(barrier, p), "", time.Now().Add(-time.Second))
		r.Partition = p
		Send(s, s.Manual(), r)
	}
	await.Until(s, Patience, "barriers", func() bool { return s.Emitted(barrier) >= int(s.Partitions) })
	s.Out.Quiet(quiet)
	got := Emissions(s.T, s.Out.Records())
	wrong := 0
	complain := func(format string, args ...any) {
		if wrong++; wrong <= saidAtMost {
			kafkatest.Inexact(s, format, args...)
		}
	}
	for id, vs := range want {
		var values []string
		for _, r := range got[id] {
			values = append(values, string(r.Value))
		}
		if strings.Join(values, "|") != strings.Join(vs, "|") {
			complain("%s: emitted %q, want %q", id, values, vs)
		}
	}
	for id, rs := range got {
		if _, ok := want[id]; !ok && !strings.HasPrefix(id, barrier) {
			complain("%s: emitted %d times, want none", id, len(rs))
		}
	}
	s.Logf("%d emissions of %d IDs: %d IDs wrong (lost, duplicated or unwanted)", n, len(want), wrong)
}

// Emitted counts the emissions so far of IDs that begin with a prefix.
func (s *Setup) Emitted(prefix string) (n int) {
	for _, r := range s.Out.Records() {
		if strings.HasPrefix(r.Header("waterclock-id"), prefix) {
			n++
		}
	}
	return n
}

// Complete waits for n emissions and checks that they are those of n timers, each once, and that no more come.
func Complete(t testing.TB, out *kafkatest.Collector, n int) {
	t.Helper()
	out.WaitFor(n, Patience)
	out.Quiet(quiet)
	Exactly(t, out.Records(), n)
}

// Committed returns every record of a topic that is committed now.
func (s *Setup) Committed(topic string) []kafkatest.Received {
	s.Helper()
	all := kafkatest.Collect(s.T, s.Cluster, topic)
	await.Until(s, Patience, "all of "+topic+" is read", all.CatchUp)
	return all.Records()
}

// NothingDead checks that there is no dead letter.
func (s *Setup) NothingDead() {
	s.Helper()
	letters := s.Committed(topics.DeadLetters(s.Requests))
	for _, r := range letters[:min(3, len(letters))] {
		s.Errorf("one of %d dead letters, of %q: %v", len(letters), r.Key, r.Headers)
	}
}

// Written returns how far a topic goes, all partitions added up.
func (s *Setup) Written(topic string) (n int64) {
	s.Helper()
	ends, err := s.Admin.ListEndOffsets(s.Context(), topic)
	must(s, err)
	for _, end := range ends.Offsets()[topic] {
		n += end.At
	}
	return n
}

// Silence returns the longest time without a record between two instants.
func Silence(received []kafkatest.Received, from, to time.Time) (longest time.Duration) {
	last := from
	for _, r := range received {
		if r.At.After(last) && r.At.Before(to) {
			longest, last = max(longest, r.At.Sub(last)), r.At
		}
	}
	return max(longest, to.Sub(last))
}

// SilenceBy is Silence of each kind of records that there is, with one of the kinds that were silent for longest.
func SilenceBy[K comparable](received []kafkatest.Received, from, to time.Time, kind func(kafkatest.Received) K) (
	longest time.Duration, where K) {
	by := make(map[K][]kafkatest.Received)
	for _, r := range received {
		k := kind(r)
		by[k] = append(by[k], r)
	}
	for k, rs := range by {
		if d := Silence(rs, from, to); d > longest {
			longest, where = d, k
		}
	}
	return longest, where
}
