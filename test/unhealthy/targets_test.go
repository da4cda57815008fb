package unhealthy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	soon = time.Minute
	// gapLimit is what the other targets may notice of an unhealthy one, by receipt;
	// gapNoise is what this machine may add.
	gapLimit, gapNoise = 4 * time.Second, 2 * time.Second
	// smallLimit is max.message.bytes of the target that refuses sizes.
	smallLimit = 2000
	// window is a stretch over which a p99 is taken. The machine is not the
	// test's alone, so a p99 that is too large is taken again, windows times.
	window  = 8 * time.Second
	windows = 4
	// away is how long the only replica of a target is away.
	away = time.Minute
)

// setup is three brokers, an instance, targets of every kind, and what is
// expected to become of every timer sent.
type setup struct {
	*testing.T
	c   *kafkatest.Cluster
	cfg *config.Config
	cl  *kgo.Client
	out *kafkatest.Collector

	requests, healthy, small, missing, away string

	mu   sync.Mutex        // guards want: the load sends too
	want map[string]string // by ID: topic and value of its one emission, "dead" and a reason, or "" for nothing
}

const victim = 2

func newSetup(t *testing.T) *setup {
	s := &setup{T: t, c: kafkatest.Three(t), want: make(map[string]string)}
	name := kafkatest.Topic(t)
	s.requests = s.c.CreateTopic(t, 4, nil, name)
	s.healthy = s.c.CreateTopic(t, 4, nil, name+"-healthy")
	limit := strconv.Itoa(smallLimit)
	s.small = s.c.CreateTopic(t, 1, map[string]*string{"max.message.bytes": &limit}, name+"-small")
	s.missing, s.away = name+"-missing", name+"-away"
	onBroker(t, s.c, s.away, victim)
	s.cfg = rig.Config(t, s.c.Seeds(), s.requests)
	s.cl = s.c.Client(t)
	s.out = kafkatest.Collect(t, s.c, s.healthy, s.small, s.away)
	return s
}

// timer is a request; want says what is to become of it.
func (s *setup) timer(id, value, target string, due time.Time, want string) *kgo.Record {
	s.mu.Lock()
	s.want[id] = want
	s.mu.Unlock()
	r := rig.Timer(s.requests, target, id, due)
	r.Value = []byte(value)
	return r
}

// plain is a timer that is emitted as it says.
func (s *setup) plain(id, value, target string, due time.Time) *kgo.Record {
	return s.timer(id, value, target, due, target+" "+value)
}

func (s *setup) cancel(id string) *kgo.Record {
	s.mu.Lock()
	s.want[id] = ""
	s.mu.Unlock()
	return &kgo.Record{Topic: s.requests, Key: []byte(id)}
}

func (s *setup) send(recs ...*kgo.Record) {
	s.Helper()
	rig.Send(s, s.cl, recs...)
}

func (s *setup) at(when time.Time) { await.For(s, time.Until(when)) }

// load sends 100 timers a second, due half a second later, until it is stopped;
// mix, if not nil, sends something else instead of the n-th.
func (s *setup) load(name string, mix func(id string, n int, due time.Time) *kgo.Record) *rig.Stream {
	return rig.StartBursts(s, s.cl, burst, burstEvery, func(n int) *kgo.Record {
		id, due := fmt.Sprint(name, "-", n), time.Now().Add(500*time.Millisecond)
		if mix != nil {
			if r := mix(id, n, due); r != nil {
				return r
			}
		}
		return s.plain(id, "v", s.healthy, due)
	})
}

// lateness returns the p99 of what healthy targets received between two
// instants, by receipt, and the longest gap.
func (s *setup) lateness(from, to time.Time) (p99, gap time.Duration) {
	s.Helper()
	var late []time.Duration
	last := from
	for _, r := range s.out.Records() {
		if r.Topic != s.healthy || r.At.Before(from) || r.At.After(to) {
			continue
		}
		gap, last = max(gap, r.At.Sub(last)), r.At
		ms, _ := strconv.ParseInt(r.Header("waterclock-due"), 10, 64)
		late = append(late, r.At.Sub(time.UnixMilli(ms)))
	}
	if len(late) < 200 {
		s.Fatalf("only %d emissions in %s", len(late), to.Sub(from))
	}
	slices.Sort(late)
	return late[len(late)*99/100], max(gap, to.Sub(last))
}

