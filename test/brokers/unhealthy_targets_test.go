package brokers

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
	// gapLimit is what the other targets may notice of an unhealthy one, by receipt;
	// gapNoise is what this machine may add.
	gapLimit, gapNoise = 4 * time.Second, 2 * time.Second
	// smallLimit is max.message.bytes of the target that refuses sizes.
	smallLimit = 2000
	// window is a stretch over which a p99 is taken. The machine is not the test's alone, so a p99 that is too large is
	// taken again, windows times.
	window  = 8 * time.Second
	windows = 4
	// awayFor is how long the only replica of a target is away.
	awayFor = time.Minute
	// victim is the broker that has it.
	victim = 2
)

// unhealthy is three brokers, an instance, targets of every kind, and what is expected to become of every timer sent.
// The target of the setup is the healthy one.
type unhealthy struct {
	*rig.Setup
	cfg *config.Config
	out *kafkatest.Collector

	small, missing, away string

	mu   sync.Mutex        // guards want: the load sends too
	want map[string]string // by ID: topic and value of its one emission, "dead" and a reason, or "" for nothing
}

func newUnhealthy(t *testing.T) *unhealthy {
	u := &unhealthy{Setup: rig.NewSetup(t, kafkatest.Three(t), 4, 4), want: make(map[string]string)}
	limit := strconv.Itoa(smallLimit)
	u.small = u.Cluster.CreateTopic(t, 1, map[string]*string{"max.message.bytes": &limit}, u.Requests+"-small")
	u.missing, u.away = u.Requests+"-missing", u.Requests+"-away"
	onBroker(u.Setup, victim, u.away)
	u.cfg = u.Config()
	u.out = kafkatest.Collect(t, u.Cluster, u.Target, u.small, u.away)
	return u
}

// timer is a request; want says what is to become of it.
func (u *unhealthy) timer(id, value, target string, due time.Time, want string) *kgo.Record {
	u.mu.Lock()
	u.want[id] = want
	u.mu.Unlock()
	r := rig.Timer(u.Requests, target, id, due)
	r.Value = []byte(value)
	return r
}

// plain is a timer that is emitted as it says.
func (u *unhealthy) plain(id, value, target string, due time.Time) *kgo.Record {
	return u.timer(id, value, target, due, target+" "+value)
}

func (u *unhealthy) cancel(id string) *kgo.Record {
	u.mu.Lock()
	u.want[id] = ""
	u.mu.Unlock()
	return u.Cancel(id)
}

// load sends 100 timers a second, due half a second later, until it is stopped;
// mix, if not nil, sends something else instead of the n-th.
func (u *unhealthy) load(name string, mix func(id string, n int, due time.Time) *kgo.Record) *rig.Stream {
	return rig.StartBursts(u, u.Client, burst, burstEvery, func(n int) *kgo.Record {
		id, due := fmt.Sprint(name, "-", n), time.Now().Add(500*time.Millisecond)
		if mix != nil {
			if r := mix(id, n, due); r != nil {
				return r
			}
		}
		return u.plain(id, "v", u.Target, due)
	})
}

// lateness returns the p99 of what healthy targets received between two instants, by receipt, and the longest gap.
func (u *unhealthy) lateness(from, to time.Time) (late, gap time.Duration) {
	u.Helper()
	var received []kafkatest.Received
	for _, r := range on(u.Target, u.out.Records()) {
		if !r.At.Before(from) && !r.At.After(to) {
			received = append(received, r)
		}
	}
	if len(received) < 200 {
		u.Fatalf("only %d emissions in %s", len(received), to.Sub(from))
	}
	return p99(lateness(received, time.Time{}, to)), rig.Silence(received, from, to)
}

// within takes windows from an instant on, at least one, until the p99 of one is at most half as large again as before
// the fault.
func (u *unhealthy) within(what string, before time.Duration, from time.Time) {
	u.Helper()
	var all []time.Duration
	for i := range windows {
		a, b := from.Add(time.Duration(i)*window), from.Add(time.Duration(i+1)*window)
		u.At(b.Add(500 * time.Millisecond)) // for what is under way
		p99, _ := u.lateness(a, b)
		all = append(all, p99.Round(time.Millisecond))
		if p99 <= before*3/2 {
			break
		}
	}
	u.Logf("%-36s p99 by receipt of the other targets %v, before %s", what, all, before.Round(time.Millisecond))
	if slices.Min(all) > before*3/2 {
		u.Errorf("%s: p99 %v, before the fault %s", what, all, before)
	}
}

