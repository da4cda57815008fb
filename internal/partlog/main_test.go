package partlog

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/await"
	"github.com/waterclock/waterclock/internal/kafkatest"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// testTimeout bounds whatever a test waits for.
const testTimeout = 60 * time.Second

// fake starts an in-process broker of n nodes, ended with the test.
func fake(t testing.TB, n int, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, _ := kafkatest.Fake(t, append([]kfake.Opt{kfake.NumBrokers(n)}, opts...)...)
	return c
}

// partition is one partition under test, and what a test does to it.
type partition struct {
	t      testing.TB
	ctx    context.Context
	seeds  []string
	cl     *kgo.Client // for reading and administration
	adm    *kadm.Client
	target Log
}

func newPartition(t testing.TB, seeds []string, configs map[string]*string) *partition {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	p := &partition{t: t, ctx: ctx, seeds: seeds}
	p.cl = p.client()
	p.adm = kadm.NewClient(p.cl)
	p.target = Log{Topic: kafkatest.Topic(t)}
	p.create(configs)
	return p
}

// create makes the topic, and takes its ID as the target's.
func (p *partition) create(configs map[string]*string) {
	p.t.Helper()
	resp, err := p.adm.CreateTopic(p.ctx, 1, 1, configs, p.target.Topic)
	if err != nil {
		p.t.Fatal(err)
	}
	p.target.ID = resp.ID
}

func (p *partition) client(opts ...kgo.Opt) *kgo.Client {
	p.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(p.seeds...),
		kgo.MetadataMinAge(20 * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
		kgo.RetryTimeout(10 * time.Second),
	}, opts...)...)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(cl.Close)
	return cl
}

// write produces one batch for each value, without a transaction unless cl is
// in one.
func (p *partition) write(cl *kgo.Client, values ...string) {
	p.t.Helper()
	for _, v := range values {
		rec := &kgo.Record{Topic: p.target.Topic, Partition: p.target.Partition, Key: []byte("k"), Value: []byte(v)}
		if err := cl.ProduceSync(p.ctx, rec).FirstErr(); err != nil {
			p.t.Fatalf("write %q: %v", v, err)
		}
	}
}

// transaction is an open transaction with a client of its own.
type transaction struct {
	p  *partition
	cl *kgo.Client
}

func (p *partition) begin(id string, values ...string) *transaction {
	p.t.Helper()
	tx := &transaction{p: p, cl: p.client(kgo.TransactionalID(p.target.Topic + id))}
	tx.begin(values...)
	return tx
}

func (tx *transaction) begin(values ...string) {
	tx.p.t.Helper()
	if err := tx.cl.BeginTransaction(); err != nil {
		tx.p.t.Fatal(err)
	}
	tx.p.write(tx.cl, values...)
}

// end ends the transaction and waits until its marker is in the log.
func (tx *transaction) end(commit kgo.TransactionEndTry) {
	tx.p.t.Helper()
	// kgo v1.22.2 can acknowledge a record before it has stored the metadata of
	// a topic that is new to it. EndTransaction then overlooks the topic: it
	// aborts, and returns nil.
	await.Until(tx.p.t, testTimeout, "the client knows the topic", func() bool {
		leader, _, err := tx.cl.PartitionLeader(tx.p.target.Topic, tx.p.target.Partition)
		return leader >= 0 && err == nil
	})
	before := tx.p.end()
	if err := tx.cl.EndTransaction(tx.p.ctx, commit); err != nil {
		tx.p.t.Fatal(err)
	}
	await.Until(tx.p.t, testTimeout, "the marker is written", func() bool { return tx.p.end() > before })
}

// end is the high watermark.
func (p *partition) end() int64 {
	p.t.Helper()
	_, _, end, err := Bounds(p.ctx, p.cl, p.target)
	if err != nil {
		p.t.Fatal(err)
	}
	return end
}

// drain reads with r until a fetch neither brings nor moves anything.
func (p *partition) drain(r *Reader) (values []string, last Page) {
	p.t.Helper()
	for {
		before := r.Position()
		page, err := r.Next(p.ctx, 0)
		if err != nil {
			p.t.Fatalf("next at %d: %v", before, err)
		}
		for _, rec := range page.Records {
			if rec.Offset < before || rec.Offset >= r.Position() {
				p.t.Fatalf("record %d outside of [%d, %d)", rec.Offset, before, r.Position())
			}
			values = append(values, string(rec.Value))
		}
		if len(page.Records) == 0 && r.Position() == before {
			return values, page
		}
	}
}

// want drains a new reader with each of several page sizes.
func (p *partition) want(from int64, values []string, position int64) {
	p.t.Helper()
	for _, maxBytes := range []int32{1, 200, DefaultLimits().MaxBytes} {
		r := NewReader(p.cl, p.target, from)
		r.SetMaxBytes(maxBytes)
		got, last := p.drain(r)
		if !slices.Equal(got, values) || r.Position() != position {
			p.t.Errorf("with pages of %d bytes: read %q to position %d (of %+v), want %q to %d",
				maxBytes, got, r.Position(), last, values, position)
		}
	}
}
