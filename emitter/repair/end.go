package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

// ErrForeignTransaction: a producer that does not belong to waterclock has a transaction open on one of the service's
// own topics. The service never ends it.
var ErrForeignTransaction = errors.New("a transaction of a foreign producer is open")

// Options select the hanging transactions that End ends.
type Options struct {
	Client    *kgo.Client
	Group     string
	Topic     string // a changelog
	Partition int32
	Markers   *Markers
	// Offsets: repair the group's committed offsets too, because the partition's stable offset cannot be read.
	Offsets bool
	// Outcome finds out how a step ended that a producer of the group wrote from an offset on. The partition and the
	// group's committed offset tell; it returns an error if they do not.
	Outcome func(ctx context.Context, producerID, from int64) (Ending, error)
	Logger  *slog.Logger
}

// End ends the open transactions of this group that a former owner left on a changelog partition. They are found by the
// partition, which the announce adds to each transaction before anything else. Ending one is always safe: an owner that
// was only slow finds itself fenced, and then finds out the outcome.
//
// Before each InitProducerID the transaction must still be the same one (same producer ID and epoch, Ongoing).
// Under transaction version 2 each transaction has an epoch of its own, so a slow but live owner is never hit twice.
//
// If only the partition itself shows a transaction of the group as open, its marker was lost (see Markers), and
// End writes it. The marker for the group's offsets may be lost too, because each step commits an offset.
func End(ctx context.Context, v Options) (ended int, err error) {
	adm := kadm.NewClient(v.Client)
	// One unresponsive broker does not hide the transactions of the others. But without its answer, no producer counts
	// as foreign.
	listed, partial := adm.ListTransactions(ctx, nil, []string{"Ongoing"})
	if partial != nil {
		partial = fmt.Errorf("list open transactions: %w", partial)
		if len(listed) == 0 {
			return 0, partial
		}
	}
	ended, ours, err := endListed(ctx, v.Client, listed, v.Group, v.Markers, func(txn kadm.DescribedTransaction) bool {
		here := txn.Topics.Lookup(v.Topic, v.Partition)
		if here {
			v.Logger.Info("ending a hanging transaction of the former owner", "transactional_id", txn.TxnID, "topic",
				v.Topic, "partition", v.Partition)
		}
		return here
	})
	if err != nil || ended > 0 {
		return ended, err
	}
	if partial != nil {
		return 0, partial
	}
	if ended, err = v.repairChangelog(ctx, adm, ours); err != nil || ended > 0 || !v.Offsets {
		return ended, err
	}
	return v.repairOffsets(ctx, adm, ours)
}

// EndAll ends all open transactions of a group that has no members, so that none of its steps can be committed
// any more.
func EndAll(ctx context.Context, cl *kgo.Client, group string) error {
	listed, err := kadm.NewClient(cl).ListTransactions(ctx, nil, []string{"Ongoing"})
	if err != nil {
		return fmt.Errorf("list open transactions: %w", err)
	}
	_, _, err = endListed(ctx, cl, listed, group, nil, func(kadm.DescribedTransaction) bool { return true })
	return err
}

// endListed ends those of the group's listed transactions that are still open and that match. One that fails does not
// keep the others from being ended. ours has the producer IDs of all listed transactions of the group.
func endListed(ctx context.Context, cl *kgo.Client, listed kadm.ListedTransactions, group string, markers *Markers,
	match func(kadm.DescribedTransaction) bool) (ended int, ours map[int64]bool, err error) {
	adm := kadm.NewClient(cl)
	ours = make(map[int64]bool)
	for _, l := range listed.Sorted() {
		if !strings.HasPrefix(l.TxnID, TransactionalIDPrefix(group)) {
			continue
		}
		ours[l.ProducerID] = true
		txn, open, failed := ongoing(ctx, adm, l.TxnID)
		if failed == nil && open && match(txn) {
			if failed = endTransaction(ctx, cl, adm, txn, markers); failed == nil {
				ended++
			}
		}
		err = errors.Join(err, failed)
	}
	return ended, ours, err
}