// Several things in one run, for three brokers are dear: a target that does not exist, one that refuses the size, with
// neighbours in its batch, and one whose only replica is away, for a minute, with requests for IDs that are just
// firing. Others notice one gap, then nothing; every parked timer fires once afterwards, what was cancelled or replaced
// meanwhile does not, and two restarts of the instance in between, the second without its directory, change nothing.
func TestOtherTargetsNoticeOneGap(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	u := newUnhealthy(t)
	in, log := rig.ServeLogged(t, u.cfg, node.Options{})
	in.Ready(4, rig.Patience)
	dead := kafkatest.Collect(t, u.Cluster, topics.DeadLetters(u.Requests))

	load := u.load("before", nil)
	u.out.WaitFor(200, rig.Patience)
	base := time.Now()
	u.At(base.Add(window))
	before, _ := u.lateness(base, time.Now())
	load.Stop()

	// The leader goes in order, so that nothing but its one target is unhealthy.
	mix := func(id string, n int, due time.Time) *kgo.Record {
		if n%10 == 0 {
			return u.plain(id, "v", u.away, due)
		}
		return nil
	}
	load = u.load("leaving", nil)
	leaving := time.Now()
	u.Cluster.Stop(victim)
	down := time.Now()
	u.At(down.Add(4 * time.Second))
	u.rolledBack(log)
	unhealthy := time.Now()
	load.Stop()
	load = u.load("away", mix)
	u.within("while one has no leader", before, unhealthy.Add(gapLimit))
	_, gap := u.lateness(leaving, time.Now())
	t.Logf("longest gap of healthy targets since the broker stopped: %s", gap.Round(time.Millisecond))
	if gap > gapLimit+gapNoise {
		t.Errorf("longest gap of healthy targets since the broker stopped: %s", gap)
	}
	u.parked(in)
	load.Stop()
	// In what is left of the minute, two a second of each kind, with neighbours for the same partition.
	refused := time.Now()
	load = u.load("refused", func(id string, n int, due time.Time) *kgo.Record {
		large := strings.Repeat("x", 2*smallLimit)
		switch n % 50 {
		case 10:
			return u.timer(id, "v", u.missing, due, "dead "+string(waterclock.ReasonTargetUnknown))
		case 20:
			return u.timer(id, large, u.small, due, "dead "+string(waterclock.ReasonTargetTooLarge))
		case 19, 21, 22:
			return u.plain(id, "neighbour", u.small, due.Truncate(100*time.Millisecond))
		}
		return nil
	})
	u.within("beside one missing and one too small", before, refused.Add(gapLimit))
	load.Stop()
	if _, gap := u.lateness(refused, time.Now()); gap > gapLimit+gapNoise {
		t.Errorf("beside one missing and one too small: gap of %s", gap)
	}
	u.At(down.Add(awayFor - 15*time.Second)) // probes begin again: one comes rig.Patience after the minute
	for _, directory := range []string{u.cfg.DataDir, t.TempDir()} {
		in.End()
		u.cfg.DataDir = directory
		in = rig.Serve(t, u.cfg, node.Options{})
		in.Ready(4, rig.Patience)
		await.Until(u, rig.Patience, "timers are parked again",
			func() bool { return in.Metric("waterclock_parked_timers") > 0 })
	}
	u.At(down.Add(awayFor))
	for _, r := range u.out.Records() {
		if r.Topic == u.away && r.At.After(down) {
			t.Errorf("emission of %s on a target that is away", r.Key)
		}
	}
	u.Cluster.Restart(victim)
	up := time.Now()
	u.settled(in, dead)
	t.Logf("everything parked was out %s after the target was back", time.Since(up).Round(time.Second))
}

const each = 25 // timers of each kind

// rolledBack: while a firing for the target is under way, and about to fail, requests for its ID come.
func (u *unhealthy) rolledBack(log *rig.Log) {
	u.Helper()
	due := time.Now().Add(1500 * time.Millisecond)
	var first, second, third []*kgo.Record
	for i := range each {
		id := func(kind string) string { return fmt.Sprint("rolled-back-", kind, "-", i) }
		for _, kind := range []string{"cancelled", "moved", "again", "chain", "cut", "left"} {
			first = append(first, u.plain(id(kind), "1", u.away, due))
		}
		past := due.Add(-time.Hour)
		second = append(second,
			u.cancel(id("cancelled")),
			u.cancel(id("moved")), u.plain(id("moved"), "2", u.Target, due.Add(6*time.Second)),
			u.cancel(id("again")), u.plain(id("again"), "2", u.away, due.Add(time.Second)),
			u.plain(id("chain"), "2", u.away, past),
			u.plain(id("cut"), "2", u.away, past),
		)
		third = append(third, u.cancel(id("cut")))
	}
	u.Send(first...)
	u.At(due.Add(300 * time.Millisecond))
	u.Send(second...)
	u.At(due.Add(600 * time.Millisecond))
	u.Send(third...)
	u.At(due.Add(900 * time.Millisecond)) // read and planned
	if said := log.Lines("is unhealthy"); len(said) > 0 {
		u.Errorf("the target was found unhealthy before the requests came: %s", said)
	}
	await.Until(u, rig.Patience, "the target is found unhealthy",
		func() bool { return len(log.Lines("is unhealthy")) > 0 })
}

