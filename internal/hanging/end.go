package hanging

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/timer"
)

// ErrForeignTransaction: a producer that is not one of this group's holds a
// transaction open on one of our topics. It is never ended by us.
var ErrForeignTransaction = errors.New("a transaction of a foreign producer is open")

// Options say which hanging transactions End is to end.
type Options struct {
	Client    *kgo.Client
	Group     string
	Topic     string // a changelog
	Partition int32
	Markers   *Markers
	// Offsets: look after the group's committed offsets too, because the partition's stable offset does
	// not come.
	Offsets bool
	// Committed decides, from the partition and the group's committed offset, whether a step was committed
	// that a producer of the group wrote from an offset on. It returns an error if it cannot tell. nil: it
	// never can.
	Committed func(ctx context.Context, producerID, from int64) (bool, error)
	Logger    *slog.Logger
}

// End ends the open transactions of this group that wrote, or may
// write, to a changelog partition: those that a former owner left
// behind. They are found by the partition, which the announce put into the
// transaction before anything else. Ending one is always safe: an owner that is
// only slow finds itself fenced and resolves.
//
// Before each InitProducerID the transaction must still be the same one (same
// producer ID and epoch, Ongoing); under transaction version 2 the epoch tells
// transactions apart, so a slow but live owner is never hit twice.
//
// If only the partition itself shows a transaction of the group open, its marker
// was lost (see Markers), and is written. So may be that of the group's offsets,
// which end in a transaction too.
func End(ctx context.Context, v Options) (ended int, err error) {
	adm := kadm.NewClient(v.Client)
	// A broker that is away does not hide the transactions of the others, but
	// without its answer nobody is foreign.
	listed, partial := adm.ListTransactions(ctx, nil, []string{"Ongoing"})
	if partial != nil && len(listed) == 0 {
		return 0, fmt.Errorf("list open transactions: %w", partial)
	}
	prefix := TransactionalIDPrefix(v.Group)
	ours := make(map[int64]bool)
	for _, l := range listed.Sorted() {
		if !strings.HasPrefix(l.TxnID, prefix) {
			continue
		}
		ours[l.ProducerID] = true
		txn, open, err := ongoing(ctx, adm, l.TxnID)
		if err != nil {
			return ended, err
		}
		if !open || !txn.Topics.Lookup(v.Topic, v.Partition) {
			continue
		}
		v.Logger.Info("ending the hanging transaction of a former owner", "transactional_id", l.TxnID, "topic", v.Topic, "partition", v.Partition)
		if err := endTransaction(ctx, v.Client, adm, txn, v.Markers); err != nil {
			return ended, err
		}
		ended++
	}
	if ended > 0 {
		return ended, nil
	}
	if partial != nil {
		return 0, fmt.Errorf("list open transactions: %w", partial)
	}
	if ended, err = v.endLost(ctx, adm, ours); err != nil || ended > 0 || !v.Offsets {
		return ended, err
	}
	return v.endLostOffsets(ctx, adm, ours)
}

