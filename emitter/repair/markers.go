package repair

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// endedKept is how long the end of a transaction is remembered. It is more than a broker's session, the answer to a
	// marker that is on its way, and a refresh of the targets together.
	endedKept = time.Minute
	// lagging is how much later than this process a coordinator may hear of a new leader. A transaction
	// that ends later than that after a move has its marker. A coordinator that is further behind is
	// fenced, and its successor writes the markers.
	lagging = 12 * time.Second
	// maxEndedTxns bounds the ends that are remembered. Each has the list of its step's partitions.
	maxEndedTxns = 16_384
	// alike is how many recent ends are searched for one with the same partitions, to share its list.
	alike = 16
	// doubtAfter is how long a partition must have a leader, and no open transaction of the group, until it is no
	// longer in doubt.
	doubtAfter = time.Second
	// doubtKept is how long a partition stays in doubt if it was deleted or the service may not inspect it.
	doubtKept = time.Hour
	// doubtLogInterval is the pause between two logs about a partition that cannot be inspected.
	doubtLogInterval = time.Minute
	// blindKept is how long a missing permission to read the group's offsets is remembered.
	blindKept = 10 * time.Minute
	// markerTick is how often partitions in doubt are checked.
	markerTick = 500 * time.Millisecond
	// markerPatience is how long a marker may be on its way: see overdue.
	markerPatience = 400 * time.Millisecond
	// markerTimeout bounds one look at one partition.
	markerTimeout = 3 * time.Second
)

// endedTxn is a transaction that was ended by this process.
type endedTxn struct {
	Producer
	txnID string
	how   Ending
	parts map[string][]int32
	at    time.Time
}

func (e *endedTxn) wrote(p timer.TopicPartition) bool {
	return slices.Contains(e.parts[p.Topic], p.Partition)
}

// doubt is a partition that may lack a marker: it had no leader, or a new one, while a transaction on it may
// have been ending.
type doubt struct {
	since        time.Time
	moved        time.Time // when it was last found to have had no leader, or another one
	healthySince time.Time // since when it has a leader and nothing of ours is open
	noted        map[Producer]*endedTxn
	alert        bool           // it has no leader, or is known to lack a marker
	failing      beats.Reminder // looks at it fail
	// awaited says since when each marker has been seen to be on its way.
	awaited map[Producer]time.Time
}

// Markers remembers how transactions ended, and writes the markers that brokers lost.
//
// A partition that has no leader while a transaction ends gets no marker (KAFKA-20734): the coordinator
// takes the partition for deleted and calls the transaction complete. When the leader is back the
// transaction hangs there, and holds up read_committed readers of the partition. The next marker of the
// same producer ID then closes it, with that marker's outcome instead of its own.
//
// So a transactional ID whose last transaction touched such a partition is not begun again. Once the leader is back and
// still shows the transaction open, the marker of the right outcome is written. While leaders stay, brokers are not
// asked. A move is noticed by the refresh of metadata, by a client's own metadata at its next turn, or by a step that
// fails.
//
// A nil Markers remembers nothing. mu guards the fields below it.
type Markers struct {
	client  *kgo.Client
	targets *targets.Metadata
	group   string
	log     *slog.Logger
	metrics *Metrics
	// blind: the group's offsets are not read before this time, Unix ns, because the permission is missing.
	blind atomic.Int64

	mu         sync.Mutex
	ends       []*endedTxn // in order of time
	doubtful   map[timer.TopicPartition]*doubt
	retiredIDs map[int64]bool // producer IDs not to be begun again
	wake       beats.Signal
}

// NewMarkers returns a Markers that learns from metadata which leaders moved. Run writes the markers.
func NewMarkers(cl *kgo.Client, metadata *targets.Metadata, group string, log *slog.Logger, m *Metrics) *Markers {
	k := &Markers{
		client: cl, targets: metadata, group: group, log: log, metrics: m,
		doubtful: make(map[timer.TopicPartition]*doubt), retiredIDs: make(map[int64]bool), wake: beats.NewSignal(),
	}
	metadata.Moved = k.Moved
	return k
}

// NoteEnd notes that a transaction was ended, or may have been.
func (m *Markers) NoteEnd(txnID string, p Producer, how Ending, parts map[string][]int32) {
	if m == nil {
		return
	}
	e := &endedTxn{Producer: p, txnID: txnID, how: how, parts: parts, at: time.Now()}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(e.at)
	for _, before := range m.ends[max(0, len(m.ends)-alike):] {
		if maps.EqualFunc(parts, before.parts, slices.Equal) {
			e.parts = before.parts
		}
	}
	m.ends = append(m.ends, e)
	for to, d := range m.doubtful {
		// A transaction that ended long after the last move has its marker. Without this check, a doubt that cannot be
		// checked would retire each transactional ID and collect ends for doubtKept.
		if e.wrote(to) && e.at.Sub(d.moved) < lagging {
			m.note(d, e)
		}
	}
}

