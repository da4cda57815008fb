package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/metric"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/ownership/membership"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// standbyEvery is how often standbys are compared with the group's wishes.
	standbyEvery = 200 * time.Millisecond
	// beginAfter is how long the group must have wanted a copy before this process begins it. See standbys.
	beginAfter = time.Second
	// A copy has caught up if it has folded the changelog up to an end that was looked up at most caughtUp ago. The
	// group allows a session timeout more: see copies.
	caughtUp = 10 * time.Second
	// standbyAgain is the pause before a follower that has failed goes on. standbyFailed is the pause if only an
	// operator can help.
	standbyAgain, standbyFailed = 5 * time.Second, time.Minute
	// endWithin is how long a follower that is told to end may wait for the disk. After that it loses its handle of the
	// store, and with it its knowledge of the log.
	endWithin = time.Second
	// rejoinAgain is how often the group is asked again for partitions that have caught up and that it has not given.
	rejoinAgain = time.Minute
)

// standbys follow partitions that other instances own, so that this instance can acquire them without a replay. The
// leader of the group says which. The acquisition decides whether it can trust a copy: it gets the follower itself,
// with all that the follower knows of the log (ownership.Life.TakeOver).
//
// A partition is followed or owned, never both: a follower does not begin before the partition's goroutine has ended,
// and Run of a partition does not begin before take has returned. mu is held for both decisions. It is not held while
// the store is used, because each join of the group waits for it.
//
// New copies wait for beginAfter. When a member stops, its partitions need new owners, and its copies have to be made
// anew by others. The others hear of both at the same time. A copy begins with dozens of requests, and then reads the
// whole changelog. If copies began immediately, acquisitions would wait behind them for a core and on the connection
// that they share, and the partitions that move would be silent for about twice as long. The pause of a copy begins
// when the group first wants the copy, so further rebalances do not prolong it. Copies that this process already has
// are not interrupted. Correctness does not depend on the pause. It makes a new copy complete a second later;
// until then, the death of the owner costs a replay.
//
// The group client calls follow before it reports that a partition is assigned. In between it may drain other
// partitions, for up to a second. So a partition that is assigned to this instance is followed until take is called.
type standbys struct {
	o       standbyOptions
	metrics *standbyMetrics
	wg      sync.WaitGroup // the goroutines of the followers

	mu       sync.Mutex // guards the fields below
	want     map[timer.TopicPartition]wanted
	assigned map[timer.TopicPartition]bool // partitions assigned to this instance; set together with want
	since    time.Time                     // when follow was last called, or the group was asked for more
	asked    bool                          // the group was asked since follow was last called
	runs     map[timer.TopicPartition]*standby
}

// wanted is a copy that the group wants here.
type wanted struct {
	next  bool      // this process is to own the partition once the copy has caught up
	since time.Time // when it was first wanted; every call of follow since then wanted it too
}

type standbyOptions struct {
	topics     *servedTopics
	partitions *partitions
	store      *statestore.Store
	client     *kgo.Client
	slots      *semaphore.Weighted // of replays
	turns      *semaphore.Weighted // of replays that no acquisition waits for
	room       int                 // bytes of one replay
	session    time.Duration       // after which the group notices that an owner has died
	damaged    func()              // called if a copy was damaged
	log        *slog.Logger
}

// standby is one partition that is followed.
type standby struct {
	f      *ownership.Follower
	cancel context.CancelFunc
	ended  chan struct{}
}

func newStandbys(o standbyOptions, registry *prometheus.Registry) *standbys {
	s := &standbys{o: o, runs: make(map[timer.TopicPartition]*standby)}
	s.metrics = &standbyMetrics{standbys: s, damaged: o.damaged, followed: metric.In(registry).Counter(
		"waterclock_standby_offsets_total",
		"Changelog offsets read for standby copies.")}
	registry.MustRegister(s.metrics)
	return s
}

// asMember returns the options of the group client for standbys, given how many copies of each partition there are to
// be.
func (s *standbys) asMember(number int) membership.Standbys {
	if number == 0 {
		return membership.Standbys{}
	}
	return membership.Standbys{
		Number: number, Copies: s.copies, Follow: s.follow,
		Copied: func(topic string) bool { t := s.o.topics.of(topic); return t != nil && !t.delayed() },
	}
}

// follow implements membership.Standbys.Follow.
func (s *standbys) follow(want []membership.Follow, assigned map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, now := s.want, time.Now()
	s.want, s.assigned = make(map[timer.TopicPartition]wanted), make(map[timer.TopicPartition]bool)
	s.since, s.asked = now, false
	for _, w := range want {
		at, since := timer.TopicPartition{Topic: w.Topic, Partition: w.Partition}, now
		if b, known := before[at]; known {
			since = b.since
		}
		s.want[at] = wanted{w.Next, since}
	}
	for topic, ps := range assigned {
		for _, p := range ps {
			s.assigned[timer.TopicPartition{Topic: topic, Partition: p}] = true
		}
	}
}

// Run follows partitions until ctx ends. rejoin makes the group balance again.
func (s *standbys) Run(ctx context.Context, rejoin func()) error {
	beats.Every(ctx, standbyEvery, func() {
		s.reconcile(ctx)
		if s.mayOwnMore() {
			rejoin()
		}
	})
	s.end()
	s.wg.Wait()
	return nil
}

