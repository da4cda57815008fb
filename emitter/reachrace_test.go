package emitter

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

// onNewClient is a hook that is called as soon as a client exists.
type onNewClient func()

// OnNewClient implements kgo.HookNewClient.
func (o onNewClient) OnNewClient(*kgo.Client) { o() }

// A coordinator is lost after it was chosen and before its opening is recorded, so that ReachabilityChanged finds
// nothing to give up. The opening is given up nevertheless.
func TestOpeningWhoseCoordinatorIsLostBeforeItIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, reach := unreachableLane(t)
		hold(t, c, kmsg.InitProducerID, func(kmsg.Request) bool { return true })
		l.o.Client = append(l.o.Client, kgo.WithHooks(onNewClient(func() {
			reach.Lose(c.ListenAddrs()...)
			l.lanes.ReachabilityChanged()
		})))
		start := time.Now()
		l.pool.open(0)
		if err := l.pool.await(t.Context()); !errors.Is(err, errUnreachable) {
			t.Error(err)
		}
		if took := time.Since(start); took > soonUnreachable {
			t.Errorf("it took %s", took)
		}
	})
}

// lateReach is Leaders that lose all brokers after Reachable was called a given number of times.
type lateReach struct {
	*kafkatest.Reach
	asked atomic.Int32
	lost  func()
}

func (l *lateReach) Reachable(addr string) bool {
	there := l.Reach.Reachable(addr)
	if l.asked.Add(-1) == 0 {
		l.lost()
	}
	return there
}

// A coordinator is lost after the pool has checked its clients and before the step has said which of them it needs, so
// that ReachabilityChanged finds nothing to give up. The step is given up nevertheless.
func TestStepWhoseCoordinatorIsLostBeforeItIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, reach := unreachableLane(t)
		late := &lateReach{Reach: reach}
		late.lost = func() {
			reach.Lose(c.ListenAddrs()...)
			l.lanes.ReachabilityChanged()
		}
		l.o.Leaders = late
		l.pool.prepare(t.Context())
		hold(t, c, kmsg.AddPartitionsToTxn, func(kmsg.Request) bool { return true })
		s := new(fakeSource)
		l.roster.Add(s)
		late.asked.Store(int32(len(l.pool.clients))) // once for each of them, in tend
		start := time.Now()
		if _, err := l.step(t.Context()); !errors.Is(err, errUnreachable) || s.outcomes[0] != Aborted {
			t.Errorf("%v, %v", err, s.outcomes)
		}
		if took := time.Since(start); took > soonUnreachable {
			t.Errorf("it took %s", took)
		}
	})
}

// Brokers and leaders come and go all the time, while lanes open clients and run steps. When that is over, all sources
// are served again, and nothing is left behind.
func TestReachThatChangesAllTheTime(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLanes(t, 3, 2)
		reach := &kafkatest.Reach{}
		l.lanes.o.Leaders = reach
		addrs := c.ListenAddrs()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = l.lanes.Run(ctx) })
		var sources []*steady
		for range 4 {
			s := steadily(l, "log")
			s.emits = func() []Emission {
				if reach.Unreachable(timer.TopicPartition{Topic: "t"}) {
					return nil
				}
				return []Emission{{Record: &kgo.Record{Topic: "t", Value: []byte("x")}}}
			}
			sources = append(sources, s)
		}
		churn, settle := context.WithTimeout(ctx, 10*time.Second)
		defer settle()
		var changing sync.WaitGroup
		for k := range 3 {
			changing.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(k)))
				for churn.Err() == nil {
					switch random.IntN(4) {
					case 0:
						reach.Lose(addrs[random.IntN(len(addrs))])
					case 1:
						reach.LoseLeader(timer.TopicPartition{Topic: "t"})
					default:
						reach.Restore()
					}
					l.lanes.ReachabilityChanged()
					beats.Sleep(churn, time.Duration(random.IntN(20))*time.Millisecond)
				}
			})
		}
		changing.Wait()
		reach.Restore()
		l.lanes.ReachabilityChanged()
		var before []int
		for _, s := range sources {
			before = append(before, s.committed())
		}
		beats.Sleep(ctx, 2*maxBackoff+2*answerTimeout)
		for i, s := range sources {
			if s.committed() == before[i] {
				t.Errorf("source %d is not served, although all brokers are there again", i)
			}
		}
		cancel()
		running.Wait()
		for i, s := range sources {
			if s.out {
				t.Errorf("source %d has a share out", i)
			}
		}
	})
}
