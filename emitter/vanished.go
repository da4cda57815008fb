package emitter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrForeignTransaction: a producer that is not one of this group's holds a
// transaction open on one of our topics. It is never ended by us.
var ErrForeignTransaction = errors.New("a transaction of a foreign producer is open")

// EndVanished ends the open transactions of this group that wrote, or may
// write, to the changelog partition topic/partition: those that a vanished owner left
// behind. They are found by the partition, which the announce put into the
// transaction before anything else. Ending one is always safe: an owner that is
// only slow finds itself fenced and resolves.
//
// Before each InitProducerID the transaction must still be the same one (same
// producer ID and epoch, Ongoing); under transaction version 2 the epoch tells
// transactions apart, so a slow but live owner is never hit twice.
func EndVanished(ctx context.Context, cl *kgo.Client, group, topic string, partition int32, log *slog.Logger) (ended int, err error) {
	adm := kadm.NewClient(cl)
	listed, err := adm.ListTransactions(ctx, nil, []string{"Ongoing"})
	if err != nil {
		return 0, fmt.Errorf("list open transactions: %w", err)
	}
	prefix := TransactionalIDPrefix(group)
	ours := make(map[int64]bool)
	for _, l := range listed.Sorted() {
		if !strings.HasPrefix(l.TxnID, prefix) {
			continue
		}
		ours[l.ProducerID] = true
		d, err := adm.DescribeTransactions(ctx, l.TxnID)
		if err != nil {
			return ended, fmt.Errorf("describe transaction %s: %w", l.TxnID, err)
		}
		txn := d[l.TxnID]
		if txn.Err != nil || txn.State != "Ongoing" || !txn.Topics.Lookup(topic, partition) {
			continue
		}
		log.Info("ending the open transaction of a vanished owner", "transactional_id", l.TxnID, "topic", topic, "partition", partition)
		if err := endTransaction(ctx, cl, adm, txn); err != nil {
			return ended, err
		}
		ended++
	}
	if ended > 0 {
		return ended, nil
	}
	return 0, foreignProducer(ctx, adm, ours, topic, partition)
}

// endTransaction fences the producer of txn while txn is what is still open.
func endTransaction(ctx context.Context, cl *kgo.Client, adm *kadm.Client, txn kadm.DescribedTransaction) error {
	for {
		d, err := adm.DescribeTransactions(ctx, txn.TxnID)
		if err != nil {
			return fmt.Errorf("describe transaction %s: %w", txn.TxnID, err)
		}
		now := d[txn.TxnID]
		if now.State != "Ongoing" || now.ProducerID != txn.ProducerID || now.ProducerEpoch != txn.ProducerEpoch {
			return nil // ended, or on its way
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
		if err := sleep(ctx, concurrentBackoff); err != nil {
			return err
		}
	}
}

// foreignProducer names a producer outside this group that holds the partition.
func foreignProducer(ctx context.Context, adm *kadm.Client, ours map[int64]bool, topic string, partition int32) error {
	var set kadm.TopicsSet
	set.Add(topic, partition)
	described, err := adm.DescribeProducers(ctx, set)
	if err != nil {
		return fmt.Errorf("describe producers of %s/%d: %w", topic, partition, err)
	}
	for _, p := range described.SortedProducers() {
		if p.CurrentTxnStartOffset < 0 || ours[p.ProducerID] {
			continue
		}
		name := "unknown transactional ID"
		if l, err := adm.ListTransactions(ctx, []int64{p.ProducerID}, nil); err == nil {
			for _, t := range l.Sorted() {
				if strings.HasPrefix(t.TxnID, "waterclock/") {
					return nil // another of ours, ending at this moment
				}
				name = t.TxnID
			}
		}
		return fmt.Errorf("%w: producer %d (%s) since offset %d of %s/%d: end it, and let nothing but waterclock write there",
			ErrForeignTransaction, p.ProducerID, name, p.CurrentTxnStartOffset, topic, partition)
	}
	return nil
}