// ongoing describes a transaction that may be open. It returns an error if the coordinator cannot tell.
func ongoing(ctx context.Context, adm *kadm.Client,
	txnID string) (txn kadm.DescribedTransaction, open bool, err error) {
	d, err := adm.DescribeTransactions(ctx, txnID)
	if err != nil {
		return txn, false, fmt.Errorf("describe transaction %s: %w", txnID, err)
	}
	txn = d[txnID]
	if txn.Err != nil && !errors.Is(txn.Err, kerr.TransactionalIDNotFound) {
		return txn, false, fmt.Errorf("describe transaction %s: %w", txnID, txn.Err)
	}
	return txn, txn.Err == nil && txn.State == "Ongoing", nil
}

// repair writes the markers that a partition lacks. One is missing if a transaction of the group is open there although
// its coordinator says that it has ended. Producers in ours are skipped: their transactions are still open. foreign
// decides about other groups' transactions. outcome tells how a transaction ended if its coordinator does not.
func (o *Options) repair(ctx context.Context, adm *kadm.Client, to timer.TopicPartition, ours map[int64]bool,
	foreign func(d kadm.DescribedProducer, txnID string) error,
	outcome func(d kadm.DescribedProducer, txnID string) (Ending, error)) (ended int, err error) {
	open, err := openProducers(ctx, adm, to, ours)
	if err != nil {
		return 0, err
	}
	for _, d := range open {
		p := Producer{d.ProducerID, d.ProducerEpoch}
		txn, found, err := TransactionOf(ctx, adm, p.ID, "")
		if err != nil {
			return ended, err
		}
		if !found {
			txn.TxnID = "" // a name that its coordinator has forgotten
		}
		if !strings.HasPrefix(txn.TxnID, TransactionalIDPrefix(o.Group)) {
			if err := foreign(d, txn.TxnID); err != nil {
				return ended, err
			}
			continue
		}
		if UnderWay(txn, p) {
			continue // its markers are on their way
		}
		how := EndingOf(txn, p)
		if how == EndingUnknown {
			if how, err = outcome(d, txn.TxnID); err != nil {
				return ended, err
			}
		}
		err = writeMarker(ctx, adm, to, p, how, func() {
			ended++
			o.Logger.Warn("wrote a lost transaction marker", "transactional_id", txn.TxnID, "topic", to.Topic,
				"partition", to.Partition, "outcome", how.String())
			o.Markers.metrics.written.Inc()
		})
		if err != nil {
			return ended, err
		}
	}
	return ended, nil
}

// repairChangelog writes the markers that the changelog partition lacks. It returns ErrForeignTransaction if a
// producer that is not waterclock's has a transaction open there.
func (o *Options) repairChangelog(ctx context.Context, adm *kadm.Client, ours map[int64]bool) (ended int, err error) {
	to := timer.TopicPartition{Topic: o.Topic, Partition: o.Partition}
	foreign := func(d kadm.DescribedProducer, txnID string) error {
		if strings.HasPrefix(txnID, "waterclock/") {
			return nil // another group's; that group repairs it
		}
		return fmt.Errorf(
			"%w: producer %d (%s) since offset %d of %s/%d: abort it, and let only waterclock write there",
			ErrForeignTransaction, d.ProducerID, cmp.Or(txnID, "unknown transactional ID"), d.CurrentTxnStartOffset,
			o.Topic, o.Partition)
	}
	return o.repair(ctx, adm, to, ours, foreign, func(d kadm.DescribedProducer, _ string) (Ending, error) {
		return o.Outcome(ctx, d.ProducerID, d.CurrentTxnStartOffset)
	})
}

// offsetsTopic is where Kafka keeps the committed offsets of groups.
const offsetsTopic = "__consumer_offsets"

