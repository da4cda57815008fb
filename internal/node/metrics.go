package node

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/ownership/membership"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/partition/upcoming"
)

// stateCollector shows partitions by state, pending timers and those that fall due soon.
type stateCollector struct {
	partitions *partitions
	topics     *servedTopics
	group      *membership.Group
	misplaced  bool // misplaced timers are counted
}

var _ prometheus.Collector = (*stateCollector)(nil)

var (
	descPartitions = prometheus.NewDesc("waterclock_partitions", "Owned partitions by state.",
		[]string{"topic", "state"}, nil)
	descPending = prometheus.NewDesc("waterclock_pending_timers", "Pending timers of owned partitions.",
		[]string{"topic"}, nil)
	descMisplaced = prometheus.NewDesc("waterclock_misplaced_timers",
		"Pending timers of owned partitions whose IDs murmur2 puts on another partition.", []string{"topic"}, nil)
	descParked = prometheus.NewDesc("waterclock_parked_timers",
		"Approximate number of timers that wait for an unhealthy target.", []string{"topic"}, nil)
	descReplay = prometheus.NewDesc("waterclock_replay_remaining_offsets",
		"Changelog offsets that running replays still have to read.", []string{"topic"}, nil)
	descLedger = prometheus.NewDesc("waterclock_ledger", "Pending at the acquisition, plus accepted, minus "+
		"outcomes, minus pending: 0 whenever nothing is in flight.", []string{"topic"}, nil)
	descQueued = prometheus.NewDesc("waterclock_queue_entries",
		"Requests and firings in flight: read or planned, not committed.", []string{"topic"}, nil)
	descQueuedBytes = prometheus.NewDesc("waterclock_queue_bytes", "Bytes of those requests and firings.",
		[]string{"topic"}, nil)
	descOverdue = prometheus.NewDesc("waterclock_oldest_due_seconds",
		"How long the oldest due timer has waited to be planned.", []string{"topic"}, nil)
	descUncommitted = prometheus.NewDesc("waterclock_oldest_uncommitted_seconds",
		"How long the oldest due timer has waited for the commit of its firing; parked timers do not count.",
		[]string{"topic"}, nil)
	descHeld = prometheus.NewDesc("waterclock_intake_held_seconds", "For how long an open transaction of a "+
		"producer has kept requests behind it from being read, from 2 s on.",
		[]string{"topic", "partition", "producer_id", "transactional_id"}, nil)
	descForeign = prometheus.NewDesc("waterclock_group_foreign", "1 while programs that are not instances of "+
		"this version use the group: they keep this instance out, or it leads the group and gives them nothing; "+
		"else 0.", nil, nil)
	descParkedBy = prometheus.NewDesc("waterclock_parked_timers_by_target",
		"Approximate number of timers that wait for an unhealthy target partition.",
		[]string{"topic", "target", "partition"}, nil)
	descDeferred = prometheus.NewDesc("waterclock_deferred_timers",
		"Approximate number of timers that are due and wait for the rate of their target.", []string{"target"}, nil)
)

