package contract

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
)

// TestRequestsBeyondTheRate: three tenants send the same at once. What is beyond the limit of the first becomes dead
// letters and is not taken in, cancels excepted; what is beyond the second's comes later; the third has none. All that
// is accepted fires, and when the limits are lifted while the instance runs everything does.
func TestRequestsBeyondTheRate(t *testing.T) {
	t.Parallel()
	const (
		n    = 200
		rate = 50 // requests a second
	)
	s := newSetup(t, kafkatest.Shared(t), 1, 2)
	refusing, waiting, free := s.Requests, s.Topic(s.Requests+"-waiting", 1),
		s.Topic(s.Requests+"-free", 1)
	s.dead = kafkatest.Collect(t, s.Cluster, refusing+deadSuffix, waiting+deadSuffix, free+deadSuffix)
	cfg := s.Config()
	cfg.Requests = append(cfg.Requests, waiting, free)
	limited := func(over config.OverLimit) config.Policy {
		p := cfg.PolicyOf(refusing)
		p.LimitRate, p.OverLimit = rate, over
		return p
	}
	cfg.Tenants = map[string]config.Policy{refusing: limited(config.OverDeadLetter), waiting: limited(config.OverDelay)}
	reload := make(chan *config.Config)
	s.serve(cfg, 3, node.Options{Reload: reload})
	burst := func(round string, topics ...string) {
		var recs []*kgo.Record
		for _, topic := range topics {
			for i := range n {
				recs = append(recs, after(topic, fmt.Sprint(round, "-", i), "1ms", s.Target))
			}
		}
		s.Send(recs...)
	}
	by := func(topic string) (fired, letters int) {
		for _, r := range s.Out.Records() {
			if strings.HasPrefix(r.Header("waterclock-source"), topic+"/") {
				fired++
			}
		}
		for _, r := range s.dead.Records() {
			if r.Topic == topic+deadSuffix && r.Header("waterclock-reason") == string(waterclock.ReasonOverQuota) {
				letters++
			}
		}
		return fired, letters
	}
	decided := func(topic string, all int) (fired, letters int) {
		t.Helper()
		s.until(fmt.Sprint(all, " outcomes on ", topic), func() bool {
			fired, letters = by(topic)
			return fired+letters >= all
		})
		return fired, letters
	}
	begun := time.Now()
	burst("first", refusing, waiting, free)
	wrote := time.Since(begun)
	// A burst of a second's worth, and what the rate gives while all is written.
	fired, letters := decided(refusing, n)
	if most := rate + int(wrote.Seconds()*rate) + 1; fired < rate || fired > most || fired+letters != n {
		t.Errorf("%d fired and %d are refused of %d written in %s, at most %d may fire", fired, letters, n, wrote, most)
	}
	if fired, letters := decided(free, n); fired != n || letters != 0 {
		t.Errorf("without a limit: %d fired, %d are refused", fired, letters)
	}
	// The second one's are read as they come, in fetches of many: what it sends next waits until the rate has made up
	// for them.
	s.Send(after(waiting, "next", "1ms", s.Target))
	decided(waiting, n+1)
	if took := time.Since(begun); took < time.Second {
		t.Errorf("%d requests at %d a second were taken in after %s", n, rate, took)
	}

	// A cancel is taken in whatever the rate.
	await.For(t, 1100*time.Millisecond) // of room
	s.Send(after(refusing, "pending", "1h", s.Target))
	s.in.Balanced(1)
	burst("second", refusing)
	s.Send(s.Cancel("pending"))
	s.in.Balanced(0)
	before, _ := decided(refusing, 2*n)

	// The limits are lifted.
	next := *cfg
	next.Tenants = nil
	reload <- &next
	reload <- &next // taken over when the second one is taken
	burst("third", refusing, waiting)
	s.until("everything", func() bool { fired, _ := by(refusing); return fired >= before+n })
	if _, letters := decided(waiting, 2*n+1); letters > 0 {
		t.Errorf("%d are refused that must wait", letters)
	}
}

// policy is the setup's configuration with a changed policy of its request topic.
func (s *setup) policy(change func(*config.Policy)) *config.Config {
	cfg := s.Config()
	p := cfg.PolicyOf(s.Requests)
	change(&p)
	cfg.Tenants = map[string]config.Policy{s.Requests: p}
	return cfg
}

