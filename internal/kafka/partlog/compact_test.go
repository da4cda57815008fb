package partlog

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// TestCompacted reads a log that a real cleaner has thinned out, and that ends
// in an aborted transaction: records, whole batches and all records of a batch
// are gone, the position reaches the end nevertheless.
func TestCompacted(t *testing.T) {
	p := newPartition(kafkatest.OnShared(t), map[string]*string{
		"cleanup.policy":            kadm.StringPtr("compact"),
		"segment.ms":                kadm.StringPtr("50"),
		"min.cleanable.dirty.ratio": kadm.StringPtr("0.01"),
		"min.compaction.lag.ms":     kadm.StringPtr("0"),
		"delete.retention.ms":       kadm.StringPtr("0"),
	})
	// The batch of a producer that wrote nothing later is emptied, not removed.
	p.write(p.client(), "0")
	p.begin("c", "1", "2").end(commit)
	p.begin("a", "x").end(abort)
	written := 3
	for ; written < 20; written++ {
		p.write(p.cl, fmt.Sprint("v", written))
	}
	await.Until(p.T, time.Minute, "the cleaner has run", func() bool {
		p.write(p.cl, "roll") // a segment is closed by a later write
		written++
		got, _ := p.drain(NewReader(p.cl, p.target, 0))
		return len(got) < written/2
	})
	p.begin("b", "x", "x").end(abort)

	r := NewReader(p.cl, p.target, 0)
	r.SetCompacted(true)
	got, page := p.drain(r)
	if len(got) == 0 || got[len(got)-1] != "roll" || r.Position() != page.HighWatermark {
		t.Errorf("read %q to %d of %d", got, r.Position(), page.HighWatermark)
	}
	if start, _, _, err := Bounds(p.Ctx, p.cl, p.target); err != nil || start != 0 {
		t.Errorf("the log begins at %d, %v: this was not compaction", start, err)
	}
}

// BenchmarkRead compares a Reader with kgo's consumer on a real broker: records
// of 16 and 200 bytes, one partition.
func BenchmarkRead(b *testing.B) {
	const records = 500_000
	p := newPartition(kafkatest.OnShared(b), nil)
	producer := p.client(kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.MaxBufferedRecords(100_000))
	value := make([]byte, 200)
	for i := range records {
		key := fmt.Appendf(nil, "%016d", i)
		producer.Produce(p.Ctx, &kgo.Record{Topic: p.target.Topic, Key: key, Value: value}, nil)
	}
	if err := producer.Flush(p.Ctx); err != nil {
		b.Fatal(err)
	}
	for _, size := range []int32{1 << 20, 4 << 20, 16 << 20} {
		b.Run(fmt.Sprintf("reader/%dMiB", size>>20), func(b *testing.B) {
			for b.Loop() {
				r := NewReader(p.cl, p.target, 0)
				r.SetMaxBytes(size)
				for n := 0; n < records; {
					page, err := r.Next(p.Ctx, 0)
					if err != nil {
						b.Fatal(err)
					}
					n += len(page.Records)
				}
			}
			b.ReportMetric(float64(b.N*records)/b.Elapsed().Seconds(), "records/s")
		})
	}
	b.Run("consumer", func(b *testing.B) {
		for b.Loop() {
			cl := p.client(kgo.FetchIsolationLevel(kgo.ReadCommitted()),
				kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
					p.target.Topic: {0: kgo.NewOffset().At(0)},
				}))
			for n := 0; n < records; {
				n += cl.PollFetches(p.Ctx).NumRecords()
			}
			cl.Close()
		}
		b.ReportMetric(float64(b.N*records)/b.Elapsed().Seconds(), "records/s")
	})
}
