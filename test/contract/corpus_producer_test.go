package contract

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
)

// lot is a batch that Kafka's own producer writes.
type lot struct {
	codec, level string
	records      int
}

func (l lot) String() string {
	level := ""
	if l.level != "-" {
		level = " level " + l.level
	}
	return fmt.Sprintf("java: %s%s, %d records", l.codec, level, l.records)
}

// lots are batches of each codec at each level that means something.
func lots() (lots []lot) {
	levels := []lot{{codec: "none", level: "-"}, {codec: "snappy", level: "-"}}
	for i := 1; i <= 9; i++ {
		levels = append(levels, lot{codec: "gzip", level: fmt.Sprint(i)})
	}
	for i := 1; i <= 17; i++ {
		levels = append(levels, lot{codec: "lz4", level: fmt.Sprint(i)})
	}
	for _, i := range []int{-131072, -1, 1, 3, 10, 19, 20, 21, 22} {
		levels = append(levels, lot{codec: "zstd", level: fmt.Sprint(i)})
	}
	for _, l := range levels {
		for _, l.records = range []int{1, 50} {
			lots = append(lots, l)
		}
		if l.codec == "snappy" || l.level == "17" || l.level == "22" || l == (lot{"gzip", "9", 50}) {
			l.records = 2000
			lots = append(lots, l)
		}
	}
	return lots
}

// TestJavaProducer has Kafka's own producer write batches with each codec at each level, and Kafka's own consumer read
// them. With -rewrite the batches become cases of the corpus.
func TestJavaProducer(t *testing.T) {
	seeds := kafkatest.Shared(t).Seeds()
	cases := make([]corpus.Case, len(lots()))
	b := newBench(t, seeds, cases)
	c := startClient(t, seeds)
	for i, l := range lots() {
		w := b.all[i]
		for _, err := range []error{
			c.tell("write %s %d %s %s %d", w.topic, w.partition, l.codec, l.level, l.records),
			c.tell("sound %s %d", w.topic, w.partition),
			c.tell("read %s %d 0 %d", w.topic, w.partition, l.records),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	answers := c.answers(t)
	digests := make(map[int]string)
	var text strings.Builder
	text.WriteString("# Batches as Kafka 4.3.1's own producer writes them: TestJavaProducer (test/contract) writes " +
		"this with -rewrite.\n")
	for i, l := range lots() {
		w := b.all[i]
		said := words(answers[fmt.Sprint(w.topic, " ", w.partition, " 0")])
		if digests[l.records] == "" {
			digests[l.records] = said
		}
		if said != digests[l.records] || !strings.HasPrefix(said, fmt.Sprint(l.records, " records, ")) ||
			strings.Contains(said, "then") {
			t.Errorf("%s: %s, others %s", l, said, digests[l.records])
		}
		raw, err := b.fetch(w)
		if err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		fmt.Fprintf(&text, "%s | %s\n", l, base64.StdEncoding.EncodeToString(raw))
	}
	if *rewrite {
		if err := os.WriteFile(testdata+"java.txt", []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// fetch returns the first batch of a partition as it is.
func (b *bench) fetch(w *written) ([]byte, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 1000, 1, 1<<20
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = w.topic, b.ids[w.topic]
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.PartitionMaxBytes = w.partition, 1<<20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(b.ctx, b.cl.Broker(0))
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	p := resp.Topics[0].Partitions[0]
	raw := p.RecordBatches
	const upToSize = 12
	if len(raw) < upToSize {
		return nil, errors.Join(kerr.ErrorForCode(p.ErrorCode), fmt.Errorf("%d bytes", len(raw)))
	}
	return raw[:upToSize+int(binary.BigEndian.Uint32(raw[8:]))], nil
}
