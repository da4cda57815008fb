package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

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
	c := kafkatest.Shared(t)
	s := newSetup(t, c)
	p, target, out := s.running(t)
	due := time.Now().Add(40 * time.Second)
	s.spread(t, target, "id-", n, due)
	pending(t, n, p)
	stopped(t, p)

	// Unread in the old partitions: cancels, replacements, new timers, one bad.
	id := func(i int) string { return fmt.Sprint("id-", i) }
	before := c.Client(t)
	for i := range 10 {
		rig.Send(t, before, &kgo.Record{Topic: s.requests, Key: []byte(id(i))})
	}
	for i := 10; i < 20; i++ {
		rig.Send(t, before, timer(s.requests, target, id(i), "unread", due))
	}
	for i := range 10 {
		rig.Send(t, before, timer(s.requests, target, fmt.Sprint("new-", i), "unread", due))
	}
	rig.Send(t, before, &kgo.Record{Topic: s.requests, Key: []byte("bad"), Value: []byte("v")})
	s.grow(t, s.requests, grownTo)

	// Where IDs lie now: the later request for those that are above, too.
	after := c.Client(t)
	for i := 15; i < 30; i++ {
		rig.Send(t, after, &kgo.Record{Topic: s.requests, Key: []byte(id(i))})
	}
	for i := 30; i < 50; i++ {
		rig.Send(t, after, timer(s.requests, target, id(i), "after", due))
	}
	for i := range 5 {
		rig.Send(t, after, &kgo.Record{Topic: s.requests, Key: fmt.Append(nil, "new-", i)})
	}
	refused(t, rig.Start(t, s.arguments()...), 1,
		s.words([]string{"partitions is 4, must be 6, as of REQUESTS", "waterclock topics follow"})...)
	said := s.follow(t)
	t.Log(said)
	if again := s.follow(t); !strings.Contains(again, "nothing to do") {
		t.Errorf("a second time: %s", again)
	}

	p = rig.Start(t, s.arguments()...)
	p.Ready(grownTo, readyLimit)
	// And what is written from now on finds them.
	for i := 50; i < 60; i++ {
		rig.Send(t, after, &kgo.Record{Topic: s.requests, Key: []byte(id(i))})
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
	pending(t, float64(len(want)), p)
	if n := p.Metric("waterclock_misplaced_timers"); n != 0 {
		t.Errorf("%v timers still lie off their partition", n)
	}
	if time.Now().After(due) {
		t.Fatal("the machine is too slow for this test")
	}
	exactly(t, out, len(want))
	moved := 0
	for _, r := range out.Records() {
		if want[string(r.Key)] != string(r.Value) {
			t.Errorf("%s fired with %q, want %q", r.Key, r.Value, want[string(r.Key)])
		}
		if strings.HasPrefix(r.Header("waterclock-source"), s.requests+".waterclock.changelog/") {
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
func (s *setup) follow(t testing.TB, more ...string) string {
	t.Helper()
	p := rig.Exec(t, nil, append([]string{
		"topics", "follow", "--brokers", strings.Join(s.c.Seeds(), ","), "--requests", s.requests, "--targets", "*",
		"--group", "group-of-" + s.requests,
	}, more...)...)
	if code := p.Exit(exitLimit); code != 0 {
		t.Fatalf("follow ends with %d: %s", code, p.Output())
	}
	return p.Output()
}
