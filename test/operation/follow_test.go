package operation

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/repartition"
	"github.com/waterclock/waterclock/test/rig"
)

// follow runs topics follow, and returns what it prints.
func (s *scene) follow(o commands.RepartitionOptions) string {
	s.Helper()
	var out strings.Builder
	if err := commands.Repartition(s.Context(), s.cfg, o, &out); err != nil {
		s.Fatal(err)
	}
	return out.String()
}

// If it cannot move the timers, topics follow neither gives a topic partitions nor creates one.
func TestAFailedFollowChangesNoTopic(t *testing.T) {
	t.Parallel()
	const before, now = 2, 3
	s := fake(t, before).serves()
	s.schedule("id", 1, time.Hour)
	s.Balanced(1)
	s.Stop()
	log, dead := topics.Changelog(s.Requests), topics.DeadLetters(s.Requests)
	kafkatest.GrowTopics(t, s.Admin, now, s.Requests)
	kafkatest.DeleteTopics(t, s.Admin, dead)
	topicsNow := func() (changelog int, letters bool) {
		t.Helper()
		fresh := kadm.NewClient(s.Manual()) // the other one remembers
		there, err := fresh.ListTopics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(there[log].Partitions), there.Has(dead)
	}
	fails := func(why string) {
		t.Helper()
		err := commands.Repartition(t.Context(), s.cfg, commands.RepartitionOptions{}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "topics follow") {
			t.Errorf("%v, want %q", err, why)
		}
		if n, letters := topicsNow(); n != before || letters {
			t.Errorf("%s: the changelog has %d partitions now, dead letters: %v", why, n, letters)
		}
	}
	kafkatest.SetTopic(t, s.Admin, log, "cleanup.policy", "delete")
	fails("must be compact")
	kafkatest.SetTopic(t, s.Admin, log, "cleanup.policy", "compact")
	group := s.cfg.Group
	s.cfg.Group = "another"
	fails("was written by group")
	s.cfg.Group = group
	s.follow(commands.RepartitionOptions{})
	if n, letters := topicsNow(); n != now || !letters {
		t.Errorf("followed: the changelog has %d partitions, dead letters: %v", n, letters)
	}
}

// An instance starts in the middle of the transaction in which timers follow: that one is given up, whole, and the
// instance serves nothing and says why. When it has gone again they follow.
func TestInstanceThatStartsWhileTimersFollow(t *testing.T) {
	t.Parallel()
	const before, now, timers, unread = 3, 5, 30, 10
	s := fake(t, before).serves()
	s.schedule("id", timers, time.Hour)
	s.Balanced(timers)
	s.Stop()
	s.schedule("unread", unread, time.Hour)
	kafkatest.GrowTopics(t, s.Admin, now, s.Requests)
	set, _, err := topics.Ensure(t.Context(), s.Admin, s.Requests, topics.Options{Grow: true})
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	o := repartition.Options{
		Client: []kgo.Opt{kgo.SeedBrokers(s.Seeds...)}, Admin: s.Client, Set: &set, Group: s.cfg.Group,
		Rules: &intake.Rules{Topic: s.Requests, Partitions: now, Allow: func(string) bool { return true }},
		Now: func() time.Time {
			if calls.Add(1) == 5 { // it judges: the transaction has begun
				s.begin()
				s.counts(now, "waterclock_partitions", "state", "failed")
				s.notReady("has 5 partitions and its timers lie as for 3")
			}
			return time.Now()
		},
	}
	if _, err := repartition.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "stop every instance") ||
		!strings.Contains(err.Error(), "nothing was changed") {
		t.Fatalf("with an instance: %v", err)
	}
	s.Stop()
	if r, err := repartition.Run(t.Context(), o); err != nil || r.Done() || r.Taken != unread {
		t.Fatalf("%+v, %v", r, err)
	}
	s.live = now
	s.serve()
	s.Balanced(timers + unread)
	s.Stop()
	var out strings.Builder
	if err := commands.StoreVerify(t.Context(), s.cfg.DataDir, &out); err != nil ||
		!strings.Contains(out.String(), s.Requests+"/4 ") {
		t.Errorf("store verify: %v\n%s", err, &out)
	}
}

