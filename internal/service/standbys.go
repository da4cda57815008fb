package service

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/internal/beats"
	"github.com/waterclock/waterclock/internal/membership"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// standbyEvery is how often standbys are compared with what the group wants.
	standbyEvery = 200 * time.Millisecond
	// caughtUp is how old the last look at a changelog's end may be, all of which was folded, for a copy that has
	// caught up.
	caughtUp = 10 * time.Second
	// standbyAgain is the pause before a follower that has failed goes on, and standbyFailed if only an operator can help.
	standbyAgain, standbyFailed = 5 * time.Second, time.Minute
	// takeWait is how long the end of a follower is waited for before it loses its place in the store.
	takeWait = time.Second
	// rejoinAgain is when the group is asked again for what this process has caught up with and was not given.
	rejoinAgain = time.Minute
)

// standbys follow partitions that other instances own, as the leader of the group says, so that this instance can own them
// without a replay. Whether a copy may be believed is decided when it is used, by the acquisition: it gets the follower
// itself, with all that it knows of the log (ownership.Life.TakeOver).
//
// A partition is followed or owned, never both: a follower does not begin before the partition's goroutine has ended, and
// Run of a partition does not begin before take has returned. mu is held over both decisions.
type standbys struct {
	o       standbyOptions
	metrics *standbyMetrics
	wg      sync.WaitGroup // their goroutines

	mu       sync.Mutex // guards what follows
	want     []membership.Follow
	rejoined time.Time // when the group was last asked because all that is wanted next has caught up; zero: since follow, never
	runs     map[timer.TopicPartition]*standby
}

type standbyOptions struct {
	topics     *servedTopics
	partitions *partitions
	store      *statestore.Store
	client     *kgo.Client
	slots      *semaphore.Weighted // of replays
	turns      *semaphore.Weighted // of those that nobody waits for
	room       int                 // bytes of one replay
	damaged    func()              // called if a copy was damaged
	log        *slog.Logger
}

// standby is one partition that is followed.
type standby struct {
	f      *ownership.Follower
	handle *statestore.Handle
	cancel context.CancelFunc
	ended  chan struct{}
}

func newStandbys(o standbyOptions, registry *prometheus.Registry) *standbys {
	s := &standbys{o: o, runs: make(map[timer.TopicPartition]*standby)}
	s.metrics = &standbyMetrics{standbys: s, damaged: o.damaged, followed: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "waterclock_standby_offsets_total", Help: "Changelog offsets that were read for copies of partitions that other instances own.",
	})}
	registry.MustRegister(s.metrics)
	return s
}

// asMember is what the group is told, given how many copies there are to be.
func (s *standbys) asMember(number int) membership.Standbys {
	if number == 0 {
		return membership.Standbys{}
	}
	return membership.Standbys{
		Number: number, Copies: s.copies, Follow: s.follow,
		Copied: func(topic string) bool { t := s.o.topics.of(topic); return t != nil && !t.delayed() },
	}
}

// follow is told what to follow from now on. It does not wait.
func (s *standbys) follow(want []membership.Follow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want, s.rejoined = want, time.Time{}
}

// Run follows until ctx ends. rejoin has the group balance again.
func (s *standbys) Run(ctx context.Context, rejoin func()) error {
	t := beats.NewTicker(standbyEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			s.end()
			s.wg.Wait()
			return nil
		case <-t.C:
			s.reconcile(ctx)
			if s.mayOwnMore() {
				rejoin()
			}
		}
	}
}

// reconcile begins and ends followers.
func (s *standbys) reconcile(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := make(map[timer.TopicPartition]bool, len(s.want))
	for _, w := range s.want {
		at := timer.TopicPartition{Topic: w.Topic, Partition: w.Partition}
		wanted[at] = true
		topic := s.o.topics.of(w.Topic)
		if s.runs[at] == nil && topic != nil && !topic.delayed() && w.Partition < topic.set.Request.Partitions &&
			s.o.topics.stopOf(w.Topic) == nil && !s.o.partitions.has(at) {
			s.runs[at] = s.begin(ctx, at, topic)
		}
	}
	for at, run := range s.runs {
		if !wanted[at] || s.o.topics.stopOf(at.Topic) != nil {
			run.cancel()
		}
		select {
		case <-run.ended:
			run.handle.Release()
			delete(s.runs, at)
		default:
		}
	}
}

