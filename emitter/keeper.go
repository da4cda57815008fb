package emitter

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

	"github.com/waterclock/waterclock/internal/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

// Run looks at partitions in doubt until ctx ends.
func (k *Markers) Run(ctx context.Context) error {
	t := beats.NewTicker(markerTick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-k.wake:
		}
		doubtful := k.list()
		if len(doubtful) == 0 {
			continue
		}
		k.refresh(ctx, doubtful)
		for _, to := range doubtful {
			if err := k.look(ctx, to); err != nil && ctx.Err() == nil {
				k.say(to, err)
			}
		}
	}
}

// refresh asks who leads.
func (k *Markers) refresh(ctx context.Context, doubtful []timer.TopicPartition) {
	var topics []string
	for _, to := range doubtful {
		if !slices.Contains(topics, to.Topic) {
			topics = append(topics, to.Topic)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, markerTimeout)
	defer cancel()
	_ = k.targets.fetch(ctx, topics) // what is known stays
}

// leads asks who leads a partition, unless that was heard just now.
func (k *Markers) leads(ctx context.Context, to timer.TopicPartition) leadership {
	if !k.targets.recent(to) {
		k.refresh(ctx, []timer.TopicPartition{to})
	}
	return k.targets.state(to)
}

// say logs why a look failed: at once, and again each minute while it lasts.
func (k *Markers) say(to timer.TopicPartition, err error) {
	k.mu.Lock()
	d := k.doubtful[to]
	said := d == nil || time.Since(d.said) < doubtSaid
	if d != nil && !said {
		d.said = time.Now()
	}
	if d != nil && time.Since(d.since) > doubtKept {
		k.dismiss(to)
	}
	k.mu.Unlock()
	if !said {
		k.log.Warn("cannot tell whether a transaction lacks its marker", "topic", to.Topic, "partition", to.Partition, "err", err)
	}
}

// look writes what markers a partition lacks, if it has a leader.
func (k *Markers) look(ctx context.Context, to timer.TopicPartition) error {
	ctx, cancel := context.WithTimeout(ctx, markerTimeout)
	defer cancel()
	switch k.targets.state(to) {
	case leaderless:
		k.away(to)
		return nil
	case noPartition:
		k.looked(to, true)
		return nil
	}
	adm := kadm.NewClient(k.client)
	open, err := openProducers(ctx, adm, to)
	if err != nil {
		return err
	}
	clear := true
	for _, p := range open {
		missing, err := k.close(ctx, adm, to, producer{p.ProducerID, p.ProducerEpoch})
		if err != nil {
			k.looked(to, false)
			return err
		}
		clear = clear && !missing
	}
	k.looked(to, clear)
	return nil
}

// close closes an open transaction if it has been ended, by us or by anybody of
// the group, and reports whether it was one that has.
func (k *Markers) close(ctx context.Context, adm *kadm.Client, to timer.TopicPartition, p producer) (missing bool, err error) {
	how, txnID := k.outcome(to, p)
	txn, found, err := transactionOf(ctx, adm, p.id, txnID)
	switch {
	case err != nil:
		return false, err
	case !found && how == EndingUnknown, found && !strings.HasPrefix(txn.TxnID, TransactionalIDPrefix(k.group)):
		return false, nil // not ours
	case found && underWay(txn, p) && (how == EndingUnknown || endingOf(txn, p) != how || !k.overdue(to, p)):
		// The markers are on their way. Prepare is believed only if this process already knew how the
		// transaction ended: a restarted coordinator may have read Prepare from its own
		// log, and its successor may decide otherwise. See docs/DESIGN.md.
		return how != EndingUnknown || endingOf(txn, p) != EndingUnknown, nil
	}
	if how == EndingUnknown && found {
		how = endingOf(txn, p)
	}
	if how == EndingUnknown {
		return true, fmt.Errorf("producer %d epoch %d is open on %s/%d and how its transaction ended is not known", p.id, p.epoch, to.Topic, to.Partition)
	}
	return true, writeMarker(ctx, adm, to, p, how, func() {
		k.log.Warn("wrote the marker that a partition without leader had missed", "topic", to.Topic, "partition", to.Partition,
			"transactional_id", txn.TxnID, "outcome", how.String())
		k.wrote()
	})
}

// endedElsewhere notes the end of a transaction that was another client's, and
// asks who leads its partitions: this happens seldom.
func (k *Markers) endedElsewhere(ctx context.Context, txnID string, p producer, how Ending, parts map[string][]int32) {
	if k == nil || len(parts) == 0 {
		return
	}
	k.noteEnd(txnID, p, how, parts)
	var all []timer.TopicPartition
	for topic, ps := range parts {
		for _, n := range ps {
			all = append(all, timer.TopicPartition{Topic: topic, Partition: n})
		}
	}
	k.refresh(context.WithoutCancel(ctx), all)
	for _, to := range all {
		if k.targets.state(to) == leaderless {
			k.Moved(to)
		}
	}
}

// openProducers lists the transactions that are open on a partition.
func openProducers(ctx context.Context, adm *kadm.Client, to timer.TopicPartition) (open []kadm.DescribedProducer, err error) {
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
		if p.CurrentTxnStartOffset >= 0 {
			open = append(open, p)
		}
	}
	return open, nil
}