// Timers that lie off their partition are counted at all times, across a restart too. After a topic was given more
// partitions a dry run counts the timers that will move, and once they have moved none is misplaced.
func TestMisplacedTimersAreCounted(t *testing.T) {
	t.Parallel()
	const before, now, timers = 3, 7, 40
	s := fake(t, before)
	s.o.FlushInterval = time.Second // they are counted with each flush of the store
	s.serve()
	counted := func(n int) {
		t.Helper()
		line := fmt.Sprintf("waterclock_misplaced_timers{topic=%q} %d\n", s.Requests, n)
		s.until(line, func() bool { return strings.Contains(s.Metrics(), line) })
	}
	moves := 0
	s.schedule("id", timers, time.Hour)
	for i := range timers {
		id := fmt.Append(nil, "id", i)
		if intake.Murmur2Partition(id, before) != intake.Murmur2Partition(id, now) {
			moves++
		}
	}
	s.Balanced(timers)
	counted(0)

	manual := s.Manual()
	for i := range int32(before) {
		r := s.Timer("wandering", time.Now().Add(time.Hour))
		r.Partition = i
		rig.Send(t, manual, r)
	}
	counted(before - 1)
	s.Stop()
	s.serve()
	counted(before - 1)
	for i := range int32(before) {
		r := s.Cancel("wandering")
		r.Partition = i
		rig.Send(t, manual, r)
	}
	counted(0)

	kafkatest.GrowTopics(t, s.Admin, now, s.Requests)
	if said := s.follow(commands.RepartitionOptions{DryRun: true}); !strings.Contains(
		said, fmt.Sprintf("timers to be moved: %d,", moves)) {
		t.Errorf("%d timers are to be moved: %s", moves, said)
	}
	s.Stop()
	if said := s.follow(commands.RepartitionOptions{}); !strings.Contains(
		said, fmt.Sprintf("timers moved: %d,", moves)) {
		t.Errorf("%d timers move: %s", moves, said)
	}
	s.live = now
	s.serve()
	counted(0)
	s.Balanced(timers)
}

// A directory whose misplaced timers were not counted, or for another number of partitions, is wiped at the next
// start, and at no later one. So is one that an older build has written.
func TestUncountedDirectoryIsWipedOnce(t *testing.T) {
	t.Parallel()
	const before, now, timers = 2, 3, 60
	s := fake(t, before)
	for _, v := range []struct {
		when  string
		check config.Check
		wipes bool
	}{
		{"first", config.CheckOff, false},
		{"still uncounted", config.CheckOff, false},
		{"counted", config.CheckWarn, true},
		{"counted before", config.CheckWarn, false},
		{"grown", config.CheckWarn, true},
		{"grown before", config.CheckWarn, false},
		{"uncounted again", config.CheckOff, false},
		{"counted again", config.CheckWarn, true},
		{"counted for good", config.CheckWarn, false},
	} {
		if v.when == "grown" {
			kafkatest.GrowTopics(t, s.Admin, now, s.Requests)
			s.follow(commands.RepartitionOptions{})
			s.live = now
		}
		s.cfg.PartitionerCheck = v.check
		s.serve()
		if v.when == "first" {
			s.schedule("id", timers, time.Hour)
		}
		s.Balanced(timers)
		if n := len(s.log.Lines("wiping the local view")); (n > 0) != v.wipes || n > s.live {
			t.Errorf("%s: %d views were wiped, wanted any: %v", v.when, n, v.wipes)
		}
		s.Stop()
	}
}

// A timer that its producer has put on another partition: dev warns of it too, the API finds it, and a cancel that
// names the partition reaches it, as one by the ID does not.
func TestTimerOffItsPartition(t *testing.T) {
	t.Parallel()
	s := fake(t, 2)
	s.o.Shown = true
	get := s.withAPI()
	s.serve()
	rec := s.Timer("a1", time.Now().Add(time.Hour))
	rec.Partition = 1 - intake.Murmur2Partition(rec.Key, 2)
	rig.Send(t, s.Manual(), rec)
	s.says("request on the wrong partition")
	var is api.Timer
	s.until("the API finds it", func() bool { return get("/v1/topics/"+s.Requests+"/timers/a1", &is) == http.StatusOK })
	if is.Partition != rec.Partition || is.Note == "" {
		t.Errorf("%+v", is)
	}
	for _, x := range []struct {
		partition *int32
		want      waterclock.EventType
	}{{nil, commands.NothingDone}, {&rec.Partition, waterclock.EventCancelled}} {
		sent, err := commands.Send(t.Context(), s.cfg, commands.Request{
			Topic: s.Requests, ID: "a1", Action: commands.Cancel, Partition: x.partition, Wait: limit})
		if err != nil || sent.Outcome == nil || sent.Outcome.Type != x.want {
			t.Errorf("%+v, %+v, %v; want %s", sent, sent.Outcome, err, x.want)
		}
	}
}