// Describe implements prometheus.Collector.
func (sc *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descPartitions, descPending, descMisplaced, descParked, descReplay, descLedger, descQueued, descQueuedBytes,
		descOverdue, descUncommitted, descHeld, descForeign, descParkedBy, descDeferred,
		descDueWithin,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (sc *stateCollector) Collect(ch chan<- prometheus.Metric) {
	foreign := 0.0
	if sc.group.Foreign() {
		foreign = 1
	}
	ch <- prometheus.MustNewConstMetric(descForeign, prometheus.GaugeValue, foreign)
	type sums struct {
		states    [ownership.Gone]int
		uncounted bool // misplaced timers are not counted in some partition
		of        map[*prometheus.Desc]float64
	}
	parkedBy, deferred := make(map[[3]string]int64), make(map[string]int64)
	all := make(map[string]*sums)
	var held []prometheus.Metric
	for _, name := range sc.topics.names() {
		all[name] = &sums{uncounted: !sc.misplaced, of: make(map[*prometheus.Desc]float64)}
		for _, desc := range []*prometheus.Desc{descPending, descMisplaced, descParked, descReplay, descLedger,
			descQueued, descQueuedBytes, descOverdue, descUncommitted} {
			all[name].of[desc] = 0
		}
	}
	for at, s := range sc.partitions.Status() {
		sum := all[at.Topic]
		sum.states[s.State]++
		sum.of[descPending] += float64(s.Pending)
		sum.of[descMisplaced] += float64(s.Misplaced)
		sum.uncounted = sum.uncounted || s.Misplaced < 0
		sum.of[descParked] += float64(s.Parked)
		sum.of[descLedger] += float64(s.Ledger)
		sum.of[descQueued] += float64(s.Queued)
		sum.of[descQueuedBytes] += float64(s.QueuedBytes)
		sum.of[descOverdue] = max(sum.of[descOverdue], s.Overdue.Seconds())
		sum.of[descUncommitted] = max(sum.of[descUncommitted], s.Uncommitted.Seconds())
		if h := s.Held; h != nil {
			held = append(held, prometheus.MustNewConstMetric(
				descHeld, prometheus.GaugeValue, max(0, time.Since(h.Since).Seconds()),
				at.Topic, strconv.Itoa(int(at.Partition)), h.ProducerID, h.TransactionalID))
		}
		for to, n := range s.ParkedBy {
			parkedBy[[3]string{at.Topic, to.Topic, to.Label()}] += n
		}
		for target, d := range s.Deferred {
			deferred[target] += d.Timers
		}
		if s.State == ownership.Replaying {
			sum.of[descReplay] += float64(max(0, s.ReplayEnd-s.Replayed))
		}
	}
	for topic, sum := range all {
		for st, n := range sum.states {
			ch <- prometheus.MustNewConstMetric(descPartitions, prometheus.GaugeValue, float64(n), topic,
				ownership.State(st).String())
		}
		if sum.uncounted {
			delete(sum.of, descMisplaced)
		}
		for desc, value := range sum.of {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, topic)
		}
	}
	for _, m := range held {
		ch <- m
	}
	showParked(ch, parkedBy)
	showDeferred(ch, deferred)
	sc.forecast(ch)
}

// maxParkedShown is how many target partitions with parked timers have a metric of their own: those with the most
// timers. The others are added up to one metric for each request topic.
const maxParkedShown = 100

// showDeferred shows the targets with the most deferred timers, and the sum of the others.
func showDeferred(ch chan<- prometheus.Metric, by map[string]int64) {
	targets := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b))
	})
	others := int64(0)
	for i, target := range targets {
		if i < maxParkedShown {
			ch <- prometheus.MustNewConstMetric(descDeferred, prometheus.GaugeValue, float64(by[target]), target)
		} else {
			others += by[target]
		}
	}
	if others > 0 {
		ch <- prometheus.MustNewConstMetric(descDeferred, prometheus.GaugeValue, float64(others), "others")
	}
}

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

var descDueWithin = prometheus.NewDesc("waterclock_due_within", "Pending timers of owned partitions that fall due "+
	"within the window from now. Exact but for the last second of the window, of which a part is taken. Of a "+
	"recurring timer the next occurrence counts. Paused, parked and overdue timers do not. Counting takes some "+
	"seconds after an acquisition, a minute with ten millions in the hour.", []string{"topic", "window"}, nil)

// forecast shows how many timers fall due soon.
func (sc *stateCollector) forecast(ch chan<- prometheus.Metric) {
	all := make(map[string]*upcoming.Due)
	for name := range sc.topics.requests() {
		all[name] = new(upcoming.Due)
	}
	for at, served := range sc.partitions.all() {
		p, ok := served.(*partition.Partition)
		if !ok {
			continue
		}
		for i, n := range p.Upcoming() {
			all[at.Topic][i] += n
		}
	}
	for topic, due := range all {
		for i, n := range due {
			ch <- prometheus.MustNewConstMetric(descDueWithin, prometheus.GaugeValue, float64(n), topic,
				span.String(upcoming.Windows[i]))
		}
	}
}
