package ownership

import (
	"fmt"
	"time"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
)

// Held describes an open transaction, of any producer, that keeps the requests at the end of a request
// log from being read, cancels among them. No read_committed reader gets past its first record.
type Held struct {
	From     int64     // offset of the transaction's first record
	Count    int64     // offsets from there to the log's end, including markers
	Since    time.Time // when the transaction began, or when it was first seen if that is not known
	Oldest   time.Time // timestamp of the first record; zero: not known
	Producer string    // describes the producer to people
	// ProducerID and TransactionalID are "" while they are not known.
	ProducerID, TransactionalID string
}

// String is a sentence for an operator.
func (h *Held) String() string {
	return fmt.Sprintf(
		"%d offsets from %d on cannot be read before the transaction of %s ends, which has been open since %s",
		h.Count, h.From, h.Producer, h.Since.UTC().Format(time.RFC3339))
}

// LogEnd is where the partition's request log ended at the last look.
type LogEnd struct {
	partlog.Edge
	Since time.Time // of a held log: since when the transaction has been open, as in Held
	By    *Held     // the transaction that holds it; nil: none, or too young to be worth a mention
}
