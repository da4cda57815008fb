package node_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/test/rig"
)

// What happens to a topic while an instance runs is noticed within seconds, an
// hour before the next check of its settings: the request topic stops, with a
// sentence that says what to do, and few words besides.
func TestTopicsThatChangeAreNoticedAtOnce(t *testing.T) {
	t.Parallel()
	const partitions = 4
	remove := func(topic string) func(*testing.T, *kadm.Client) {
		return func(t *testing.T, adm *kadm.Client) { kafkatest.DeleteTopics(t, adm, topic) }
	}
	for _, v := range []struct {
		name   string
		change func(*testing.T, *kadm.Client)
		within time.Duration
		want   []string
	}{
		{"grown", func(t *testing.T, adm *kadm.Client) { kafkatest.GrowTopics(t, adm, partitions+2, requests) },
			10 * time.Second, []string{"partitions is 6, must be 4, as before", "waterclock topics follow"}},
		{"deleted", remove(requests), 20 * time.Second, []string{"topic is missing, must be there: create it with 4 " +
			"partitions", "waterclock topics follow"}},
		{"recreated", func(t *testing.T, adm *kadm.Client) {
			remove(requests)(t, adm)
			if _, err := adm.CreateTopic(t.Context(), partitions, 1, nil, requests); err != nil {
				t.Fatal(err)
			}
		}, 10 * time.Second, []string{"ID is", "it was recreated", "waterclock topics follow"}},
		{"changelog", remove(topics.Changelog(requests)), 20 * time.Second,
			[]string{"topic is missing, must be there", "Changelog deleted"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(partitions, requests))
			in, log := rig.ServeLogged(t, rig.Config(t, c.ListenAddrs(), requests), node.Options{})
			in.Ready(partitions, limit)
			v.change(t, kadm.NewClient(cl))
			begin := time.Now()
			await.Until(t, v.within, "it stops and says so", func() bool {
				status, body := in.Readyz()
				for _, w := range v.want {
					if status == 200 || !strings.Contains(body, w) {
						return false
					}
				}
				return true
			})
			took := time.Since(begin)
			await.Until(t, limit, "failed partitions", func() bool {
				return in.Metric("waterclock_partitions", "state", "failed") == partitions
			})
			all, owned := in.Metric("waterclock_topic_partitions", "topic", requests),
				in.Metric("waterclock_partitions", "topic", requests)
			if grown := v.name == "grown"; grown != (owned < all) || owned != partitions {
				t.Errorf("%v of %v partitions are owned", owned, all)
			}
			if n := len(log.Lines("level=WARN")) + len(log.Lines("level=ERROR")); n > 6*partitions {
				t.Errorf("%d warnings and errors", n)
			}
			t.Logf("noticed after %s", took)
		})
	}
}

// Dead letters are output: a topic of theirs that is gone is recreated, where that
// is allowed, and the dead letters that wait for it go there.
func TestDeadLetterTopicLost(t *testing.T) {
	t.Parallel()
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, requests))
	adm := kadm.NewClient(cl)
	dead := topics.DeadLetters(requests)
	bad := func(t *testing.T) {
		t.Helper()
		rig.Send(t, cl, &kgo.Record{Topic: requests, Key: []byte("bad"), Value: []byte("v")})
	}
	lose := func(t *testing.T) {
		t.Helper()
		kafkatest.DeleteTopics(t, adm, dead)
	}
	cfg := rig.Config(t, c.ListenAddrs(), requests)
	t.Run("recreated", func(t *testing.T) {
		in := rig.Serve(t, cfg, node.Options{})
		in.Ready(1, limit)
		letters := func() float64 { return in.Metric("waterclock_dead_letters_total") }
		bad(t)
		await.Until(t, limit, "a dead letter", func() bool { return letters() == 1 })
		lose(t)
		bad(t)
		await.Until(t, limit, "a dead letter in the new topic", func() bool { return letters() == 2 })
		await.Until(t, limit, "the new topic holds it", func() bool { // adm may know for seconds that there is none
			ends, err := adm.ListEndOffsets(t.Context(), dead)
			o, ok := ends.Lookup(dead, 0)
			return err == nil && ok && o.Offset > 0
		})
		in.Ready(1, limit)
	})
	t.Run("not allowed", func(t *testing.T) {
		forbid := *cfg
		forbid.CreateTopics, forbid.DataDir = false, t.TempDir()
		in := rig.Serve(t, &forbid, node.Options{})
		in.Ready(1, limit)
		lose(t)
		await.Until(t, limit, "it stops and says so", func() bool {
			status, body := in.Readyz()
			return status != 200 && strings.Contains(body, dead+": topic is missing")
		})
	})
}