// within takes windows from an instant on, at least one, until the p99 of one is
// at most half as large again as before the fault.
func (s *setup) within(what string, before time.Duration, from time.Time) {
	s.Helper()
	var all []time.Duration
	for i := range windows {
		a, b := from.Add(time.Duration(i)*window), from.Add(time.Duration(i+1)*window)
		s.at(b.Add(500 * time.Millisecond)) // for what is under way
		p99, _ := s.lateness(a, b)
		all = append(all, p99.Round(time.Millisecond))
		if p99 <= before*3/2 {
			break
		}
	}
	s.Logf("%-36s p99 by receipt of the other targets %v, before %s", what, all, before.Round(time.Millisecond))
	if slices.Min(all) > before*3/2 {
		s.Errorf("%s: p99 %v, before the fault %s", what, all, before)
	}
}

// Several things in one run, for three brokers are dear: a target that does not
// exist, one that refuses the size, with neighbours in its batch, and one whose only
// replica is away, for a minute, with requests for IDs that are just firing. Others
// notice one gap, then nothing; every parked timer fires once afterwards, what
// was cancelled or replaced meanwhile does not, and two restarts of the instance
// in between, the second without its directory, change nothing.
func TestOtherTargetsNoticeOneGap(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	s := newSetup(t)
	in, log := rig.ServeLogged(t, s.cfg, node.Options{})
	in.Ready(4, soon)
	dead := kafkatest.Collect(t, s.c, topics.DeadLetters(s.requests))

	load := s.load("before", nil)
	s.out.WaitFor(200, soon)
	base := time.Now()
	s.at(base.Add(window))
	before, _ := s.lateness(base, time.Now())
	load.Stop()

	// The leader goes in order, so that nothing but its one target is unhealthy.
	mix := func(id string, n int, due time.Time) *kgo.Record {
		if n%10 == 0 {
			return s.plain(id, "v", s.away, due)
		}
		return nil
	}
	load = s.load("leaving", nil)
	leaving := time.Now()
	s.c.Stop(victim)
	down := time.Now()
	s.at(down.Add(4 * time.Second))
	s.rolledBack(log)
	unhealthy := time.Now()
	load.Stop()
	load = s.load("away", mix)
	s.within("while one has no leader", before, unhealthy.Add(gapLimit))
	_, gap := s.lateness(leaving, time.Now())
	t.Logf("longest gap of healthy targets since the broker stopped: %s", gap.Round(time.Millisecond))
	if gap > gapLimit+gapNoise {
		t.Errorf("longest gap of healthy targets since the broker stopped: %s", gap)
	}
	s.parked(in)
	load.Stop()
	// In what is left of the minute, two a second of each kind, with neighbours for
	// the same partition.
	refused := time.Now()
	load = s.load("refused", func(id string, n int, due time.Time) *kgo.Record {
		large := strings.Repeat("x", 2*smallLimit)
		switch n % 50 {
		case 10:
			return s.timer(id, "v", s.missing, due, "dead "+string(waterclock.ReasonTargetUnknown))
		case 20:
			return s.timer(id, large, s.small, due, "dead "+string(waterclock.ReasonTargetTooLarge))
		case 19, 21, 22:
			return s.plain(id, "neighbour", s.small, due.Truncate(100*time.Millisecond))
		}
		return nil
	})
	s.within("beside one missing and one too small", before, refused.Add(gapLimit))
	load.Stop()
	if _, gap := s.lateness(refused, time.Now()); gap > gapLimit+gapNoise {
		t.Errorf("beside one missing and one too small: gap of %s", gap)
	}
	s.at(down.Add(away - 15*time.Second)) // probes begin again: one comes soon after the minute
	for _, directory := range []string{s.cfg.DataDir, t.TempDir()} {
		if err := in.Stop(); err != nil {
			t.Fatal(err)
		}
		s.cfg.DataDir = directory
		in = rig.Serve(t, s.cfg, node.Options{})
		in.Ready(4, soon)
		await.Until(s, soon, "timers are parked again",
			func() bool { return in.Metric("waterclock_parked_timers") > 0 })
	}
	s.at(down.Add(away))
	for _, r := range s.out.Records() {
		if r.Topic == s.away && r.At.After(down) {
			t.Errorf("emission of %s on a target that is away", r.Key)
		}
	}
	s.c.Restart(victim)
	up := time.Now()
	s.settled(in, dead)
	t.Logf("everything parked was out %s after the target was back", time.Since(up).Round(time.Second))
}

