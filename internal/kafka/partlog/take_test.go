package partlog

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// answer is a fetch answer without records, for a log that holds [2, 20) with an open transaction at 10.
func answer() *kmsg.FetchResponseTopicPartition {
	a := kmsg.NewFetchResponseTopicPartition()
	a.LogStartOffset, a.LastStableOffset, a.HighWatermark = 2, 10, 20
	return &a
}

func TestTakeOfNothing(t *testing.T) {
	tests := []struct {
		name      string
		compacted bool
		change    func(a *kmsg.FetchResponseTopicPartition)
		position  int64
		replica   int32
	}{
		{name: "a log with no holes: the records come later", position: 5, replica: NoLeader},
		{name: "a compacted log: there were none", compacted: true, position: 10, replica: NoLeader},
		{
			name:      "sent to a replica: nobody has looked",
			compacted: true,
			change:    func(a *kmsg.FetchResponseTopicPartition) { a.PreferredReadReplica = 3 },
			position:  5,
			replica:   3,
		},
		{
			name:      "at the last stable offset",
			compacted: true,
			change:    func(a *kmsg.FetchResponseTopicPartition) { a.LastStableOffset = 5 },
			position:  5,
			replica:   NoLeader,
		},
		{
			name:      "a follower that is behind",
			compacted: true,
			change:    func(a *kmsg.FetchResponseTopicPartition) { a.LastStableOffset = 3 },
			position:  5,
			replica:   NoLeader,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(nil, Log{Topic: "t"}, 5)
			r.SetCompacted(tt.compacted)
			a := answer()
			if tt.change != nil {
				tt.change(a)
			}
			page, err := r.take(a)
			if err != nil || len(page.Records) != 0 || r.Position() != tt.position || r.replica != tt.replica {
				t.Errorf("got %v at %d, follower %d; want %d, %d", err, r.Position(), r.replica,
					tt.position, tt.replica)
			}
		})
	}
}

// The last batch that was read counts with its epoch, even without a returned record. A batch that is cut off does not.
func TestTheLastBatchThatIsRead(t *testing.T) {
	empty := func(first int64, epoch int32) []byte {
		b := batch(first, 2, 0)
		binary.BigEndian.PutUint32(b[lengthFrom:], uint32(epoch)) // which comes first; the checksum does not cover it
		return b
	}
	r := NewReader(nil, Log{Topic: "t"}, 5)
	for _, tt := range []struct {
		batches []byte
		epoch   Epoch
		behind  int64
	}{
		{nil, 0, 0},
		{append(empty(5, 3), empty(7, 4)...), EpochOf(4), 9},
		{append(empty(9, 4), empty(11, 6)[:batchHeader-1]...), EpochOf(4), 11},
		{nil, EpochOf(4), 11},
	} {
		a := answer()
		a.RecordBatches, a.LastStableOffset = tt.batches, 20
		if _, err := r.take(a); err != nil {
			t.Fatal(err)
		}
		if epoch, behind := r.Last(); epoch != tt.epoch || behind != tt.behind {
			t.Errorf("epoch %d below %d, want %d, %d", epoch, behind, tt.epoch, tt.behind)
		}
	}
	if r.SetPosition(6); r.last != (batchEnd{}) {
		t.Errorf("%+v was read last by a reader that was set back", r.last)
	}
}

// batch is a record batch over the offsets [first, first+span) in which only the first n records are left.
func batch(first int64, span, n int) []byte {
	b := kmsg.RecordBatch{
		FirstOffset:     first,
		Magic:           2,
		LastOffsetDelta: int32(span - 1),
		ProducerID:      -1,
		ProducerEpoch:   -1,
		FirstSequence:   -1,
		NumRecords:      int32(n),
	}
	for i := range n {
		rec := kmsg.Record{OffsetDelta: int32(i), Value: []byte("v")}
		body := rec.AppendTo(nil)[1:] // without the length, which is 0 so far
		rec.Length = int32(len(body))
		b.Records = rec.AppendTo(b.Records)
	}
	const lengthAt, crcAt, crcFrom = 8, 17, 21
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[lengthAt:], uint32(len(raw)-lengthAt-4))
	binary.BigEndian.PutUint32(raw[crcAt:], crc32.Checksum(raw[crcFrom:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func TestTakeOfBatches(t *testing.T) {
	bad := batch(8, 2, 2)
	bad[len(bad)-1]++ // no longer what its checksum says
	tests := []struct {
		name     string
		batches  [][]byte
		records  int
		position int64
		fails    bool
	}{
		{name: "whole", batches: [][]byte{batch(5, 3, 3)}, records: 3, position: 8},
		{name: "begun before the position", batches: [][]byte{batch(3, 3, 3)}, records: 1, position: 6},
		{name: "after a hole", batches: [][]byte{batch(8, 1, 1)}, records: 1, position: 9},
		{name: "emptied by compaction", batches: [][]byte{batch(5, 4, 0)}, position: 9},
		{name: "its last records compacted away", batches: [][]byte{batch(5, 4, 1)}, records: 1, position: 9},
		{name: "the second cut short", batches: [][]byte{batch(5, 1, 1), batch(6, 1, 1)[:30]}, records: 1, position: 6},
		{name: "cut short", batches: [][]byte{batch(5, 1, 1)[:30]}, position: 5, fails: true},
		{name: "damaged", batches: [][]byte{bad}, position: 5, fails: true},
		{name: "the second damaged", batches: [][]byte{batch(5, 1, 1), bad}, records: 1, position: 6},
		{name: "damaged after an empty one", batches: [][]byte{batch(5, 1, 0), bad}, position: 6},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(nil, Log{Topic: "t"}, 5)
			a := answer()
			a.RecordBatches = bytes.Join(tt.batches, nil)
			page, err := r.take(a)
			if len(page.Records) != tt.records || r.Position() != tt.position || (err != nil) != tt.fails {
				t.Errorf("got %d records to %d, %v; want %d to %d", len(page.Records), r.Position(), err, tt.records,
					tt.position)
			}
		})
	}
}

func FuzzTake(f *testing.F) {
	f.Add([]byte{}, int64(0))
	f.Add(batch(0, 5, 5), int64(2))
	f.Add(append(batch(0, 5, 0), batch(5, 1, 1)...), int64(0))
	f.Fuzz(func(t *testing.T, batches []byte, from int64) {
		r := NewReader(nil, Log{Topic: "t"}, from)
		a := answer()
		a.RecordBatches = batches
		page, err := r.take(a)
		if r.Position() < from || (err != nil && r.Position() != from) {
			t.Fatalf("moved from %d to %d with %v", from, r.Position(), err)
		}
		for _, rec := range page.Records {
			if rec.Offset < from || rec.Offset >= r.Position() {
				t.Fatalf("record %d outside of [%d, %d)", rec.Offset, from, r.Position())
			}
		}
	})
}
