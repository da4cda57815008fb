package brokers

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

// A request topic is given partitions while timers are pending and requests lie unread in its old
// partitions; producers go on before anybody moves anything. Timers move to where their IDs lie now: what is written
// there cancels and replaces them, and each fires once.
func TestRequestTopicThatGrew(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const n, grown = 120, partitions + 2
	s := rig.NewSetup(t, kafkatest.Shared(t), partitions, 2)
	due := time.Now().Add(25*time.Second + s.Lead)
	want := make(rig.Values)
	var cl *kgo.Client
	// all schedules the timers from one number up to another, or cancels them, by a producer that knows the partitions.
	all := func(from, to int, value string) {
		t.Helper()
		var recs []*kgo.Record
		for i := from; i < to; i++ {
			id := fmt.Sprint("id-", i)
			if value == "" {
				recs = append(recs, s.Cancel(id))
				delete(want, id)
				continue
			}
			recs = append(recs, s.Valued(id, value, due))
			want[id] = []string{value}
		}
		rig.Send(t, cl, recs...)
	}
	cl = s.Cluster.Client(t)
	p := s.StartReady()
	all(0, n, "v")
	s.Pending(n, p)
	p.End()
	all(0, 10, "") // unread
	all(10, 20, "unread")
	all(n, n+10, "unread")
	rig.Send(t, cl, s.Request("bad", "v"))
	grow(s, s.Requests, grown)
	cl = s.Cluster.Client(t)
	all(15, 30, "") // the later request for some of those above, too
	all(30, 50, "after")
	all(n, n+5, "")
	refused(t, s.Start(), 1,
		words(s, []string{"partitions is 4, must be 6, as of REQUESTS", "waterclock topics follow"})...)
	follow := func() string {
		t.Helper()
		e := rig.Exec(t, nil, "topics", "follow", "--brokers", strings.Join(s.Seeds, ","), "--requests", s.Requests,
			"--targets", "*", "--group", s.Group())
		if code := e.Exit(rig.Patience); code != 0 {
			t.Fatalf("follow ends with %d: %s", code, e.Output())
		}
		return e.Output()
	}
	if said := follow(); !strings.Contains(said, "refused: 1") {
		t.Errorf("the bad request: %s", said)
	}
	if again := follow(); !strings.Contains(again, "nothing to do") {
		t.Errorf("a second time: %s", again)
	}
	s.Partitions = grown
	p = s.StartReady()
	all(50, 60, "") // what is written from now on finds them
	s.Pending(len(want), p)
	if n := p.Metric("waterclock_misplaced_timers"); n != 0 {
		t.Errorf("%v timers still lie off their partition", n)
	}
	s.NotYet(due)
	s.Finish(want)
	moved := 0
	for _, r := range s.Out.Records() {
		if strings.HasPrefix(r.Header("waterclock-source"), s.Changelog()+"/") {
			moved++
			id := []byte(r.Header("waterclock-id"))
			if intake.Murmur2Partition(id, partitions) == intake.Murmur2Partition(id, grown) {
				t.Errorf("%s was moved and needed not be", id)
			}
		}
	}
	if moved == 0 {
		t.Error("no timer was moved")
	}
	p.Settled()
}