// repairOffsets writes the markers that the partition with the group's offsets lacks. Other groups' transactions there
// are left alone. Without permission to read that partition it logs once, and the acquisition waits for the broker.
func (o *Options) repairOffsets(ctx context.Context, adm *kadm.Client, ours map[int64]bool) (ended int, err error) {
	if time.Now().UnixNano() < o.Markers.blind.Load() {
		return 0, nil
	}
	topics, err := adm.ListTopicsWithInternal(ctx, offsetsTopic)
	if err == nil {
		err = topics[offsetsTopic].Err
	}
	to := timer.TopicPartition{Topic: offsetsTopic,
		Partition: offsetsPartition(o.Group, len(topics[offsetsTopic].Partitions))}
	foreign := func(kadm.DescribedProducer, string) error { return nil }
	outcome := func(d kadm.DescribedProducer, txnID string) (Ending, error) {
		if how, _ := o.Markers.Outcome(to, Producer{d.ProducerID, d.ProducerEpoch}); how != EndingUnknown {
			return how, nil
		}
		return EndingUnknown, fmt.Errorf("the committed offset of group %s lacks the transaction marker of producer "+
			"%d (%s), and the outcome of its transaction is no longer known: "+
			"end it with kafka-transactions.sh abort --topic %s --partition %d --start-offset %d", o.Group,
			d.ProducerID, txnID, to.Topic, to.Partition, d.CurrentTxnStartOffset)
	}
	if err == nil {
		ended, err = o.repair(ctx, adm, to, ours, foreign, outcome)
	}
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		o.Markers.blind.Store(time.Now().Add(blindKept).UnixNano())
		o.Logger.Warn("missing permission to read "+offsetsTopic+": a transaction holds back the group's committed "+
			"offset, and cannot be checked for a lost marker", "err", err)
		return 0, nil
	case err != nil:
		return ended, fmt.Errorf("check the group's offsets: %w", err)
	}
	return ended, nil
}

// offsetsPartition is the partition of a group's offsets: the absolute value of Java's hash of its name, modulo the
// partition count. The least integer has no absolute value; it counts as 0.
func offsetsPartition(group string, partitions int) int32 {
	var h int32
	for _, c := range utf16.Encode([]rune(group)) {
		h = 31*h + int32(c)
	}
	switch {
	case h == math.MinInt32:
		h = 0
	case h < 0:
		h = -h
	}
	return h % int32(max(partitions, 1))
}

// endTransaction fences the producer of txn, if that is still its open transaction, and notes how it ended.
func endTransaction(ctx context.Context, cl *kgo.Client, adm *kadm.Client, txn kadm.DescribedTransaction,
	markers *Markers) error {
	how := EndingUnknown
	defer func() {
		parts := make(map[string][]int32)
		for topic, ps := range txn.Topics {
			parts[topic] = slices.Collect(maps.Keys(ps))
		}
		markers.endedElsewhere(ctx, txn.TxnID, Producer{txn.ProducerID, txn.ProducerEpoch}, how, parts)
	}()
	for {
		now, open, err := ongoing(ctx, adm, txn.TxnID)
		if err != nil {
			return err
		}
		if !open || now.ProducerID != txn.ProducerID || now.ProducerEpoch != txn.ProducerEpoch {
			// A transaction that is only prepared does not count: a coordinator that was restarted may have that
			// from its own log alone. See transaction.commitAgain.
			if p := (Producer{txn.ProducerID, txn.ProducerEpoch}); !UnderWay(now, p) {
				how = EndingOf(now, p)
			}
			return nil
		}
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID = kmsg.StringPtr(txn.TxnID)
		req.TransactionTimeoutMillis = txn.TimeoutMillis
		req.ProducerID, req.ProducerEpoch = -1, -1
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return fmt.Errorf("fence %s: %w", txn.TxnID, err)
		}
		switch err := kerr.ErrorForCode(resp.ErrorCode); {
		case err == nil:
			return nil
		case !errors.Is(err, kerr.ConcurrentTransactions):
			return fmt.Errorf("fence %s: %w", txn.TxnID, err)
		}
		if !beats.Sleep(ctx, endBackoff) {
			return ctx.Err()
		}
	}
}

// endBackoff is the wait after CONCURRENT_TRANSACTIONS.
const endBackoff = 2 * time.Millisecond
