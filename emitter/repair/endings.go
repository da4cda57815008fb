package repair

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TransactionalIDPrefix is the prefix of every transactional ID of a group.
func TransactionalIDPrefix(group string) string {
	return "waterclock/" + url.PathEscape(group) + "/"
}

// Ending is how a transaction ended.
type Ending uint8

// The endings. Only the coordinator knows an EndingUnknown.
const (
	EndingUnknown Ending = iota
	EndingCommit
	EndingAbort
)

func (e Ending) String() string { return [...]string{"unknown", "commit", "abort"}[e] }

// Producer identifies a transaction: under transaction version 2 each has an epoch of its own.
type Producer struct {
	ID    int64
	Epoch int16
}

// NoProducer identifies no transaction, as in Kafka. {0, 0} is the first transaction of a cluster.
func NoProducer() Producer { return Producer{-1, -1} }

// TransactionOf describes the last transaction of a producer ID. If its transactional ID is known, only that ID's
// coordinator is asked. Otherwise all brokers are asked, and an unreachable one matters only if no other knows the
// producer.
func TransactionOf(ctx context.Context, adm *kadm.Client, id int64,
	txnID string) (txn kadm.DescribedTransaction, found bool, err error) {
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

// UnderWay reports whether the coordinator still has to write markers.
func UnderWay(txn kadm.DescribedTransaction, p Producer) bool {
	return txn.ProducerID == p.ID && (txn.State == "Ongoing" || strings.HasPrefix(txn.State, "Prepare"))
}

// EndingOf returns how a transaction ended, according to the coordinator. It must still be the last one of its ID. An
// end increases the epoch by one.
func EndingOf(txn kadm.DescribedTransaction, p Producer) Ending {
	if txn.ProducerID != p.ID || txn.ProducerEpoch != p.Epoch+1 {
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