// forget drops old entries. The lock is held.
func (m *Markers) forget(now time.Time) {
	n := 0
	for n < len(m.ends) && (now.Sub(m.ends[n].at) > endedKept || len(m.ends)-n >= maxEndedTxns) {
		n++
	}
	if n > len(m.ends)/2 || n > 1024 {
		m.ends = append([]*endedTxn(nil), m.ends[n:]...)
	}
}

// note ties an end to a doubt. The lock is held.
func (m *Markers) note(d *doubt, e *endedTxn) {
	d.noted[e.Producer] = e
	d.healthySince = time.Time{}
	m.retiredIDs[e.ID] = true
}

// Moved puts a partition in doubt: it lost its leader, or has a new one.
func (m *Markers) Moved(to timer.TopicPartition) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.doubtful[to]
	if d == nil {
		d = &doubt{since: time.Now(), noted: make(map[Producer]*endedTxn),
			alert: m.targets.State(to) == targets.Leaderless}
		m.doubtful[to] = d
	}
	d.healthySince, d.moved = time.Time{}, time.Now()
	for _, e := range m.ends {
		if e.wrote(to) {
			m.note(d, e)
		}
	}
	m.count()
	m.wake.Send()
}

// Probed notes that the transaction of a probe was ended with an abort, and whether its partition failed.
func (m *Markers) Probed(txnID string, producerID int64, epoch int16, to timer.TopicPartition, failed bool) {
	m.NoteEnd(txnID, Producer{producerID, epoch}, EndingAbort, map[string][]int32{to.Topic: {to.Partition}})
	if failed {
		m.Moved(to)
	}
}

// count sets the gauge. The lock is held.
func (m *Markers) count() {
	n := 0
	for _, d := range m.doubtful {
		if d.alert && len(d.noted) > 0 {
			n++
		}
	}
	m.metrics.missing.Set(float64(n))
}

// Retired reports whether a producer ID must not be begun again.
func (m *Markers) Retired(id int64) bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.retiredIDs[id]
}

// Outcome returns the remembered ending of a transaction, and its transactional ID.
func (m *Markers) Outcome(to timer.TopicPartition, p Producer) (how Ending, txnID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.doubtful[to]; d != nil {
		if e := d.noted[p]; e != nil {
			return e.how, e.txnID
		}
	}
	for i := len(m.ends) - 1; i >= 0; i-- {
		if m.ends[i].Producer == p {
			return m.ends[i].how, m.ends[i].txnID
		}
	}
	return EndingUnknown, ""
}

// Doubtful returns the partitions in doubt.
func (m *Markers) Doubtful() (all []timer.TopicPartition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.doubtful))
}

// looked notes the result of a look at a partition with a leader. Once two looks, doubtAfter apart, have found no open
// transaction of the group, the partition is no longer in doubt.
func (m *Markers) looked(to timer.TopicPartition, clear bool) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.doubtful[to]
	switch {
	case d == nil:
	case !clear:
		d.healthySince, d.alert = time.Time{}, true
		m.count()
	case d.healthySince.IsZero():
		d.healthySince, d.awaited = now, nil
	case now.Sub(d.healthySince) >= doubtAfter:
		m.dismiss(to)
	}
}

// leaderless notes that a partition in doubt has no leader.
func (m *Markers) leaderless(to timer.TopicPartition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.doubtful[to]; d != nil {
		d.healthySince, d.awaited, d.alert, d.moved = time.Time{}, nil, true, time.Now()
		m.count()
	}
}

// dismiss ends a doubt. The lock is held.
func (m *Markers) dismiss(to timer.TopicPartition) {
	delete(m.doubtful, to)
	m.count()
	if len(m.doubtful) == 0 {
		// By now lanes have used every ID again: that takes much less than doubtAfter.
		m.forgetRetired()
	}
}

// forgetRetired forgets producer IDs that no remembered transaction has. The lock is held.
func (m *Markers) forgetRetired() {
	recent := make(map[int64]bool)
	for _, e := range m.ends {
		recent[e.ID] = true
	}
	maps.DeleteFunc(m.retiredIDs, func(id int64, _ bool) bool { return !recent[id] })
}