// If it cannot move the timers, topics follow neither gives a topic partitions nor creates one.
func TestAFailedFollowChangesNoTopic(t *testing.T) {
	const before, now = 2, 3
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(before, requests))
	cfg, adm := rig.Config(t, c.ListenAddrs(), requests), kadm.NewClient(cl)
	in := rig.Serve(t, cfg, node.Options{})
	in.Ready(before, limit)
	rig.Send(t, cl, rig.Timer(requests, "out", "a", time.Now().Add(time.Hour)))
	in.Balanced(1)
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	log, dead := topics.Changelog(requests), topics.DeadLetters(requests)
	kafkatest.GrowTopics(t, adm, now, requests)
	kafkatest.DeleteTopics(t, adm, dead)
	topicsNow := func() (changelog int, letters bool) {
		t.Helper()
		fresh := kadm.NewClient(kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...))) // the other one remembers
		there, err := fresh.ListTopics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(there[log].Partitions), there.Has(dead)
	}
	fails := func(why string) {
		t.Helper()
		err := commands.Repartition(t.Context(), cfg, commands.RepartitionOptions{}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "topics follow") {
			t.Errorf("%v, want %q", err, why)
		}
		if n, letters := topicsNow(); n != before || letters {
			t.Errorf("%s: the changelog has %d partitions now, dead letters: %v", why, n, letters)
		}
	}
	kafkatest.SetTopic(t, adm, log, "cleanup.policy", "delete")
	fails("must be compact")
	kafkatest.SetTopic(t, adm, log, "cleanup.policy", "compact")
	group := cfg.Group
	cfg.Group = "another"
	fails("was written by group")
	cfg.Group = group
	if err := commands.Repartition(t.Context(), cfg, commands.RepartitionOptions{}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if n, letters := topicsNow(); n != now || !letters {
		t.Errorf("followed: the changelog has %d partitions, dead letters: %v", n, letters)
	}
}

// An operator gives all topics more partitions by hand: nobody serves them, not the
// new partitions either, until what is pending has followed. It does then.
func TestTopicsGrownByHand(t *testing.T) {
	const before, now, timers = 3, 7, 30
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(before, requests))
	cfg := rig.Config(t, c.ListenAddrs(), requests)
	in := rig.Serve(t, cfg, node.Options{})
	in.Ready(before, limit)
	for i := range timers {
		rig.Send(t, cl, rig.Timer(requests, "out", fmt.Sprint("id", i), time.Now().Add(time.Hour)))
	}
	in.Balanced(timers)
	if err := commands.Repartition(t.Context(), cfg, commands.RepartitionOptions{}, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "stop every instance") {
		t.Errorf("with a member: %v", err)
	}
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	kafkatest.GrowTopics(t, kadm.NewClient(cl), now, requests, topics.Changelog(requests), topics.DeadLetters(requests))
	in = rig.Serve(t, cfg, node.Options{})
	await.Until(t, limit, "no partition is served", func() bool {
		_, body := in.Readyz()
		return in.Metric("waterclock_partitions", "state", "failed") == now && strings.Contains(
			body, "has 7 partitions and its timers lie as for 3")
	})
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := commands.Repartition(t.Context(), cfg, commands.RepartitionOptions{}, &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	in = rig.Serve(t, cfg, node.Options{})
	in.Ready(now, limit)
	again := kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...))
	for i := range timers / 2 {
		rig.Send(t, again, &kgo.Record{Topic: requests, Key: fmt.Append(nil, "id", i)})
	}
	in.Balanced(timers - timers/2)
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := commands.StoreVerify(t.Context(), cfg.DataDir, &out); err != nil ||
		!strings.Contains(out.String(), requests+"/6 ") {
		t.Errorf("store verify: %v\n%s", err, out.String())
	}
	t.Log(out.String())
}

// A setting for one start that was left in a file warns at each.
func TestAcceptLostChangelogWarns(t *testing.T) {
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, requests))
	cfg := rig.Config(t, c.ListenAddrs(), requests)
	for _, set := range []bool{false, true} {
		cfg.AcceptLostChangelog = set
		in, log := rig.ServeLogged(t, cfg, node.Options{})
		in.Ready(1, limit)
		if warns := len(log.Lines("take it out again")) > 0; warns != set {
			t.Errorf("set: %v, and it warns: %v", set, warns)
		}
		if err := in.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}