// EndAll ends every open transaction of a group that has no members, so that none
// of its steps can be committed any more.
func EndAll(ctx context.Context, cl *kgo.Client, group string) error {
	adm := kadm.NewClient(cl)
	listed, err := adm.ListTransactions(ctx, nil, []string{"Ongoing"})
	if err != nil {
		return fmt.Errorf("list open transactions: %w", err)
	}
	for _, l := range listed.Sorted() {
		if !strings.HasPrefix(l.TxnID, TransactionalIDPrefix(group)) {
			continue
		}
		txn, open, err := ongoing(ctx, adm, l.TxnID)
		if err == nil && open {
			err = endTransaction(ctx, cl, adm, txn, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ongoing describes a transaction that may be open.
func ongoing(ctx context.Context, adm *kadm.Client, txnID string) (txn kadm.DescribedTransaction, open bool, err error) {
	d, err := adm.DescribeTransactions(ctx, txnID)
	if err != nil {
		return txn, false, fmt.Errorf("describe transaction %s: %w", txnID, err)
	}
	txn = d[txnID]
	return txn, txn.Err == nil && txn.State == "Ongoing", nil
}

// endLost closes the transactions that are open on the partition alone, and names
// a producer outside this group that holds it.
func (v *Options) endLost(ctx context.Context, adm *kadm.Client, ours map[int64]bool) (ended int, err error) {
	to := timer.TopicPartition{Topic: v.Topic, Partition: v.Partition}
	open, err := openProducers(ctx, adm, to)
	if err != nil {
		return 0, err
	}
	for _, d := range open {
		if ours[d.ProducerID] {
			continue
		}
		p := Producer{d.ProducerID, d.ProducerEpoch}
		txn, found, err := TransactionOf(ctx, adm, p.ID, "")
		switch {
		case err != nil:
			return ended, err
		case !found || !strings.HasPrefix(txn.TxnID, TransactionalIDPrefix(v.Group)):
			name := "unknown transactional ID"
			if found {
				name = txn.TxnID
			}
			if strings.HasPrefix(name, "waterclock/") {
				continue // another group's, which sees to it
			}
			return ended, fmt.Errorf("%w: producer %d (%s) since offset %d of %s/%d: end it, and let nothing but waterclock write there",
				ErrForeignTransaction, p.ID, name, d.CurrentTxnStartOffset, v.Topic, v.Partition)
		case UnderWay(txn, p):
			continue // ending at this moment
		}
		how := EndingOf(txn, p)
		if how == EndingUnknown {
			if how, err = v.ask(ctx, d); err != nil {
				return ended, err
			}
		}
		if err := v.write(ctx, adm, to, p, how, txn.TxnID, &ended); err != nil {
			return ended, err
		}
	}
	return ended, nil
}

// offsetsTopic is where Kafka keeps the committed offsets of groups.
const offsetsTopic = "__consumer_offsets"

// endLostOffsets does the same for the partition that holds the group's offsets. Transactions of other
// groups on that partition are left alone. If the service may not look there, that is logged once, and the
// acquisition waits for the broker.
func (v *Options) endLostOffsets(ctx context.Context, adm *kadm.Client, ours map[int64]bool) (ended int, err error) {
	if !v.Markers.mayLookAtOffsets() {
		return 0, nil
	}
	topics, err := adm.ListTopicsWithInternal(ctx, offsetsTopic)
	if err == nil {
		err = topics[offsetsTopic].Err
	}
	to := timer.TopicPartition{Topic: offsetsTopic, Partition: offsetsPartition(v.Group, len(topics[offsetsTopic].Partitions))}
	var open []kadm.DescribedProducer
	if err == nil {
		open, err = openProducers(ctx, adm, to)
	}
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		v.Markers.refuseOffsets()
		v.Logger.Warn("the group's committed offset waits for the end of a transaction; whether its marker was lost cannot be seen without the right to read "+offsetsTopic, "err", err)
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("look after the group's offsets: %w", err)
	}
	for _, d := range open {
		p := Producer{d.ProducerID, d.ProducerEpoch}
		if ours[p.ID] {
			continue
		}
		txn, found, err := TransactionOf(ctx, adm, p.ID, "")
		if err != nil {
			return ended, err
		}
		if !found || !strings.HasPrefix(txn.TxnID, TransactionalIDPrefix(v.Group)) || UnderWay(txn, p) {
			continue
		}
		how := EndingOf(txn, p)
		if how == EndingUnknown && v.Markers != nil {
			how, _ = v.Markers.Outcome(to, p)
		}
		if how == EndingUnknown {
			return ended, fmt.Errorf("the committed offset of group %s lacks the marker of producer %d (%s), and how its transaction ended is not known any more: "+
				"end it with kafka-transactions.sh abort --topic %s --partition %d --start-offset %d", v.Group, p.ID, txn.TxnID, to.Topic, to.Partition, d.CurrentTxnStartOffset)
		}
		if err := v.write(ctx, adm, to, p, how, txn.TxnID, &ended); err != nil {
			return ended, err
		}
	}
	return ended, nil
}

// offsetsPartition is where a group's offsets lie: the absolute value of Java's
// hash of its name, 0 where it has none, over the partitions of the topic.
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

// write writes a marker that was lost, and counts it.
func (v *Options) write(ctx context.Context, adm *kadm.Client, to timer.TopicPartition, p Producer, how Ending, txnID string, ended *int) error {
	return writeMarker(ctx, adm, to, p, how, func() {
		*ended++
		v.Logger.Warn("wrote a marker that was lost", "transactional_id", txnID, "topic", to.Topic, "partition", to.Partition, "outcome", how.String())
		v.Markers.wrote()
	})
}

// ask decides by what was written and committed.
func (v *Options) ask(ctx context.Context, d kadm.DescribedProducer) (Ending, error) {
	if v.Committed == nil {
		return EndingUnknown, fmt.Errorf("how the transaction of producer %d on %s/%d ended is not known", d.ProducerID, v.Topic, v.Partition)
	}
	committed, err := v.Committed(ctx, d.ProducerID, d.CurrentTxnStartOffset)
	switch {
	case err != nil:
		return EndingUnknown, err
	case committed:
		return EndingCommit, nil
	}
	return EndingAbort, nil
}

// endTransaction fences the producer of txn while txn is what is still open, and
// notes how it ended.
func endTransaction(ctx context.Context, cl *kgo.Client, adm *kadm.Client, txn kadm.DescribedTransaction, markers *Markers) error {
	how := EndingUnknown
	defer func() {
		parts := make(map[string][]int32)
		for topic, ps := range txn.Topics {
			for p := range ps {
				parts[topic] = append(parts[topic], p)
			}
		}
		markers.endedElsewhere(ctx, txn.TxnID, Producer{txn.ProducerID, txn.ProducerEpoch}, how, parts)
	}()
	for {
		now, open, err := ongoing(ctx, adm, txn.TxnID)
		if err != nil {
			return err
		}
		if !open || now.ProducerID != txn.ProducerID || now.ProducerEpoch != txn.ProducerEpoch {
			// Not what is only prepared: a coordinator that was restarted may have that from
			// its own log alone, see commitAgain.
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
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(endBackoff):
		}
	}
}

// endBackoff is the wait after CONCURRENT_TRANSACTIONS.
const endBackoff = 2 * time.Millisecond
