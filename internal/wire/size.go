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
		n += maxVarint32 + len(rec.Headers[i].Key) + maxVarint32 + len(rec.Headers[i].Value)
	}
	return n
}
