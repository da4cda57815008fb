package emitter

import (
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
)

// pile is a source with a given amount ready. It fails if it is asked while one of its shares is out.
type pile struct {
	t     interface{ Errorf(string, ...any) }
	topic string

	mu    sync.Mutex // guards the fields below
	ready int
	out   int // entries of the share that is out
	asked int
}

func (p *pile) Seal(_ string, room *Room) *Share {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked++; p.out > 0 {
		p.t.Errorf("a source of %s is asked while its share is out", p.topic)
	}
	n := min(p.ready, room.Entries)
	if n == 0 {
		return nil
	}
	p.ready, p.out = p.ready-n, n
	room.Entries -= n
	return &Share{Token: fakeToken{}, Offset: Offset{Topic: p.topic}, Done: func(o Outcome) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if o != Committed {
			p.ready += p.out
		}
		p.out = 0
	}}
}

func (*pile) Wait() time.Duration { return maxSleep }

func (p *pile) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready += n
}

// tried is a step under way.
type tried struct {
	shares       []*Share
	inQuarantine bool
	judged       bool // by the quarantine: its outcome is unknown
	told         bool // its sources know the outcome, the lanes do not yet
}

// Lanes seal, their steps end in any order, and sources come, go and hold them up: no share is out twice, and
// no waiting source is forgotten.
func TestSourcesAreNeitherSharedNorForgotten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := NewLanes(Options{Lanes: 4, Logger: slog.New(slog.DiscardHandler),
			Metrics: NewMetrics(prometheus.NewRegistry())})
		p.trying = true // the test itself makes the tries
		var sources []*pile
		var steps []*tried // under way
		tell := func(t *rapid.T, s *tried, hold bool) {
			s.told = true
			for _, s := range s.shares {
				if hold && rapid.Bool().Draw(t, "held") {
					s.hold(timer.TopicPartition{Topic: "log"}, errHeld)
				}
				o := Committed
				if s.Held != nil || rapid.Bool().Draw(t, "aborted") {
					o = Aborted
				}
				s.proven = s.Held == nil
				s.Done(o)
			}
		}
		settle := func(t *rapid.T, i int) {
			s := steps[i]
			steps = slices.Delete(steps, i, i+1)
			p.settled(t.Context(), s.shares)
			if s.inQuarantine && !s.judged {
				p.quarantine.judge(s.shares, nil, nil)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				s := &pile{t: t, topic: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "topic")}
				sources = append(sources, s)
				p.Add(s)
			},
			"ready": func(t *rapid.T) {
				if len(sources) > 0 {
					rapid.SampledFrom(sources).Draw(t, "source").add(
						rapid.SampledFrom([]int{1, 100, MaxStepEntries}).Draw(t, "entries"))
				}
			},
			"seal": func(t *rapid.T) {
				if shares := rapid.SampledFrom(p.all).Draw(t, "lane").seal("step"); len(shares) > 0 {
					steps = append(steps, &tried{shares: shares})
				}
			},
			"end": func(t *rapid.T) { // sources hear of it before the lanes do
				if len(steps) == 0 {
					return
				}
				i := rapid.IntRange(0, len(steps)-1).Draw(t, "step")
				switch s := steps[i]; {
				case s.told:
					settle(t, i)
				case s.inQuarantine && !s.judged && rapid.Bool().Draw(t, "unknown"):
					s.judged = true
					for _, s := range s.shares {
						s.proven = true
					}
					p.quarantine.judge(s.shares, errUnknown, nil)
				default:
					tell(t, s, !s.judged)
				}
			},
			"try": func(t *rapid.T) {
				for _, m := range inQuarantine(p.roster) {
					m.in.next = time.Time{}
				}
				due, _ := p.quarantine.due()
				p.trying = true // still
				if shares := p.quarantine.seal("try", due); len(shares) > 0 {
					steps = append(steps, &tried{shares: shares, inQuarantine: true})
				}
			},
			"again": func(t *rapid.T) { // acquired again, perhaps before the lanes know the outcome
				if len(sources) > 0 {
					s := rapid.SampledFrom(sources).Draw(t, "source")
					if p.Remove(s); s.out == 0 {
						p.Add(s)
						return
					}
					sources = slices.DeleteFunc(sources, func(x *pile) bool { return x == s })
				}
			},
			"join": func(*rapid.T) {
				p.mu.Lock()
				p.laneSet.join()
				called := p.laneSet.joining
				p.mu.Unlock()
				if called {
					p.joined()
				}
			},
			"leave": func(t *rapid.T) {
				p.laneSet.busy = time.Time{}
				for _, l := range p.all {
					if !slices.Contains(p.laneSet.spare, l.called) && p.leaves(l.called) {
						<-l.called
						return
					}
				}
			},
			"": func(t *rapid.T) {
				for _, m := range p.members {
					n := 0
					for _, w := range p.waiting {
						if w == m {
							n++
						}
					}
					if waits := !m.claimed && m.in == nil; waits && n != 1 || !waits && n > 0 {
						t.Fatalf("claimed %v, in the quarantine %v: %d times among those that wait", m.claimed,
							m.in != nil, n)
					}
				}
				if len(p.members) != len(sources) {
					t.Fatalf("%d members, %d sources", len(p.members), len(sources))
				}
			},
		})
		for len(steps) > 0 {
			if !steps[0].told {
				tell(t, steps[0], false)
			}
			settle(t, 0)
		}
		p.mu.Lock()
		for _, m := range inQuarantine(p.roster) {
			p.releaseLocked(m)
		}
		p.mu.Unlock()
		idle := 0
		for i := 0; idle < len(p.all); i++ {
			shares := p.all[i%len(p.all)].seal("rest")
			if idle++; len(shares) == 0 {
				continue
			}
			idle = 0
			for _, s := range shares {
				s.Done(Committed)
			}
			p.settled(t.Context(), shares)
		}
		for _, s := range sources {
			if s.ready > 0 || s.out > 0 {
				t.Errorf("a source is forgotten: %d ready, %d out", s.ready, s.out)
			}
		}
	})
}

