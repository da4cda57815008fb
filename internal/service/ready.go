package service

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/ownership"
)

// report is what /readyz shows.
type report struct {
	Phase   string                            `json:"phase,omitempty"`
	Member  bool                              `json:"member"`
	Group   string                            `json:"group,omitempty"`   // why it is no member, or may be none, as a sentence
	Access  []string                          `json:"access,omitempty"`  // problems, as sentences
	Stopped map[string]string                 `json:"stopped,omitempty"` // request topics, and why
	Clock   string                            `json:"clock,omitempty"`   // why targets refuse the clock, as a sentence
	Topics  map[string]map[string]partitionOf `json:"topics"`
}

type partitionOf struct {
	State     string `json:"state"`
	Reason    string `json:"reason,omitempty"`
	Warning   string `json:"warning,omitempty"`
	Pending   int64  `json:"pending"`
	Replayed  int64  `json:"replayed,omitempty"`
	ReplayEnd int64  `json:"replay_end,omitempty"`
}

// Ready implements ops.Readiness: member of the group, by what a broker has said
// within the session timeout, and every owned partition live.
func (in *instance) Ready() (bool, any) {
	in.mu.Lock()
	defer in.mu.Unlock()
	r := report{Phase: in.phase, Topics: make(map[string]map[string]partitionOf)}
	r.Member = in.phase == "" && in.group.Joined()
	if in.phase == "" {
		r.Group = in.membership()
	}
	if in.access != nil {
		r.Access = in.access.Problems()
	}
	ok := r.Member && r.Group == "" && len(r.Access) == 0
	if in.phase == "" {
		r.Stopped = in.recheck.stops()
		wrong := false
		r.Clock, wrong = in.clock.problem()
		ok = ok && len(r.Stopped) == 0 && !wrong
	}
	for k, o := range in.parts {
		s := o.p.Status()
		if s.State == ownership.Gone {
			continue
		}
		if r.Topics[k.topic] == nil {
			r.Topics[k.topic] = make(map[string]partitionOf)
		}
		po := partitionOf{State: s.State.String(), Reason: s.Reason, Warning: s.Warning, Pending: s.Pending}
		if s.State == ownership.Replaying {
			po.Replayed, po.ReplayEnd = s.Replayed, s.ReplayEnd
		}
		r.Topics[k.topic][strconv.Itoa(int(k.partition))] = po
		ok = ok && s.State == ownership.Live
	}
	return ok, r
}

// membership is why the instance is no member of its group, or may be none, as a
// sentence; "" if it is one.
func (in *instance) membership() string {
	why := cmp.Or(in.group.Problem(), in.group.Unresponsive())
	if why == "" && !in.group.Joined() {
		why = "joining group " + in.cfg.Group
	}
	return why
}

// stateCollector shows partitions by state and pending timers.
type stateCollector struct{ in *instance }

