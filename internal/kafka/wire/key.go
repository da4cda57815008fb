package wire

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Kind is the first byte of every changelog key. It separates timers, whose key goes on with the ID, from
// checkpoints and claims, whose key is one byte.
type Kind byte

// The kinds.
const (
	KindTimer      Kind = 1
	KindCheckpoint Kind = 2
	KindClaim      Kind = 3

	// firstText is the first byte that a text may begin with. No version has kinds from there on, so a key that begins
	// with such a byte is another program's, and no instance has to make room for a newer one.
	firstText = 0x20
)

// TimerKey appends the changelog key of the timer to dst.
func TimerKey(dst, id []byte) []byte {
	return append(append(dst, byte(KindTimer)), id...)
}

// CheckpointKey returns the changelog key of checkpoints, a new slice.
func CheckpointKey() []byte { return []byte{byte(KindCheckpoint)} }

// ClaimKey returns the changelog key of claims, a new slice.
func ClaimKey() []byte { return []byte{byte(KindClaim)} }

// ParseKey returns the kind of a changelog key and, if it is a timer's, the ID, which aliases key. Errors wrap
// ErrNewerFormat, for a kind that this version does not know, or ErrCorrupt.
func ParseKey(key []byte) (Kind, []byte, error) {
	if len(key) == 0 {
		return 0, nil, fmt.Errorf("parse changelog key: empty: %w", ErrCorrupt)
	}
	kind, rest := Kind(key[0]), key[1:]
	switch {
	case kind >= firstText:
		return 0, nil, fmt.Errorf("parse changelog key: %.40q is another program's: %w", key, ErrCorrupt)
	case kind > KindClaim:
		return 0, nil, fmt.Errorf("parse changelog key: kind %d: %w", kind, ErrNewerFormat)
	case kind == KindTimer && len(rest) > 0:
		return kind, rest, nil
	case kind > KindTimer && len(rest) == 0:
		return kind, nil, nil
	}
	return 0, nil, fmt.Errorf("parse changelog key: kind %d, %d bytes: %w", kind, len(key), ErrCorrupt)
}

// Sizes of record batches, format 2 (Kafka's "Record Batch").
const (
	batchBytes    = 61         // the header before the records
	maxVarint32   = 5          // longest length field
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
