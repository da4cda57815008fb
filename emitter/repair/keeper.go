package repair

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

// Run looks at partitions in doubt until ctx ends.
func (m *Markers) Run(ctx context.Context) error {
	beats.EveryOr(ctx, markerTick, m.wake, func() {
		doubtful := m.Doubtful()
		if len(doubtful) == 0 {
			return
		}
		m.refresh(ctx, doubtful)
		for _, to := range doubtful {
			if err := m.look(ctx, to); err != nil && ctx.Err() == nil {
				m.report(to, err)
			}
		}
	})
	return nil
}

// refresh looks up the leaders of partitions.
func (m *Markers) refresh(ctx context.Context, doubtful []timer.TopicPartition) {
	var topics []string
	for _, to := range doubtful {
		if !slices.Contains(topics, to.Topic) {
			topics = append(topics, to.Topic)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, markerTimeout)
	defer cancel()
	_ = m.targets.Refresh(ctx, topics...) // on failure the known leaders stay
}

// report logs why a look failed: immediately, and then once a minute while it keeps failing.
func (m *Markers) report(to timer.TopicPartition, err error) {
	m.mu.Lock()
	d := m.doubtful[to]
	news := d != nil && d.failing.Due(doubtLogInterval)
	if d != nil && time.Since(d.since) > doubtKept {
		m.dismiss(to)
	}
	m.mu.Unlock()
	if news {
		m.log.Warn("cannot check for a missing transaction marker", "topic", to.Topic, "partition",
			to.Partition, "err", err)
	}
}

// look writes the markers that a partition lacks, if it has a leader.
func (m *Markers) look(ctx context.Context, to timer.TopicPartition) error {
	ctx, cancel := context.WithTimeout(ctx, markerTimeout)
	defer cancel()
	switch m.targets.State(to) {
	case targets.Leaderless:
		m.leaderless(to)
		return nil
	case targets.NoPartition:
		m.looked(to, true)
		return nil
	}
	adm := kadm.NewClient(m.client)
	open, err := openProducers(ctx, adm, to, nil)
	if err != nil {
		return err
	}
	clear := true
	for _, p := range open {
		missing, err := m.close(ctx, adm, to, Producer{p.ProducerID, p.ProducerEpoch})
		if err != nil {
			m.looked(to, false)
			return err
		}
		clear = clear && !missing
	}
	m.looked(to, clear)
	return nil
}

// close writes the marker of a transaction of the group that has ended but is still open on a partition. It reports
// whether the marker is missing.
func (m *Markers) close(ctx context.Context, adm *kadm.Client, to timer.TopicPartition,
	p Producer) (missing bool, err error) {
	how, txnID := m.Outcome(to, p)
	txn, found, err := TransactionOf(ctx, adm, p.ID, txnID)
	switch {
	case err != nil:
		return false, err
	case !found && how == EndingUnknown, found && !strings.HasPrefix(txn.TxnID, TransactionalIDPrefix(m.group)):
		return false, nil // not one of ours
	case found && UnderWay(txn, p) && (how == EndingUnknown || EndingOf(txn, p) != how || !m.overdue(to, p)):
		// The markers are on their way. Prepare is trusted only if this process already knew how the transaction ended:
		// a restarted coordinator may have read Prepare from its own log, and its successor may decide otherwise. See
		// docs/internals/FAILURES.md.
		return how != EndingUnknown || EndingOf(txn, p) != EndingUnknown, nil
	}
	if how == EndingUnknown && found {
		how = EndingOf(txn, p)
	}
	if how == EndingUnknown {
		return true, fmt.Errorf("producer %d epoch %d is open on %s/%d and how its transaction ended is not known",
			p.ID, p.Epoch, to.Topic, to.Partition)
	}
	return true, writeMarker(ctx, adm, to, p, how, func() {
		m.log.Warn("wrote a missing transaction marker", "topic", to.Topic, "partition",
			to.Partition,
			"transactional_id", txn.TxnID, "outcome", how.String())
		m.metrics.written.Inc()
	})
}

// endedElsewhere notes the end of another client's transaction, and looks up the leaders of its partitions. This is
// rare.
func (m *Markers) endedElsewhere(ctx context.Context, txnID string, p Producer, how Ending, parts map[string][]int32) {
	if m == nil || len(parts) == 0 {
		return
	}
	m.NoteEnd(txnID, p, how, parts)
	var all []timer.TopicPartition
	for topic, ps := range parts {
		for _, n := range ps {
			all = append(all, timer.TopicPartition{Topic: topic, Partition: n})
		}
	}
	m.refresh(context.WithoutCancel(ctx), all)
	for _, to := range all {
		if m.targets.State(to) == targets.Leaderless {
			m.Moved(to)
		}
	}
}

// openProducers lists the transactions that are open on a partition, except those of some producers.
func openProducers(ctx context.Context, adm *kadm.Client, to timer.TopicPartition,
	except map[int64]bool) (open []kadm.DescribedProducer, err error) {
	var set kadm.TopicsSet
	set.Add(to.Topic, to.Partition)
	described, err := adm.DescribeProducers(ctx, set)
	if err != nil {
		return nil, fmt.Errorf("describe producers of %s/%d: %w", to.Topic, to.Partition, err)
	}
	for _, p := range described.SortedPartitions() {
		if p.Err != nil {
			return nil, fmt.Errorf("describe producers of %s/%d: %w", to.Topic, to.Partition, p.Err)
		}
	}
	for _, p := range described.SortedProducers() {
		if p.CurrentTxnStartOffset >= 0 && !except[p.ProducerID] {
			open = append(open, p)
		}
	}
	return open, nil
}

// overdue reports whether a marker has been on its way for too long to a partition that has a leader. If
// the former leader became unresponsive with the marker, the coordinator waits for request.timeout.ms (30 s)
// before it sends the marker again, and readers of the partition wait too. If this process knows how the
// transaction ended, it may write the marker instead: the outcome is decided and durable. The coordinator
// begins no other transaction under that ID before its own marker has come, and that one finds nothing open.
func (m *Markers) overdue(to timer.TopicPartition, p Producer) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.doubtful[to]
	if d == nil {
		return false
	}
	since, seen := d.awaited[p]
	if !seen {
		since = time.Now()
		d.await(p, since)
	}
	return time.Since(since) > markerPatience
}