var (
	descPartitions  = prometheus.NewDesc("waterclock_partitions", "Owned partitions by state.", []string{"topic", "state"}, nil)
	descPending     = prometheus.NewDesc("waterclock_pending_timers", "Pending timers of owned partitions.", []string{"topic"}, nil)
	descMisplaced   = prometheus.NewDesc("waterclock_misplaced_timers", "Pending timers of owned partitions whose IDs murmur2 puts on another partition.", []string{"topic"}, nil)
	descParked      = prometheus.NewDesc("waterclock_parked_timers", "Timers that wait for an unhealthy target, about.", []string{"topic"}, nil)
	descReplay      = prometheus.NewDesc("waterclock_replay_remaining_offsets", "Changelog offsets that running replays have yet to go through.", []string{"topic"}, nil)
	descLedger      = prometheus.NewDesc("waterclock_ledger", "Pending at the acquisition, plus accepted, minus outcomes, minus pending: 0 whenever nothing is on its way.", []string{"topic"}, nil)
	descQueued      = prometheus.NewDesc("waterclock_queue_entries", "Requests and firings that are read or planned and not committed.", []string{"topic"}, nil)
	descQueuedBytes = prometheus.NewDesc("waterclock_queue_bytes", "Bytes that they hold.", []string{"topic"}, nil)
	descOverdue     = prometheus.NewDesc("waterclock_oldest_due_seconds", "For how long the oldest timer that is not planned yet has been due.", []string{"topic"}, nil)
	descUncommitted = prometheus.NewDesc("waterclock_oldest_uncommitted_seconds", "For how long the oldest timer has been due whose firing is not committed; parked timers do not count.", []string{"topic"}, nil)
	descHeld        = prometheus.NewDesc("waterclock_intake_held_seconds", "For how long an open transaction of a producer has kept requests behind it from being read, from 2 s on.", []string{"topic", "partition", "producer_id", "transactional_id"}, nil)
	descForeign     = prometheus.NewDesc("waterclock_group_foreign", "1 while programs that are no instances of this version use the group: they keep this instance out, or it leads the group and gives them nothing; else 0.", nil, nil)
	descParkedBy    = prometheus.NewDesc("waterclock_parked_timers_by_target", "Timers that wait for an unhealthy target partition, about.", []string{"topic", "target", "partition"}, nil)
)

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- descPartitions
	ch <- descPending
	ch <- descMisplaced
	ch <- descParked
	ch <- descReplay
	ch <- descLedger
	ch <- descQueued
	ch <- descQueuedBytes
	ch <- descOverdue
	ch <- descUncommitted
	ch <- descHeld
	ch <- descForeign
	ch <- descParkedBy
}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	foreign := 0.0
	if c.in.group.Foreign() {
		foreign = 1
	}
	ch <- prometheus.MustNewConstMetric(descForeign, prometheus.GaugeValue, foreign)
	type sums struct {
		states  [ownership.Gone + 1]int
		pending int64
		off     int64 // misplaced
		unknown bool  // how many those are
		parked  int64
		remain  int64
		ledger  int64
		queued  int
		bytes   int64
		overdue time.Duration
		waits   time.Duration
	}
	parkedBy := make(map[[3]string]int64)
	all := make(map[string]*sums)
	var held []prometheus.Metric
	for _, name := range c.in.all() {
		all[name] = &sums{}
	}
	c.in.mu.Lock()
	for k, o := range c.in.parts {
		s := o.p.Status()
		sum := all[k.topic]
		sum.states[s.State]++
		sum.pending += s.Pending
		sum.off, sum.unknown = sum.off+max(s.Misplaced, 0), sum.unknown || s.Misplaced < 0
		sum.parked += s.Parked
		sum.ledger += s.Ledger
		sum.queued += s.Queued
		sum.bytes += s.QueuedBytes
		sum.overdue, sum.waits = max(sum.overdue, s.Overdue), max(sum.waits, s.Uncommitted)
		if h := s.Held; h != nil {
			held = append(held, prometheus.MustNewConstMetric(descHeld, prometheus.GaugeValue, max(0, time.Since(h.Since).Seconds()),
				k.topic, strconv.Itoa(int(k.partition)), h.ProducerID, h.TransactionalID))
		}
		for to, n := range s.ParkedBy {
			parkedBy[[3]string{k.topic, to.Topic, to.Label()}] += n
		}
		if s.State == ownership.Replaying {
			sum.remain += max(0, s.ReplayEnd-s.Replayed)
		}
	}
	c.in.mu.Unlock()
	for topic, sum := range all {
		for st, n := range sum.states[:ownership.Gone] {
			ch <- prometheus.MustNewConstMetric(descPartitions, prometheus.GaugeValue, float64(n), topic, ownership.State(st).String())
		}
		ch <- prometheus.MustNewConstMetric(descPending, prometheus.GaugeValue, float64(sum.pending), topic)
		if !sum.unknown && c.in.cfg.PartitionerCheck != config.CheckOff {
			ch <- prometheus.MustNewConstMetric(descMisplaced, prometheus.GaugeValue, float64(sum.off), topic)
		}
		ch <- prometheus.MustNewConstMetric(descParked, prometheus.GaugeValue, float64(sum.parked), topic)
		ch <- prometheus.MustNewConstMetric(descLedger, prometheus.GaugeValue, float64(sum.ledger), topic)
		ch <- prometheus.MustNewConstMetric(descQueued, prometheus.GaugeValue, float64(sum.queued), topic)
		ch <- prometheus.MustNewConstMetric(descQueuedBytes, prometheus.GaugeValue, float64(sum.bytes), topic)
		ch <- prometheus.MustNewConstMetric(descOverdue, prometheus.GaugeValue, sum.overdue.Seconds(), topic)
		ch <- prometheus.MustNewConstMetric(descUncommitted, prometheus.GaugeValue, sum.waits.Seconds(), topic)
		ch <- prometheus.MustNewConstMetric(descReplay, prometheus.GaugeValue, float64(sum.remain), topic)
	}
	for _, m := range held {
		ch <- m
	}
	showParked(ch, parkedBy)
}

// maxParkedShown is how many target partitions with parked timers have a metric
// of their own, those with most; the others are shown as one.
const maxParkedShown = 100

func showParked(ch chan<- prometheus.Metric, by map[[3]string]int64) {
	targets := slices.SortedFunc(maps.Keys(by), func(a, b [3]string) int {
		return cmp.Or(cmp.Compare(by[b], by[a]), slices.Compare(a[:], b[:]))
	})
	others := make(map[string]int64)
	for i, t := range targets {
		if i < maxParkedShown {
			ch <- prometheus.MustNewConstMetric(descParkedBy, prometheus.GaugeValue, float64(by[t]), t[:]...)
		} else {
			others[t[0]] += by[t]
		}
	}
	for topic, n := range others {
		ch <- prometheus.MustNewConstMetric(descParkedBy, prometheus.GaugeValue, float64(n), topic, "others", "")
	}
}
