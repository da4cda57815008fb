package brokers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// grownTo is how many partitions a request topic is given.
const grownTo = partitions + 2

// A request topic is given partitions while timers are pending and requests lie
// unread in its old partitions; producers go on before anybody moves anything.
// Timers move to where their IDs lie now: what is written there cancels and
// replaces them, and each fires once.
func TestRequestTopicThatGrew(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const n = 120
	s := rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)
	p := running(s)
	due := time.Now().Add(40 * time.Second)
	s.Spread("id-", n, due)
	s.Pending(n, p)
	p.End()

	// Unread in the old partitions: cancels, replacements, new timers, one bad.
	id := func(i int) string { return fmt.Sprint("id-", i) }
	before := s.Client
	for i := range 10 {
		rig.Send(t, before, s.Cancel(id(i)))
	}
	for i := 10; i < 20; i++ {
		rig.Send(t, before, s.Timer(id(i), "unread", due))
	}
	for i := range 10 {
		rig.Send(t, before, s.Timer(fmt.Sprint("new-", i), "unread", due))
	}
	rig.Send(t, before, s.Request("bad", "v"))
	grow(s, s.Requests, grownTo)

	// Where IDs lie now: the later request for those that are above, too.
	after := s.Cluster.Client(t) // it knows the new partitions
	for i := 15; i < 30; i++ {
		rig.Send(t, after, s.Cancel(id(i)))
	}
	for i := 30; i < 50; i++ {
		rig.Send(t, after, s.Timer(id(i), "after", due))
	}
	for i := range 5 {
		rig.Send(t, after, s.Cancel(fmt.Sprint("new-", i)))
	}
	refused(t, s.Start(), 1,
		words(s, []string{"partitions is 4, must be 6, as of REQUESTS", "waterclock topics follow"})...)
	said := follow(s)
	t.Log(said)
	if again := follow(s); !strings.Contains(again, "nothing to do") {
		t.Errorf("a second time: %s", again)
	}

	p = s.Start()
	p.Ready(grownTo, rig.Patience)
	// And what is written from now on finds them.
	for i := 50; i < 60; i++ {
		rig.Send(t, after, s.Cancel(id(i)))
	}
	want := map[string]string{}
	for i := range n {
		switch {
		case i < 10 || i >= 15 && i < 30 || i >= 50 && i < 60:
		case i < 15:
			want[id(i)] = "unread"
		case i >= 30 && i < 50:
			want[id(i)] = "after"
		default:
			want[id(i)] = "v"
		}
	}
	for i := 5; i < 10; i++ {
		want[fmt.Sprint("new-", i)] = "unread"
	}
	s.Pending(len(want), p)
	if n := p.Metric("waterclock_misplaced_timers"); n != 0 {
		t.Errorf("%v timers still lie off their partition", n)
	}
	s.NotYet(due)
	rig.Complete(t, s.Out, len(want))
	moved := 0
	for _, r := range s.Out.Records() {
		if want[string(r.Key)] != string(r.Value) {
			t.Errorf("%s fired with %q, want %q", r.Key, r.Value, want[string(r.Key)])
		}
		if strings.HasPrefix(r.Header("waterclock-source"), s.Requests+".waterclock.changelog/") {
			moved++
			if intake.Murmur2Partition(r.Key, partitions) == intake.Murmur2Partition(r.Key, grownTo) {
				t.Errorf("%s was moved and needed not be", r.Key)
			}
		}
	}
	if moved == 0 {
		t.Error("no timer was moved")
	}
	if n := p.Metric("waterclock_dead_letters_total"); n != 0 || !strings.Contains(said, "refused: 1") {
		t.Errorf("the bad request: %v dead letters of the instance, %s", n, said)
	}
	p.Settled()
}

// follow runs waterclock topics follow and returns what it says.
func follow(s *rig.Setup) string {
	s.Helper()
	p := rig.Exec(s.T, nil, "topics", "follow", "--brokers", strings.Join(s.Cluster.Seeds(), ","), "--requests", s.Requests, "--targets", "*",
		"--group", "group-of-"+s.Requests)
	if code := p.Exit(rig.Patience); code != 0 {
		s.Fatalf("follow ends with %d: %s", code, p.Output())
	}
	return p.Output()
}
