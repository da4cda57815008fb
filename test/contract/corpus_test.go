package contract

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
	"github.com/waterclock/waterclock/test/rig"
)

var rewrite = flag.Bool("rewrite", false, "write what Kafka does now to internal/kafkatest/corpus/testdata")

const (
	testdata = "../../internal/kafkatest/corpus/testdata/"
	benching = 5 * time.Minute // with all cases
	taken    = "taken"
	writers  = 4 // that write cases at a time
)

// written is a case in its partition: a sound record, the batch, a sound record, and the same in an aborted
// transaction.
type written struct {
	corpus.Case
	topic     string
	partition int32
	broker    string // what it says of the batch
	aborted   string // and of the batch within a transaction
	from, to  [2]int64
}

// bench is a broker with a topic for each of the settings that cases need, and a partition for each case. A broker
// takes seconds to make them, so a test with a bench is not parallel.
type bench struct {
	t   *testing.T
	ctx context.Context
	cl  *kgo.Client
	all []*written
	ids map[string][16]byte
}

func newBench(t *testing.T, seeds []string, cases []corpus.Case) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), benching)
	t.Cleanup(cancel)
	b := &bench{t: t, ctx: ctx, ids: make(map[string][16]byte)}
	b.cl = kafkatest.Client(t, kgo.SeedBrokers(seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
		kgo.MetadataMinAge(20*time.Millisecond), kgo.UnknownTopicRetries(100), kgo.ProducerBatchMaxBytes(1<<20))
	stem := kafkatest.Topic(t)
	type topic struct {
		name       string
		partitions int32
		config     map[string]*string
	}
	topics := make(map[string]*topic)
	for _, c := range cases {
		kind := fmt.Sprint(c.Config)
		if topics[kind] == nil {
			config := map[string]*string{"retention.ms": kadm.StringPtr("-1")}
			for k, v := range c.Config {
				config[k] = kadm.StringPtr(v)
			}
			topics[kind] = &topic{name: fmt.Sprint(stem, "-", len(topics)), config: config}
		}
		b.all = append(b.all, &written{Case: c, topic: topics[kind].name, partition: topics[kind].partitions})
		topics[kind].partitions++
	}
	adm := kadm.NewClient(b.cl)
	for _, topic := range topics {
		made, err := adm.CreateTopic(ctx, topic.partitions, 1, topic.config, topic.name)
		if err != nil {
			t.Fatal(err)
		}
		b.ids[topic.name] = made.ID
	}
	return b
}

// good writes a sound record and returns its offset.
func (b *bench) good(w *written) (int64, error) {
	r, err := b.cl.ProduceSync(b.ctx,
		&kgo.Record{Topic: w.topic, Partition: w.partition, Value: []byte("sound")}).First()
	if err != nil {
		return 0, fmt.Errorf("%s: a sound record: %w", w.Name, err)
	}
	return r.Offset, nil
}

// answer is what a broker says, as it stands in the table.
func answer(err error) string {
	var code *kerr.Error
	switch {
	case err == nil:
		return taken
	case errors.As(err, &code):
		return code.Message
	}
	return err.Error()
}

// transacts tells whether a case is written in a transaction too. Refused batches are refused there, except those that
// need one; and what records say makes no difference to a reader that skips them.
func transacts(w *written) bool {
	switch w.Group() {
	case "attributes":
		return true
	case "java", "record", "body", "varint", "headers", "time", "count":
		return false
	}
	return w.broker == taken
}

// write writes a case between sound records, and then once more, in a transaction that is aborted.
func (b *bench) write(w *written) (err error) {
	if w.from[0], err = b.good(w); err != nil {
		return err
	}
	w.from[0]++
	now := corpus.Nobody(time.Now())
	w.broker = answer(corpus.Produce(b.ctx, b.cl, w.topic, b.ids[w.topic], w.partition, w.Batch(now)))
	if w.broker == taken {
		if w.to[0], err = b.good(w); err != nil {
			return err
		}
	}
	if !transacts(w) {
		return nil
	}
	w.from[1] = max(w.from[0], w.to[0]+1)
	id := fmt.Sprint(w.topic, "-", w.partition)
	w.aborted = answer(corpus.Transact(b.ctx, b.cl, id, w.topic, b.ids[w.topic], w.partition, w.Case, now, false))
	if w.aborted == taken {
		w.to[1], err = b.good(w)
	}
	return err
}

// client is Corpus.java: Kafka's own clients, in a process of their own.
type client struct {
	in        io.WriteCloser
	out, said bytes.Buffer
	wait      func() error
}

// startClient starts the program. The file is compiled each time.
func startClient(t *testing.T, seeds []string) *client {
	t.Helper()
	cmd := rig.Java(t, "-Xmx1g", "testdata/Corpus.java", seeds[0])
	c := &client{wait: cmd.Wait}
	cmd.Stdout, cmd.Stderr = &c.out, &c.said
	var err error
	if c.in, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return c
}

