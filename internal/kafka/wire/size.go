package wire

import "github.com/twmb/franz-go/pkg/kgo"

// Sizes of record batches, format 2 (Kafka's "Record Batch").
const (
	batchBytes    = 61         // what precedes the records
	maxVarint32   = 5          // longest length of anything
	recordNumbers = 1 + 10 + 5 // attributes, timestamp and offset differences
)

// StoredBytes is the most that a record takes in a batch of its own, not compressed. Brokers compare that with
// max.message.bytes, and clients with their own limit.
func StoredBytes(rec *kgo.Record) int {
	n := batchBytes + maxVarint32 + recordNumbers
	n += maxVarint32 + len(rec.Key) + maxVarint32 + len(rec.Value) + maxVarint32
	for i := range rec.Headers {
		n += storedHeaderBytes(&rec.Headers[i])
	}
	return n
}

// storedHeaderBytes is the most that a header takes in a batch.
func storedHeaderBytes(h *kgo.RecordHeader) int {
	return maxVarint32 + len(h.Key) + maxVarint32 + len(h.Value)
}