const each = 25 // timers of each kind

// rolledBack: while a firing for the target is under way,
// and about to fail, requests for its ID come.
func (s *setup) rolledBack(log *rig.Log) {
	s.Helper()
	due := time.Now().Add(1500 * time.Millisecond)
	var first, second, third []*kgo.Record
	for i := range each {
		id := func(kind string) string { return fmt.Sprint("rolled-back-", kind, "-", i) }
		for _, kind := range []string{"cancelled", "moved", "again", "chain", "cut", "left"} {
			first = append(first, s.plain(id(kind), "1", s.away, due))
		}
		past := due.Add(-time.Hour)
		second = append(second,
			s.cancel(id("cancelled")),
			s.cancel(id("moved")), s.plain(id("moved"), "2", s.healthy, due.Add(6*time.Second)),
			s.cancel(id("again")), s.plain(id("again"), "2", s.away, due.Add(time.Second)),
			s.plain(id("chain"), "2", s.away, past),
			s.plain(id("cut"), "2", s.away, past),
		)
		third = append(third, s.cancel(id("cut")))
	}
	s.send(first...)
	s.at(due.Add(300 * time.Millisecond))
	s.send(second...)
	s.at(due.Add(600 * time.Millisecond))
	s.send(third...)
	s.at(due.Add(900 * time.Millisecond)) // read and planned
	if said := log.Lines("is unhealthy"); len(said) > 0 {
		s.Errorf("the target was found unhealthy before the requests came: %s", said)
	}
	await.Until(s, soon, "the target is found unhealthy", func() bool { return len(log.Lines("is unhealthy")) > 0 })
}

// parked cancels and replaces parked timers.
func (s *setup) parked(in *rig.Instance) {
	s.Helper()
	past := time.Now().Add(-time.Second)
	was := in.Metric("waterclock_parked_timers")
	var first, second []*kgo.Record
	for i := range each {
		id := func(kind string) string { return fmt.Sprint("parked-", kind, "-", i) }
		for _, kind := range []string{"cancelled", "moved", "again", "later", "left"} {
			first = append(first, s.plain(id(kind), "1", s.away, past))
		}
		second = append(second,
			s.cancel(id("cancelled")),
			s.plain(id("moved"), "2", s.healthy, past),
			s.plain(id("again"), "2", s.away, past),
			s.timer(id("later"), "2", s.away, past.Add(time.Hour), ""),
		)
	}
	s.send(first...)
	await.Until(s, soon, "timers are parked",
		func() bool { return in.Metric("waterclock_parked_timers") >= was+5*each })
	s.send(second...)
	await.Until(s, soon, "a replaced one is emitted", func() bool {
		n := 0
		for _, r := range s.out.Records() {
			if strings.HasPrefix(string(r.Key), "parked-moved-") {
				n++
			}
		}
		return n == each
	})
}

// settled waits for everything wanted and checks that nothing else came.
func (s *setup) settled(in *rig.Instance, dead *kafkatest.Collector) {
	s.Helper()
	emissions, letters := 0, 0
	for _, want := range s.want {
		switch {
		case strings.HasPrefix(want, "dead "):
			letters++
		case want != "":
			emissions++
		}
	}
	dead.WaitFor(letters, soon)
	s.out.WaitFor(emissions, soon)
	await.Until(s, soon, "only timers of the far future are pending",
		func() bool { return in.Metric("waterclock_pending_timers") == each })
	s.out.Quiet(time.Second)
	got := make(map[string]string)
	for id, rs := range rig.Emissions(s.T, s.out.Records()) {
		for i, r := range rs {
			if i > 0 {
				got[id] += " and "
			}
			got[id] += r.Topic + " " + string(r.Value)
		}
	}
	for _, r := range dead.Records() {
		id := string(r.Key)
		if got[id] != "" {
			got[id] += " and "
		}
		got[id] += "dead " + r.Header("waterclock-reason")
	}
	wrong := 0
	for id, want := range s.want {
		if got[id] != want {
			if wrong++; wrong <= 10 {
				kafkatest.Inexact(s, "%s: %.200q, want %.200q", id, got[id], want)
			}
		}
		delete(got, id)
	}
	for id := range got {
		kafkatest.Inexact(s, "%s: never asked for", id)
	}
	s.Logf("%d timers, %d emissions, %d dead letters, %d wrong (lost, duplicated or unwanted)", len(s.want), emissions,
		letters, wrong)
}
