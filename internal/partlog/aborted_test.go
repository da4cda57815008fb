package partlog

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

// Whether a batch is one of an aborted transaction is told for each offset in it, of
// batches between others of the same producer, and without decompressing anything.
func TestAborted(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, on *kafkatest.Setup) {
		p := newPartition(on, nil)
		tx := p.begin("tx", "committed", "too")
		tx.end(kgo.TryCommit)
		tx.begin("aborted", "too")
		p.write(p.cl, "plain")
		tx.write3(string(bytes.Repeat([]byte{'x'}, 10_000)))
		tx.end(kgo.TryAbort)
		tx.begin("committed")
		tx.end(kgo.TryCommit)
		other := p.begin("other", "aborted")
		other.end(kgo.TryAbort)

		all, shown := p.readAll(NewReader(p.cl, p.target, 0), (*Reader).SetUncommitted), p.readAll(NewReader(p.cl, p.target, 0))
		if len(all) != 10 || len(shown) != 4 {
			t.Fatalf("%d records, of which %d are shown, want 10 and 4", len(all), len(shown))
		}
		for offset, value := range all {
			look := NewReader(p.cl, p.target, offset)
			look.SetMaxBytes(1)
			look.SetDecompressor(refusing{})
			got, err := look.Aborted(p.Ctx)
			if _, committed := shown[offset]; err != nil || got == committed || look.Position() != offset {
				t.Errorf("offset %d, %.9s: aborted %v, %v; a read_committed fetch shows it: %v", offset, value, got, err, committed)
			}
		}
	})
}

// write3 is a batch of three.
func (tx *transaction) write3(value string) {
	tx.p.T.Helper()
	var recs []*kgo.Record
	for range 3 {
		recs = append(recs, &kgo.Record{Topic: tx.p.target.Topic, Partition: tx.p.target.Partition, Value: []byte(value)})
	}
	if err := tx.cl.ProduceSync(tx.p.Ctx, recs...).FirstErr(); err != nil {
		tx.p.T.Fatal(err)
	}
}

// readAll returns the values up to the end, by offset.
func (p *partition) readAll(r *Reader, how ...func(*Reader)) map[int64]string {
	p.T.Helper()
	for _, set := range how {
		set(r)
	}
	at := map[int64]string{}
	for r.Position() < p.end() {
		page, err := r.Next(p.Ctx, 0)
		if err != nil {
			p.T.Fatal(err)
		}
		for _, rec := range page.Records {
			at[rec.Offset] = string(rec.Value)
		}
	}
	return at
}

// refusing decompresses nothing.
type refusing struct{}

func (refusing) Decompress([]byte, kgo.CompressionCodecType) ([]byte, error) {
	return nil, kgo.ErrMaxDecompress
}