// tell has the client do something.
func (c *client) tell(format string, args ...any) error {
	_, err := fmt.Fprintf(c.in, format+"\n", args...)
	return err
}

// ask has the client read what was taken of a case.
func (c *client) ask(w *written) error {
	for i := range w.to {
		if w.to[i] > 0 {
			if err := c.tell("read %s %d %d %d", w.topic, w.partition, w.from[i], w.to[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// answers are the fields of all answers, by topic, partition and offset, as soon as nothing more is to be done.
func (c *client) answers(t *testing.T) map[string][]string {
	t.Helper()
	_ = c.in.Close()
	if err := c.wait(); err != nil {
		t.Fatalf("Corpus.java: %v\n%s\n%s", err, c.out.Bytes(), c.said.Bytes())
	}
	answers := make(map[string][]string)
	for line := range strings.Lines(c.out.String()) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 8)
		if len(f) == 8 {
			answers[strings.Join(f[:3], " ")] = f
		}
	}
	return answers
}

// words puts an answer of Corpus.java into words.
func words(f []string) string {
	if f == nil {
		return "no answer"
	}
	count, digest, offsets, past := f[3], f[4], f[5], f[6]
	thrown := strings.ReplaceAll(f[7], f[0]+"-"+f[1], "the partition")
	said := count + " records"
	if count != "0" {
		said += ", " + digest
	}
	if offsets != "-" {
		said += ", at " + offsets
	}
	switch past {
	case "-":
		return said
	case "lost":
		return said + ", then loses the next record"
	case "seek":
		return said + ", then until it seeks: " + thrown
	case "past":
		return said + ", then once: " + thrown
	}
	return said + ", then also when it seeks: " + thrown
}

// TestCorpus writes every case to a real broker and has Kafka's own consumer read it; what they do is in the table.
func TestCorpus(t *testing.T) {
	seeds := kafkatest.Shared(t).Seeds()
	cases := corpus.Cases()
	b := newBench(t, seeds, cases)
	start := time.Now()
	var group errgroup.Group
	group.SetLimit(writers)
	c := startClient(t, seeds)
	for _, w := range b.all {
		group.Go(func() error {
			if err := b.write(w); err != nil {
				return err
			}
			return c.ask(w)
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("written after %v", time.Since(start).Round(time.Millisecond))
	ours := b.product(seeds)
	answers := c.answers(t)
	t.Logf("read after %v", time.Since(start).Round(time.Millisecond))
	got := make(map[string]corpus.Verdict)
	for _, w := range b.all {
		at := fmt.Sprint(w.topic, " ", w.partition, " ")
		v := corpus.Verdict{Broker: w.broker}
		if w.broker == taken {
			v.Consumer = words(answers[at+fmt.Sprint(w.from[0])])
		}
		switch w.aborted {
		case taken:
			v.Aborted = words(answers[at+fmt.Sprint(w.from[1])])
		case "":
		default:
			v.Aborted = "refused: " + w.aborted
		}
		v.Service = ours[w.Name][0]
		judge(t, w.Name, v, ours[w.Name])
		got[w.Name] = v
	}
	if *rewrite {
		if err := os.WriteFile(testdata+"corpus.txt", []byte(format(cases, got)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := corpus.Verdicts()
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if got[name] != want[name] {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got[name], want[name])
		}
	}
}

// TestBrokersTakeBatchesThatUnpackToGigabytes shows that a broker takes batches that take gigabytes as records.
func TestBrokersTakeBatchesThatUnpackToGigabytes(t *testing.T) {
	b := newBench(t, kafkatest.Shared(t).Seeds(), corpus.Heavy())
	for _, w := range b.all {
		if _, err := b.good(w); err != nil {
			t.Fatal(err)
		}
		raw := w.Batch(corpus.Nobody(time.Now()))
		if said := answer(corpus.Produce(b.ctx, b.cl, w.topic, b.ids[w.topic], w.partition, raw)); said != taken {
			t.Errorf("%s: %s", w.Name, said)
		}
		t.Logf("%s: %d bytes", w.Name, len(raw))
	}
}

// format is the text of a table, in the order of cases.
func format(cases []corpus.Case, verdicts map[string]corpus.Verdict) string {
	var b strings.Builder
	b.WriteString("# What Kafka 4.3.1 does with each batch: " +
		"TestCorpus (test/contract) writes this with -rewrite.\n")
	b.WriteString("# case | broker | Kafka's consumer | the same in an aborted transaction | the service\n")
	for _, c := range cases {
		v := verdicts[c.Name]
		row := fmt.Sprintf("%-70s | %-20s | %-30s | %-12s | %s", c.Name, v.Broker, v.Consumer, v.Aborted, v.Service)
		fmt.Fprintf(&b, "%s\n", strings.TrimRight(row, " "))
	}
	return b.String()
}