// activeOf waits until the given number of lanes is active, and returns how long that took.
func activeOf(t *testing.T, p *Lanes, want int) time.Duration {
	t.Helper()
	return await.Until(t, testLimit, fmt.Sprintf("%d lanes are active", want), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.laneSet.active == want
	})
}

// Lanes join while steps are full, at most one for each source, and leave again when steps are far from full. Each has
// as many transactional IDs as it is told. All sources continue, and the records of each are in order.
func TestLanesJoinAndLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLanes(t, 1, 4)
		var mu sync.Mutex
		used := make(map[string]map[string]bool) // transactional IDs that ended a transaction, by lane
		c.ControlKey(kmsg.EndTxn.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			id := r.(*kmsg.EndTxnRequest).TransactionalID
			lane := path.Dir(id)
			mu.Lock()
			defer mu.Unlock()
			if used[lane] == nil {
				used[lane] = make(map[string]bool)
			}
			used[lane][id] = true
			return nil, nil, false
		})
		sources := []*steady{steadily(l, "log"), steadily(l, "t"), steadily(l, "good")}
		for i, s := range sources {
			s.records, s.partition = MaxStepEntries, int32(i)
		}
		runLane(t, l)
		activeOf(t, l.lanes, len(sources))
		full := sources[0].committed()
		await.Until(t, testLimit, "full steps go on", func() bool { return sources[0].committed() > full+2 })
		await.Until(t, testLimit, "three lanes use two transactional IDs each", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(used) == 3 && !slices.ContainsFunc(slices.Collect(maps.Values(used)),
				func(ids map[string]bool) bool { return len(ids) != 2 })
		})
		l.roster.mu.Lock()
		if spare := len(l.roster.laneSet.spare); spare != 1 || l.roster.laneSet.joining {
			t.Errorf("%d lanes are spare, joining %v; three have a source each", spare, l.roster.laneSet.joining)
		}
		l.roster.mu.Unlock()
		for _, s := range sources {
			s.mu.Lock()
			s.records = 10
			s.mu.Unlock()
		}
		if took := activeOf(t, l.lanes, 1); took > 4*leaveAfter {
			t.Errorf("one lane is left after %s", took)
		}
		for i, s := range sources {
			n := s.committed()
			await.Until(t, testLimit, fmt.Sprintf("source %d goes on", i), func() bool { return s.committed() > n+3 })
			inOrder(t, s)
		}
	})
}