// parked cancels and replaces parked timers.
func (u *unhealthy) parked(in *rig.Instance) {
	u.Helper()
	past := time.Now().Add(-time.Second)
	was := in.Metric("waterclock_parked_timers")
	var first, second []*kgo.Record
	for i := range each {
		id := func(kind string) string { return fmt.Sprint("parked-", kind, "-", i) }
		for _, kind := range []string{"cancelled", "moved", "again", "later", "left"} {
			first = append(first, u.plain(id(kind), "1", u.away, past))
		}
		second = append(second,
			u.cancel(id("cancelled")),
			u.plain(id("moved"), "2", u.Target, past),
			u.plain(id("again"), "2", u.away, past),
			u.timer(id("later"), "2", u.away, past.Add(time.Hour), ""),
		)
	}
	u.Send(first...)
	await.Until(u, rig.Patience, "timers are parked",
		func() bool { return in.Metric("waterclock_parked_timers") >= was+5*each })
	u.Send(second...)
	await.Until(u, rig.Patience, "a replaced one is emitted", func() bool {
		n := 0
		for _, r := range u.out.Records() {
			if strings.HasPrefix(string(r.Key), "parked-moved-") {
				n++
			}
		}
		return n == each
	})
}

// settled waits for everything wanted and checks that nothing else came.
func (u *unhealthy) settled(in *rig.Instance, dead *kafkatest.Collector) {
	u.Helper()
	emissions, letters := 0, 0
	for _, want := range u.want {
		switch {
		case strings.HasPrefix(want, "dead "):
			letters++
		case want != "":
			emissions++
		}
	}
	dead.WaitFor(letters, rig.Patience)
	u.out.WaitFor(emissions, rig.Patience)
	await.Until(u, rig.Patience, "only timers of the far future are pending",
		func() bool { return in.Metric("waterclock_pending_timers") == each })
	u.out.Quiet(time.Second)
	got := make(map[string]string)
	for id, rs := range rig.Emissions(u.T, u.out.Records()) {
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
	for id, want := range u.want {
		if got[id] != want {
			if wrong++; wrong <= 10 {
				kafkatest.Inexact(u, "%s: %.200q, want %.200q", id, got[id], want)
			}
		}
		delete(got, id)
	}
	for id := range got {
		kafkatest.Inexact(u, "%s: never asked for", id)
	}
	u.Logf("%d timers, %d emissions, %d dead letters, %d wrong (lost, duplicated or unwanted)", len(u.want), emissions,
		letters, wrong)
}

// A fixed-delay topic has records for a target whose only replica is away. What is behind them in their partition waits
// with them, and the other partition goes on. When the target is back all comes, in order, once.
func TestTargetOfAFixedDelayTopicAway(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const perRound = 100
	c := kafkatest.Three(t)
	s := rig.NewSetup(t, c, 2, 2)
	well, ill := s.Target, s.Requests+"-ill"
	cfg := s.Config()
	cfg.Requests, cfg.Delay = nil, []config.DelayTopic{{Topic: s.Requests, Delay: 200 * time.Millisecond, Target: well}}
	away := bystander(s)
	onBroker(s, away, ill)
	out := kafkatest.Collect(t, c, well, ill)
	in := s.Serve(cfg, node.Options{})
	cl := s.Manual()
	sent := 0
	send := func(partition int32, name string, n int, headers ...string) {
		t.Helper()
		var recs []*kgo.Record
		for i := range n {
			r := s.Request(name, fmt.Sprint(i), headers...)
			r.Partition = partition
			recs = append(recs, r)
		}
		rig.Send(t, cl, recs...)
		sent += n
	}
	send(0, "before", perRound, "timer-target-topic", ill)
	out.WaitFor(perRound, rig.Patience)

	c.Stop(int(away))
	leaderless(s, ill, away)
	send(0, "away", perRound, "timer-target-topic", ill)
	send(0, "behind", perRound)
	await.Until(t, rig.Patience, "records wait for the target", func() bool {
		return in.Metric("waterclock_parked_timers_by_target", "topic", s.Requests, "target", ill) == 2*perRound
	})
	for round := range 5 {
		begun := time.Now()
		send(1, "other", perRound)
		out.WaitFor((round+2)*perRound, rig.Patience)
		if took := time.Since(begun); took > gapLimit {
			t.Errorf("records of the other partition took %s", took)
		}
	}
	if n := len(out.Records()); n != 6*perRound {
		t.Errorf("%d records came while the target was away, want %d", n, 6*perRound)
	}
	c.Restart(int(away))
	out.WaitFor(sent, 2*rig.Patience)
	out.Quiet(time.Second)
	last := make(map[string]int64)
	for _, r := range out.Records() {
		var n int64
		if _, err := fmt.Sscan(string(r.Value), &n); err != nil {
			t.Fatal(err)
		}
		if n != 0 && n != last[string(r.Key)]+1 {
			t.Errorf("%s %d came behind %d", r.Key, n, last[string(r.Key)])
		}
		last[string(r.Key)] = n
	}
	if n := len(out.Records()); n != sent {
		t.Errorf("%d records came, %d were sent", n, sent)
	}
	await.Until(t, rig.Patience, "nothing waits",
		func() bool { return in.Metric("waterclock_parked_timers", "topic", s.Requests) == 0 })
}
