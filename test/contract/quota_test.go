package contract

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// TestRequestsBeyondTheRate: three tenants send the same at once. What is beyond
// the limit of the first becomes dead letters and is not taken in, cancels
// excepted; what is beyond the second's comes later; the third has none. All that
// is accepted fires, and when the limits are lifted while the instance runs
// everything does.
func TestRequestsBeyondTheRate(t *testing.T) {
	t.Parallel()
	const (
		n    = 200
		rate = 50 // requests a second
	)
	c := kafkatest.Shared(t)
	name := kafkatest.Topic(t)
	out := c.CreateTopic(t, 2, nil)
	refusing, waiting, free := c.CreateTopic(t, 1, nil, name+"-refusing"), c.CreateTopic(t, 1, nil, name+"-waiting"),
		c.CreateTopic(t, 1, nil, name+"-free")
	cfg := rig.Config(t, c.Seeds(), refusing, waiting, free)
	limited := func(over config.OverLimit) config.Policy {
		p := cfg.PolicyOf(refusing)
		p.LimitRate, p.OverLimit = rate, over
		return p
	}
	cfg.Tenants = map[string]config.Policy{refusing: limited(config.OverDeadLetter), waiting: limited(config.OverDelay)}
	reload := make(chan *config.Config)
	in := rig.Serve(t, cfg, node.Options{Reload: reload})
	in.Ready(3, arrive)
	client := c.Client(t)
	emissions, dead := kafkatest.Collect(t, c, out), kafkatest.Collect(t, c, refusing+deadSuffix, waiting+deadSuffix,
		free+deadSuffix)

	burst := func(round string) (recs []*kgo.Record) {
		for _, topic := range []string{refusing, waiting, free} {
			for i := range n {
				recs = append(recs,
					request(topic, fmt.Sprint(round, "-", i), "v", header("timer-after", "1ms"), to(out)))
			}
		}
		return recs
	}
	by := func(topic string) (fired, letters int) {
		for _, r := range emissions.Records() {
			if strings.HasPrefix(r.Header("waterclock-source"), topic+"/") {
				fired++
			}
		}
		for _, r := range dead.Records() {
			if r.Topic == topic+deadSuffix {
				letters++
				if got := r.Header("waterclock-reason"); got != string(waterclock.ReasonOverQuota) {
					t.Errorf("a dead letter for %s", got)
				}
			}
		}
		return fired, letters
	}
	decided := func(topic string, all int) {
		t.Helper()
		awaitCount(t, fmt.Sprint(all, " outcomes on ", topic), func() (float64, bool) {
			fired, letters := by(topic)
			return float64(fired + letters), fired+letters >= all
		})
	}
	begun := time.Now()
	produce(t, client, burst("first")...)
	wrote := time.Since(begun)
	decided(refusing, n)
	decided(free, n)
	// A burst of a second's worth, and what the rate gives while all is written.
	fired, letters := by(refusing)
	if most := rate + int(wrote.Seconds()*rate) + 1; fired < rate || fired > most || fired+letters != n {
		t.Errorf("%d fired and %d are refused of %d written in %s at most %d may fire", fired, letters, n, wrote, most)
	}
	if fired, letters := by(free); fired != n || letters != 0 {
		t.Errorf("without a limit: %d fired, %d are refused", fired, letters)
	}

	// The second one's are read as they come, in fetches of many: what it sends
	// next waits until the rate has made up for them.
	held := time.Now()
	produce(t, client, request(waiting, "next", "v", header("timer-after", "1ms"), to(out)))
	decided(waiting, n+1)
	if took := time.Since(begun); took < time.Second {
		t.Errorf("%d requests at %d a second were taken in after %s", n, rate, took)
	}
	t.Logf("refused %d of %d; the one that waited came %s after it was written", letters, n,
		time.Since(held).Round(time.Millisecond))

	// A cancel is taken in whatever the rate.
	pending := request(refusing, "pending", "v", header("timer-after", "1h"), to(out))
	<-time.After(1100 * time.Millisecond) // of room
	produce(t, client, pending)
	awaitPending(t, in, 1)
	many := burst("second")[:n]
	produce(t, client, append(many, &kgo.Record{Topic: refusing, Key: []byte("pending")})...)
	awaitPending(t, in, 0)
	decided(refusing, 2*n)

	// The limits are lifted.
	next := *cfg
	next.Tenants = nil
	reload <- &next
	reload <- &next // taken over when the second one is taken
	before, _ := by(refusing)
	produce(t, client, burst("third")...)
	awaitCount(t, "everything", func() (float64, bool) {
		fired, _ := by(refusing)
		return float64(fired), fired >= before+n
	})
	decided(waiting, 2*n+1)
}