// hangOnce makes coordinators not answer the first announce of partitions until over is called.
func hangOnce(t *testing.T, c *kfake.Cluster) (begun *atomic.Bool, hangs chan struct{}, over func()) {
	begun, hangs = new(atomic.Bool), make(chan struct{})
	over = sync.OnceFunc(func() { close(hangs) })
	t.Cleanup(over)
	c.ControlKey(kmsg.AddPartitionsToTxn.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if begun.CompareAndSwap(false, true) {
			c.SleepControl(func() { <-hangs })
		}
		return nil, nil, false
	})
	return begun, hangs, over
}

// A lane waits for a silent coordinator. Another lane soon commits everything that is not in its step, and leaves when
// it is no longer needed.
func TestAHangingLaneDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLanes(t, 1, 2)
		begun, _, over := hangOnce(t, c)
		held := steadily(l, "t")
		runLane(t, l)
		await.Until(t, testLimit, "the lane hangs", begun.Load)
		at := time.Now()
		other := steadily(l, "log")
		await.Until(t, testLimit, "the other source commits", func() bool { return other.committed() > 3 })
		if took := time.Since(at); took > stuckAfter+time.Second {
			t.Errorf("the other source commits after %s", took)
		}
		if held.committed() > 0 {
			t.Error("the lane did not hang")
		}
		over()
		await.Until(t, testLimit, "the source that was held commits", func() bool { return held.committed() > 3 })
		activeOf(t, l.lanes, 1)
		inOrder(t, held)
	})
}

// tardy is a source that gets something ready just after it was asked.
type tardy struct {
	p     *Lanes
	asked int
}

func (t *tardy) Seal(string, *Room) *Share {
	t.asked++
	switch t.asked {
	case 1:
		t.p.Wake()
		<-t.p.wake // sent by a lane that sleeps
		if shares := t.p.all[1].seal("by the other"); len(shares) > 0 {
			panic("a source is asked by two")
		}
	case 2:
		return &Share{Token: fakeToken{}, Offset: Offset{Topic: "r"}}
	}
	return nil
}

func (*tardy) Wait() time.Duration { return maxSleep }

// A source becomes ready just after a lane has asked it. The wake-up reaches another lane, which finds the
// source out. The first lane asks again, and does not sleep for a second.
func TestAWakeThatAnotherLaneTookIsNotLost(t *testing.T) {
	p := NewLanes(Options{Lanes: 2})
	p.laneSet.active = 2
	p.Add(&tardy{p: p})
	<-p.wake
	if shares := p.all[0].seal("step"); len(shares) != 1 {
		t.Errorf("%d shares, want that which became ready meanwhile", len(shares))
	}
}

// A lane that joins because another one hangs does not wait for silent coordinators once it has one that
// answers.
func TestALaneJoinsWithTheCoordinatorsThatAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLanes(t, 1, 2)
		begun, hangs, over := hangOnce(t, c)
		var opened atomic.Int64
		c.ControlKey(kmsg.InitProducerID.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			if begun.Load() && opened.Add(1) > 1 {
				c.SleepControl(func() { <-hangs })
			}
			return nil, nil, false
		})
		steadily(l, "t")
		runLane(t, l)
		await.Until(t, testLimit, "the lane hangs", begun.Load)
		at := time.Now()
		other := steadily(l, "log")
		await.Until(t, testLimit, "the other source commits", func() bool { return other.committed() > 0 })
		if took := time.Since(at); took > 2*stuckAfter+500*time.Millisecond {
			t.Errorf("the other source commits after %s", took)
		}
		over()
	})
}
