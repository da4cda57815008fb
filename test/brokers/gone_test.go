package brokers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// session of the instances, and what readers of a target may wait beyond it.
const (
	session = 6 * time.Second
	beyond  = 2 * time.Second
)

// An open step holds back every read_committed reader of the targets that it
// touched, what other instances emit there included. So an instance that goes
// with a step open, killed or paused, must hold them back no longer than its
// session, and a moment. The step's last word, EndTxn, is on its way when it
// goes; one that was paused comes back with it.
func TestReadersAreFreeAfterTheSessionOfAnInstanceThatIsGone(t *testing.T) {
	runs.NeedSlow(t)
	for _, how := range []struct {
		name string
		gone func(*rig.Victim)
		back func(*rig.Victim)
	}{
		{"killed", (*rig.Victim).Kill, func(*rig.Victim) {}},
		{"paused", (*rig.Victim).Pause, (*rig.Victim).GoOn},
	} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			c := kafkatest.Shared(t)
			requests := c.CreateTopic(t, 4, nil)
			target := c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-target")
			settings := func() *config.Config {
				cfg := rig.Config(t, c.Seeds(), requests)
				cfg.SessionTimeout = session
				return cfg
			}
			other := rig.Serve(t, settings(), node.Options{})
			other.Ready(4, time.Minute)
			v := rig.StartVictim(t, settings())
			v.Ready(2, time.Minute)
			other.Ready(2, time.Minute)
			out := read(t, c, target)
			l := steady(t, c, 100, requests, target)
			await.Until(t, time.Minute, "emissions", func() bool { return len(out.all()) > 100 })

			openStep(t, v, c, settings().Group, target)
			gone := time.Now().Add(-longStep)
			how.gone(v)
			await.Until(t, 2*time.Minute, "the other instance serves all partitions", func() bool {
				status, body := other.Readyz()
				return status == 200 && countLive(body) == 4
			})
			await.For(t, 3*time.Second)
			end := time.Now()
			how.back(v)
			await.For(t, 3*time.Second)
			n := l.Stop()
			await.Until(t, wellAhead+time.Minute, fmt.Sprint(n, " emissions"),
				func() bool { return len(out.all()) >= n })
			await.For(t, time.Second) // for what must not come
			received := out.all()
			exact(t, received, n)
			longest, _ := span{how.name, gone, end}.silence(received, target)
			t.Logf("readers of the target heard nothing for %s", longest.Round(10*time.Millisecond))
			if limit := session + beyond + noise; longest > limit {
				t.Errorf("readers of the target heard nothing for %s, want at most %s", longest, limit)
			}
			if longest < time.Second {
				t.Errorf("readers of the target heard nothing for %s: no step was open, this shows nothing", longest)
			}
		})
	}
}

// longStep is how long no step takes that is not held.
const longStep = 400 * time.Millisecond

// openStep has the victim hold the end of a step that wrote to topic, and returns
// when it does: the step is open, everything of it written.
func openStep(t testing.TB, v *rig.Victim, c *kafkatest.Cluster, group, topic string) {
	t.Helper()
	adm := c.Admin(t)
	for {
		v.Hold(kmsg.EndTxn.Int16())
		v.Held()
		await.For(t, longStep)
		open, err := adm.ListTransactions(t.Context(), nil, []string{"Ongoing"})
		if err != nil {
			t.Fatalf("list transactions: %v", err)
		}
		for id := range open {
			if !strings.HasPrefix(id, repair.TransactionalIDPrefix(group)) || open[id].State != "Ongoing" {
				continue
			}
			d, err := adm.DescribeTransactions(t.Context(), id)
			if err != nil {
				t.Fatalf("describe transactions: %v", err)
			}
			if d[id].State == "Ongoing" && time.Since(time.UnixMilli(d[id].StartTimestamp)) > longStep*3/4 &&
				d[id].Topics[topic] != nil {
				return
			}
		}
	}
}