// TestPendingBeyondTheLimit: a tenant has so many timers and no more, also after a restart; replacements, cancels and
// what fires are not held up, and make room.
func TestPendingBeyondTheLimit(t *testing.T) {
	t.Parallel()
	const most, more = 30, 20
	s := newSetup(t, kafkatest.Shared(t), 1, 1)
	cfg := s.policy(func(p *config.Policy) { p.LimitPending = most })
	s.serve(cfg, 1)
	schedule := func(in string, ids ...int) {
		var recs []*kgo.Record
		for _, id := range ids {
			recs = append(recs, after(s.Requests, fmt.Sprint("id-", id), in, s.Target))
		}
		s.Send(recs...)
	}
	all := make([]int, most+more)
	for i := range all {
		all[i] = i
	}
	schedule("1h", all...)
	// Which of them are refused is not said: parts of a partition plan side by side.
	refused := make(map[string]bool)
	for _, l := range s.dead.WaitFor(more, patience) {
		refused[string(l.Key)] = true
	}
	s.in.Balanced(most)
	var taken []int
	for _, i := range all {
		if !refused[fmt.Sprint("id-", i)] {
			taken = append(taken, i)
		}
	}
	schedule("2h", taken...) // once more, which adds none
	s.settled(len(all) + len(taken))
	if err := s.in.Stop(); err != nil {
		t.Fatal(err)
	}
	s.serve(cfg, 1)
	schedule("1h", 1000)
	s.dead.WaitFor(more+1, patience)
	// One is cancelled and one fires: room for two.
	s.Send(s.Cancel(fmt.Sprint("id-", taken[0])))
	schedule("1ms", taken[1])
	s.Out.WaitFor(1, patience)
	s.in.Balanced(most - 2)
	schedule("1h", 1001, 1002, 1003)
	letters := s.dead.WaitFor(more+2, patience)
	s.in.Balanced(most)
	s.dead.Quiet(quiet)
	for _, l := range letters {
		if got := l.Header("waterclock-reason"); got != string(waterclock.ReasonOverQuota) {
			t.Errorf("a dead letter for %s", got)
		}
	}
}

// TestTenantsMaxLate: what a request does not say of lateness its tenant does.
func TestTenantsMaxLate(t *testing.T) {
	t.Parallel()
	s := newSetup(t, kafkatest.Shared(t), 1, 1)
	s.serve(s.policy(func(p *config.Policy) { p.DefaultMaxLate = 10 * time.Minute }), 1)
	late := time.Now().Add(-time.Hour).UnixMilli()
	expires, fires := s.schedule("late", "v", late), s.schedule("later is fine", "v", late)
	expires.topic = ""
	fires.request.Headers = append(fires.request.Headers, header("timer-max-late", "2h"))
	s.send(expires, fires, s.schedule("on time", "v", time.Now().UnixMilli()))
	s.awaitMetric(1, "waterclock_outcomes_total", "outcome", "expired")
	s.end(len(s.sent))
}

// TestSeveralRequestTopicsInOneProcess: each has targets and a default of its own, and the same ID on two of them is
// two timers.
func TestSeveralRequestTopicsInOneProcess(t *testing.T) {
	t.Parallel()
	s := newSetup(t, kafkatest.Shared(t), 4, 1)
	requests := []string{s.Requests, s.Topic(s.Requests+"-2", 1),
		s.Topic(s.Requests+"-3", 3)}
	topics := []string{s.target("out-a", 3), s.target("out-b", 3), s.target("out-c", 3)}
	s.Out = kafkatest.Collect(t, s.Cluster, topics...)
	s.dead = kafkatest.Collect(t, s.Cluster, requests[0]+deadSuffix, requests[1]+deadSuffix, requests[2]+deadSuffix)
	cfg := s.Config()
	cfg.Requests = requests
	// The first may write to a and b, the second to b, the third to all.
	cfg.Targets = []string{requests[0] + ":" + topics[0], requests[0] + ":" + topics[1], requests[1] + ":*-out-b",
		requests[2] + ":" + s.Requests + "-out-*"}
	allowed := [][]bool{{true, true, false}, {false, true, false}, {true, true, true}}
	cfg.DefaultTarget = []string{topics[1], requests[2] + ":" + topics[2]}
	defaults := []string{topics[1], topics[1], topics[2]}
	s.serve(cfg, 8)

	start := time.Now().Add(2 * time.Second)
	var wants []want
	for i := range 300 {
		due := start.Add(time.Duration(i) * 5 * time.Millisecond).UnixMilli()
		for q, topic := range requests {
			target, k := defaults[q], i%4
			if k < 3 {
				target = topics[k]
			}
			w := s.timer(target, fmt.Sprint("id-", i), fmt.Sprint(topic, i), due)
			w.request.Topic = topic
			switch {
			case k == 3:
				w.request.Headers = w.request.Headers[:1] // it does not name its target
			case !allowed[q][k]:
				w.refused = waterclock.ReasonTargetNotAllowed
			}
			if w.refused == "" && i%10 == q { // cancelled on this topic alone
				w.topic = ""
				wants = append(wants, w, want{request: cancel(i, topic, w.request.Key)})
				continue
			}
			wants = append(wants, w)
		}
	}
	s.send(wants...)
	s.end(len(wants))
}