func (s *standbys) begin(ctx context.Context, at timer.TopicPartition, topic *served) *standby {
	ctx, cancel := context.WithCancel(ctx)
	log := s.o.log.With("topic", at.Topic, "partition", at.Partition)
	run := &standby{cancel: cancel, ended: make(chan struct{})}
	run.handle = s.o.store.Partition(statestore.PartitionID{Topic: topic.set.Request.ID, Partition: at.Partition}).Acquire()
	local := &ownership.Local{Handle: run.handle, Slots: s.o.slots, Turns: s.o.turns, Room: s.o.room}
	run.f = ownership.NewFollower(ownership.FollowOptions{
		Topics: &topic.set, Partition: at.Partition, Client: s.o.client, Settings: topic.settings, Local: local, Logger: log, Metrics: s.metrics,
	})
	s.wg.Go(func() {
		defer close(run.ended)
		defer cancel()
		for ctx.Err() == nil {
			err := run.f.Follow(ctx)
			if ctx.Err() != nil || errors.Is(err, statestore.ErrEnded) {
				return
			}
			if statestore.IsCorrupt(err) || errors.Is(err, statestore.ErrNewerFormat) {
				local.Damage = err
			}
			pause, fatal := standbyAgain, (*ownership.Fatal)(nil)
			if errors.As(err, &fatal) {
				pause = standbyFailed
			}
			log.Warn("cannot follow the partition, trying again", "after", pause, "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	})
	return run
}

// end ends all followers.
func (s *standbys) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want = nil
	for _, run := range s.runs {
		run.cancel()
	}
}

// take ends the follower of a partition that this process owns from now on, and returns it; nil if there is none. The
// partition's store has no other user until the caller acquires it.
func (s *standbys) take(at timer.TopicPartition) *ownership.Follower {
	s.mu.Lock()
	run := s.runs[at]
	delete(s.runs, at)
	s.mu.Unlock()
	if run == nil {
		return nil
	}
	run.cancel()
	select {
	case <-run.ended:
	case <-time.After(takeWait): // it waits for the disk; without its handle it does not
		run.handle.Release()
		<-run.ended
	}
	return run.f
}

// copies returns what this process follows.
func (s *standbys) copies() (all []membership.Copy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, run := range s.runs {
		v := membership.View{Topic: at.Topic, Partition: at.Partition, Position: max(0, run.f.Position())}
		all = append(all, membership.Copy{View: v, CaughtUp: run.caughtUp()})
	}
	return all
}

func (run *standby) caughtUp() bool {
	at := run.f.Reached()
	return !at.IsZero() && time.Since(at) < caughtUp
}

// mayOwnMore reports, once, that this process has caught up with all that it is to own next.
func (s *standbys) mayOwnMore() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := 0
	for _, w := range s.want {
		if !w.Next {
			continue
		}
		next++
		if run := s.runs[timer.TopicPartition{Topic: w.Topic, Partition: w.Partition}]; run == nil || !run.caughtUp() {
			return false
		}
	}
	if next == 0 || time.Since(s.rejoined) < rejoinAgain {
		return false
	}
	s.rejoined = time.Now()
	return true
}

// standbyMetrics show and count what standbys do. It implements ownership.FollowMetrics.
type standbyMetrics struct {
	standbys *standbys
	followed prometheus.Counter
	damaged  func()
}

var descStandbys = prometheus.NewDesc("waterclock_standby_partitions", "Partitions of which this instance keeps a copy for another owner, by state: caught_up, behind.", []string{"topic", "state"}, nil)

// Replayed implements ownership.FollowMetrics.
func (m *standbyMetrics) Replayed(offsets int64) { m.followed.Add(float64(max(0, offsets))) }

// Damaged implements ownership.FollowMetrics.
func (m *standbyMetrics) Damaged() { m.damaged() }

// Describe implements prometheus.Collector.
func (m *standbyMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- descStandbys
	m.followed.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *standbyMetrics) Collect(ch chan<- prometheus.Metric) {
	m.followed.Collect(ch)
	states := make(map[string][2]int)
	for name := range m.standbys.o.topics.requests() {
		states[name] = [2]int{}
	}
	for _, c := range m.standbys.copies() {
		n := states[c.Topic]
		if c.CaughtUp {
			n[0]++
		} else {
			n[1]++
		}
		states[c.Topic] = n
	}
	for topic, n := range states {
		for i, state := range []string{"caught_up", "behind"} {
			ch <- prometheus.MustNewConstMetric(descStandbys, prometheus.GaugeValue, float64(n[i]), topic, state)
		}
	}
}