// await notes that a marker is on its way, and forgets old ones, which must have arrived by now.
func (d *doubt) await(p Producer, since time.Time) {
	maps.DeleteFunc(d.awaited, func(_ Producer, before time.Time) bool { return since.Sub(before) > endedKept })
	if d.awaited == nil {
		d.awaited = make(map[Producer]time.Time)
	}
	d.awaited[p] = since
}

// writeMarker ends a transaction on one partition, if it is still open there. Its own marker may have arrived.
func writeMarker(ctx context.Context, adm *kadm.Client, to timer.TopicPartition, p Producer, how Ending,
	wrote func()) error {
	open, err := openProducers(ctx, adm, to, nil)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(open,
		func(d kadm.DescribedProducer) bool { return d.ProducerID == p.ID && d.ProducerEpoch == p.Epoch })
	if i < 0 {
		return nil
	}
	// The coordinator epoch is that of the producer's last marker on the partition, or -1. A lower one is rejected
	// (TRANSACTION_COORDINATOR_FENCED).
	m := kadm.TxnMarkers{
		ProducerID: p.ID, ProducerEpoch: p.Epoch, Commit: how == EndingCommit,
		CoordinatorEpoch: open[i].CoordinatorEpoch, Topics: kadm.TopicsSet{},
	}
	m.Topics.Add(to.Topic, to.Partition)
	resp, err := adm.WriteTxnMarkers(ctx, m)
	if err == nil {
		for _, r := range resp {
			for _, r := range r.Topics.SortedPartitions() {
				if r.Err != nil && err == nil {
					err = r.Err
				}
			}
		}
	}
	switch {
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("write the missing marker of producer %d to %s/%d: missing permission to alter the "+
			"cluster: %w", p.ID, to.Topic, to.Partition, err)
	case err != nil:
		return fmt.Errorf("write the missing marker of producer %d to %s/%d: %w", p.ID, to.Topic, to.Partition, err)
	}
	wrote()
	return nil
}