// TestPendingBeyondTheLimit: a tenant has so many timers and no more, also after a
// restart; replacements, cancels and what fires are not held up, and make room.
func TestPendingBeyondTheLimit(t *testing.T) {
	t.Parallel()
	const most, more = 30, 20
	c := kafkatest.Shared(t)
	requests, out := c.CreateTopic(t, 1, nil), c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-out")
	cfg := rig.Config(t, c.Seeds(), requests)
	p := cfg.PolicyOf(requests)
	p.LimitPending = most
	cfg.Tenants = map[string]config.Policy{requests: p}
	in := serve(t, cfg, 1)
	client := c.Client(t)
	emissions, dead := kafkatest.Collect(t, c, out), kafkatest.Collect(t, c, requests+deadSuffix)
	schedule := func(id int, in string) *kgo.Record {
		return request(requests, fmt.Sprint("id-", id), "v", header("timer-after", in), to(out))
	}
	var recs []*kgo.Record
	for i := range most + more {
		recs = append(recs, schedule(i, "1h"))
	}
	produce(t, client, recs...)
	// Which of them are refused is not said: parts of a partition plan side by side.
	refused := map[string]bool{}
	for _, l := range dead.WaitFor(more, arrive) {
		refused[string(l.Key)] = true
	}
	awaitPending(t, in, most)
	var taken []int
	recs = nil
	for i := range most + more {
		if !refused[fmt.Sprint("id-", i)] {
			taken = append(taken, i)
			recs = append(recs, schedule(i, "2h")) // once more, which adds none
		}
	}
	if len(taken) != most {
		t.Fatalf("%d timers were not refused, want %d", len(taken), most)
	}
	produce(t, client, recs...)
	awaitSettled(t, in, 2*most+more)
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	in = serve(t, cfg, 1)
	produce(t, client, schedule(1000, "1h"))
	dead.WaitFor(more+1, arrive)
	// One is cancelled and one fires: room for two.
	produce(t, client, &kgo.Record{Topic: requests, Key: fmt.Append(nil, "id-", taken[0])}, schedule(taken[1], "1ms"))
	emissions.WaitFor(1, arrive)
	awaitPending(t, in, most-2)
	produce(t, client, schedule(1001, "1h"), schedule(1002, "1h"), schedule(1003, "1h"))
	dead.WaitFor(more+2, arrive)
	awaitPending(t, in, most)
	dead.Quiet(settled)
	for _, l := range dead.Records() {
		if got := l.Header("waterclock-reason"); got != string(waterclock.ReasonOverQuota) {
			t.Errorf("a dead letter for %s", got)
		}
	}
}

// TestTenantsMaxLate: what a request does not say of lateness its tenant does.
func TestTenantsMaxLate(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests, out := c.CreateTopic(t, 1, nil), c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-out")
	cfg := rig.Config(t, c.Seeds(), requests)
	p := cfg.PolicyOf(requests)
	p.DefaultMaxLate = 10 * time.Minute
	cfg.Tenants = map[string]config.Policy{requests: p}
	in := serve(t, cfg, 1)
	emissions := kafkatest.Collect(t, c, out)
	late := time.Now().Add(-time.Hour).UnixMilli()
	produce(t, c.Client(t), request(requests, "late", "v", at(late), to(out)),
		request(requests, "later is fine", "v", at(late), to(out), header("timer-max-late", "2h")),
		request(requests, "on time", "v", header("timer-after", "1ms"), to(out)))
	emissions.WaitFor(2, arrive)
	awaitCount(t, "one that expired", func() (float64, bool) {
		n := in.Metric("waterclock_outcomes_total", "outcome", "expired")
		return n, n == 1
	})
	emissions.Quiet(settled)
	for _, r := range emissions.Records() {
		if r.Header("waterclock-id") == "late" {
			t.Errorf("it has fired an hour late: %q", r.Headers)
		}
	}
}