// reconcile begins and ends followers.
func (s *standbys) reconcile(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, w := range s.want {
		topic := s.o.topics.of(at.Topic)
		if s.runs[at] == nil && time.Since(w.since) >= beginAfter &&
			topic != nil && !topic.delayed() && at.Partition < topic.set.Request.Partitions &&
			s.o.topics.stopOf(at.Topic) == nil && !s.o.partitions.has(at) {
			s.runs[at] = s.begin(ctx, at, topic)
		}
	}
	for at, run := range s.runs {
		if _, wanted := s.want[at]; !wanted && !s.assigned[at] || s.o.topics.stopOf(at.Topic) != nil {
			run.cancel()
		}
		select {
		case <-run.ended:
			delete(s.runs, at)
		default:
		}
	}
}

func (s *standbys) begin(ctx context.Context, at timer.TopicPartition, topic *served) *standby {
	ctx, cancel := context.WithCancel(ctx)
	log := s.o.log.With("topic", at.Topic, "partition", at.Partition)
	run := &standby{cancel: cancel, ended: make(chan struct{})}
	local := &ownership.Local{Slots: s.o.slots, Turns: s.o.turns, Room: s.o.room}
	run.f = ownership.NewFollower(ownership.FollowOptions{
		Topics: &topic.set, Partition: at.Partition, Client: s.o.client, Settings: topic.settings, Local: local,
		Logger: log, Metrics: s.metrics,
	})
	s.wg.Go(func() {
		defer close(run.ended)
		defer cancel()
		local.Handle = s.o.store.Partition(
			statestore.PartitionID{Topic: topic.set.Request.ID, Partition: at.Partition}).Acquire()
		defer local.Handle.Release()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(endWithin, local.Handle.Release) })()
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
			log.Warn("cannot follow the partition, will retry", "pause", pause, "err", err)
			beats.Sleep(ctx, pause)
		}
	})
	return run
}

// end ends all followers.
func (s *standbys) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want, s.assigned = nil, nil
	for _, run := range s.runs {
		run.cancel()
	}
}

// take ends the follower of a partition that this process owns from now on. It returns the follower; nil if there is
// none. Nothing uses the partition's store until the caller acquires it.
func (s *standbys) take(at timer.TopicPartition) *ownership.Follower {
	s.mu.Lock()
	run := s.runs[at]
	delete(s.runs, at)
	s.mu.Unlock()
	if run == nil {
		return nil
	}
	run.cancel()
	<-run.ended
	return run.f
}

// copies returns the partitions that this process follows. An owner that dies may leave a step open. No follower reads
// past that step before the group notices the death, which takes the session timeout. A copy that has waited that long
// is the one to take over, so it must not look as if it were behind.
func (s *standbys) copies() (all []membership.Copy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, run := range s.runs {
		v := membership.View{Topic: at.Topic, Partition: at.Partition, Position: max(0, run.f.Position())}
		all = append(all, membership.Copy{View: v, CaughtUp: run.reachedWithin(caughtUp + s.o.session)})
	}
	return all
}

func (s *standby) reachedWithin(d time.Duration) bool {
	at := s.f.Reached()
	return !at.IsZero() && time.Since(at) < d
}

// mayOwnMore reports whether it is time to ask the group for the partitions that this process is to own next: as soon
// as the copies of all of them have caught up, and every rejoinAgain while at least one has. So a partition that cannot
// be followed, or takes hours, does not hold up the others. The asking ends, because a partition that the group has
// given is no longer one to own next.
func (s *standbys) mayOwnMore() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, ready := 0, 0
	for at, w := range s.want {
		if !w.next {
			continue
		}
		next++
		if run := s.runs[at]; run != nil && run.reachedWithin(caughtUp) {
			ready++
		}
	}
	if ready == 0 || (ready < next || s.asked) && time.Since(s.since) < rejoinAgain {
		return false
	}
	s.since, s.asked = time.Now(), true
	return true
}

// standbyMetrics show and count the work of standbys. It implements ownership.FollowMetrics.
type standbyMetrics struct {
	standbys *standbys
	followed prometheus.Counter
	damaged  func()
}

var (
	_ prometheus.Collector    = (*standbyMetrics)(nil)
	_ ownership.FollowMetrics = (*standbyMetrics)(nil)
)

var descStandbys = prometheus.NewDesc("waterclock_standby_partitions",
	"Standby copies of partitions on this instance, by state: caught_up, behind.",
	[]string{"topic", "state"}, nil)

// Replayed implements ownership.FollowMetrics.
func (s *standbyMetrics) Replayed(offsets int64) { s.followed.Add(float64(max(0, offsets))) }

// Damaged implements ownership.FollowMetrics.
func (s *standbyMetrics) Damaged() { s.damaged() }

// Describe implements prometheus.Collector.
func (s *standbyMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- descStandbys }

// Collect implements prometheus.Collector.
func (s *standbyMetrics) Collect(ch chan<- prometheus.Metric) {
	const caught, behind = "caught_up", "behind"
	counts := make(map[[2]string]int) // by topic and state
	for name := range s.standbys.o.topics.requests() {
		counts[[2]string{name, caught}], counts[[2]string{name, behind}] = 0, 0
	}
	for _, c := range s.standbys.copies() {
		state := behind
		if c.CaughtUp {
			state = caught
		}
		counts[[2]string{c.Topic, state}]++
	}
	for key, n := range counts {
		ch <- prometheus.MustNewConstMetric(descStandbys, prometheus.GaugeValue, float64(n), key[:]...)
	}
}