// overdue reports whether a marker has been on its way to a partition, which has a
// leader, for too long. A coordinator that sent one to the leader before, which
// became unresponsive, waits for request.timeout.ms (30 s) until it sends it again, and
// readers of the partition with it. It may as well be written for it if this process knows how the
// transaction ended: that is decided and durable, and the coordinator begins no other
// under that ID before its own marker has come, which finds nothing open then.
func (k *Markers) overdue(to timer.TopicPartition, p producer) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.doubtful[to]
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

// await notes that a marker is on its way, and forgets those that have come.
func (d *doubt) await(p producer, since time.Time) {
	maps.DeleteFunc(d.awaited, func(_ producer, before time.Time) bool { return since.Sub(before) > endedKept })
	if d.awaited == nil {
		d.awaited = make(map[producer]time.Time)
	}
	d.awaited[p] = since
}

// transactionOf describes the last transaction of a producer ID. Where its
// transactional ID is known only that one's coordinator is asked; else all brokers
// are, and one that is away matters only if no other knows the producer.
func transactionOf(ctx context.Context, adm *kadm.Client, id int64, txnID string) (txn kadm.DescribedTransaction, found bool, err error) {
	ids := []string{txnID}
	if txnID == "" {
		listed, partial := adm.ListTransactions(ctx, []int64{id}, nil)
		if partial != nil {
			err = fmt.Errorf("list the transactions of producer %d: %w", id, partial)
		}
		ids = listed.TransactionalIDs()
	}
	for _, txnID := range ids {
		d, err := adm.DescribeTransactions(ctx, txnID)
		if err != nil {
			return txn, false, fmt.Errorf("describe transaction %s: %w", txnID, err)
		}
		txn = d[txnID]
		switch {
		case errors.Is(txn.Err, kerr.TransactionalIDNotFound):
		case txn.Err != nil:
			return txn, false, fmt.Errorf("describe transaction %s: %w", txnID, txn.Err)
		default:
			return txn, true, nil
		}
	}
	return txn, false, err
}

// wrote counts a marker.
func (k *Markers) wrote() {
	if k != nil {
		k.metrics.written.Inc()
	}
}

// underWay reports whether the coordinator has still to write markers.
func underWay(txn kadm.DescribedTransaction, p producer) bool {
	return txn.ProducerID == p.id && (txn.State == "Ongoing" || strings.HasPrefix(txn.State, "Prepare"))
}

// endingOf is how a transaction ended, by the coordinator's word: it must still
// be the ID's last one. An end moves the epoch by one.
func endingOf(txn kadm.DescribedTransaction, p producer) Ending {
	if txn.ProducerID != p.id || txn.ProducerEpoch != p.epoch+1 {
		return EndingUnknown
	}
	switch txn.State {
	case "CompleteCommit", "PrepareCommit":
		return EndingCommit
	case "CompleteAbort", "PrepareAbort":
		return EndingAbort
	}
	return EndingUnknown
}

// writeMarker ends a transaction on one partition, if it is still open there: by
// now its own marker may have come.
func writeMarker(ctx context.Context, adm *kadm.Client, to timer.TopicPartition, p producer, how Ending, wrote func()) error {
	open, err := openProducers(ctx, adm, to)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(open, func(d kadm.DescribedProducer) bool { return d.ProducerID == p.id && d.ProducerEpoch == p.epoch })
	if i < 0 {
		return nil
	}
	// The coordinator's epoch is that of the producer's last marker there, -1 if it
	// has none: a lower one is refused (TRANSACTION_COORDINATOR_FENCED).
	m := kadm.TxnMarkers{
		ProducerID: p.id, ProducerEpoch: p.epoch, Commit: how == EndingCommit,
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
		return fmt.Errorf("write the missing marker of producer %d to %s/%d: the service may not alter the cluster: %w", p.id, to.Topic, to.Partition, err)
	case err != nil:
		return fmt.Errorf("write the missing marker of producer %d to %s/%d: %w", p.id, to.Topic, to.Partition, err)
	}
	wrote()
	return nil
}
