package contract

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// act is one request of a story: a timer, due so long after the start if the pace is 1, or a cancel.
type act struct {
	due    time.Duration
	cancel bool
}

const (
	beforeStop = time.Second      // due while the first instance runs
	whileDown  = 8 * time.Second  // due while nobody runs
	startAgain = 10 * time.Second // when the second instance starts
	afterStart = 18 * time.Second // due while the second instance runs
	longPast   = -time.Hour
)

// story is what happens to one ID. fires says which of its timers fire.
type story struct {
	name    string
	running []act // written and settled while the first instance runs
	last    []act // written just before it stops; it may not have read them
	down    []act // written while nobody runs, after whileDown
	fires   []int // by number of the act, from 0, over all three
}

func fireAt(d time.Duration) act { return act{due: d} }

var cancelled = act{cancel: true}

func stories() []story {
	return []story{
		{"cancelled before", []act{fireAt(afterStart), cancelled}, nil, nil, nil},
		{"cancelled before, due while down", []act{fireAt(whileDown), cancelled}, nil, nil, nil},
		{"cancelled just before the stop", []act{fireAt(whileDown)}, []act{cancelled}, nil, nil},
		{"replaced just before the stop", []act{fireAt(afterStart)}, []act{fireAt(whileDown)}, nil, []int{1}},
		{"pending, due while down", []act{fireAt(whileDown)}, nil, nil, []int{0}},
		{"pending, due later", []act{fireAt(afterStart)}, nil, nil, []int{0}},
		{"due while down, cancelled while down", []act{fireAt(whileDown)}, nil, []act{cancelled}, nil},
		{"due later, cancelled while down", []act{fireAt(afterStart)}, nil, []act{cancelled}, nil},
		{"due while down, replaced by later", []act{fireAt(whileDown)}, nil, []act{fireAt(afterStart)}, []int{1}},
		{"due while down, replaced by past", []act{fireAt(whileDown)}, nil, []act{fireAt(longPast)}, []int{1}},
		{"due later, replaced by overdue", []act{fireAt(afterStart)}, nil, []act{fireAt(whileDown)}, []int{1}},
		{"due later, replaced by past", []act{fireAt(afterStart)}, nil, []act{fireAt(longPast)}, []int{1}},
		{"cancelled and scheduled while down", []act{fireAt(whileDown)}, nil, []act{cancelled, fireAt(whileDown)},
			[]int{2}},
		{"scheduled thrice while down", []act{fireAt(whileDown)}, nil,
			[]act{fireAt(longPast), fireAt(afterStart), fireAt(whileDown)}, []int{3}},
		{"past, then cancelled while down", []act{fireAt(afterStart)}, nil, []act{fireAt(longPast), cancelled}, nil},
		{"fired before, cancelled while down", []act{fireAt(beforeStop)}, nil, []act{cancelled}, []int{0}},
		{"fired before, scheduled while down", []act{fireAt(beforeStop)}, nil, []act{fireAt(whileDown)}, []int{0, 1}},
		{"new while down, overdue", nil, nil, []act{fireAt(whileDown)}, []int{0}},
		{"new while down, due later", nil, nil, []act{fireAt(afterStart)}, []int{0}},
		{"new while down, cancelled", nil, nil, []act{fireAt(whileDown), cancelled}, nil},
		{"new while down, overdue then later", nil, nil, []act{fireAt(whileDown), fireAt(afterStart)}, []int{1}},
		{"new while down, later then overdue", nil, nil, []act{fireAt(afterStart), fireAt(longPast)}, []int{1}},
	}
}

// told is one story told with one ID.
type told struct {
	story
	id       string
	requests []want // by number of the act
}

// write appends the requests of acts.
func (t *told) write(s *setup, at func(time.Duration) time.Time, acts []act) (recs []*kgo.Record) {
	for _, a := range acts {
		w := want{request: s.Cancel(t.id)}
		if !a.cancel {
			w = s.schedule(t.id, t.name, at(a.due).UnixMilli())
		}
		t.requests = append(t.requests, w)
		recs = append(recs, w.request)
	}
	return recs
}

// TestRequestsBeforeAndBetweenTwoRunsAreObeyedInOrder cancels and replaces: what is cancelled or replaced in the log
// never fires after a restart, even if the request came while nobody ran and after the timer was due. Overdue timers
// fire at once after the start.
func TestRequestsBeforeAndBetweenTwoRunsAreObeyedInOrder(t *testing.T) {
	t.Parallel()
	for name, deleted := range map[string]bool{"directory kept": false, "directory deleted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for pace := 1; !testRestart(t, deleted, pace); pace *= 2 {
				if pace == 8 {
					t.Fatal("too slow a machine for this test at any pace")
				}
			}
		})
	}
}

// testRestart tells all stories, pace times as slowly as their acts say. It returns false if the machine was
// too slow for that pace.
func testRestart(t *testing.T, deleted bool, pace int) bool {
	at := func(d time.Duration) time.Duration { return d * time.Duration(pace) }
	const each = 60 // IDs of one story
	s := newSetup(t, kafkatest.Shared(t), 4, 3)
	cfg := s.Config()
	first := s.serve(cfg, 4)

	var all []*told
	for _, st := range stories() {
		for i := range each {
			all = append(all, &told{story: st, id: fmt.Sprintf("%s %d", st.name, i)})
		}
	}
	rand.New(rand.NewPCG(5, 1)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	start := time.Now()
	tell := func(chapter func(*told) []act) (n int) {
		var recs []*kgo.Record
		for _, x := range all {
			recs = append(recs, x.write(s, func(d time.Duration) time.Time { return start.Add(at(d)) }, chapter(x))...)
		}
		s.Send(recs...)
		return len(recs)
	}
	settledBefore := tell(func(x *told) []act { return x.running })
	s.settled(settledBefore)
	s.Out.WaitFor(2*each, patience) // those due beforeStop
	tell(func(x *told) []act { return x.last })
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > at(whileDown) {
		t.Logf("it took %s until the first instance had stopped, at a pace of %d", took, pace)
		return false
	}
	await.For(t, time.Until(start.Add(at(whileDown)+time.Second))) // let it fall due
	down := tell(func(x *told) []act { return x.down })
	if deleted {
		cfg.DataDir = t.TempDir()
	}
	await.For(t, time.Until(start.Add(at(startAgain))))

	s.serve(cfg, 4)
	live := time.Now()
	if took := live.Sub(start); took > at(afterStart) {
		t.Logf("it took %s until the second instance was live, at a pace of %d", took, pace)
		if err := s.in.Stop(); err != nil {
			t.Fatal(err)
		}
		return false
	}
	for _, x := range all {
		for _, n := range x.fires {
			s.sent = append(s.sent, x.requests[n])
		}
	}
	s.Out.WaitFor(len(s.sent), time.Until(start.Add(at(afterStart)))+patience)
	s.end(down)
	for _, r := range s.Out.Records()[2*each:] {
		late := r.At.Sub(live)
		if number(r, "waterclock-due") < start.Add(at(startAgain)).UnixMilli() && late > onTime {
			t.Errorf("overdue %s came %s after the instance was live", show(r.Key), late)
		}
	}
	return true
}
