package partlog

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// partition is one partition under test, with the helpers of a test.
type partition struct {
	*kafkatest.Setup
	cl     *kgo.Client // for reading
	target Log
}

func newPartition(on *kafkatest.Setup, configs map[string]*string) *partition {
	on.T.Helper()
	p := &partition{Setup: on, target: Log{Topic: kafkatest.Topic(on.T)}}
	p.cl = p.client()
	p.create(configs)
	return p
}

// create makes the topic, and takes its ID as the target's.
func (p *partition) create(configs map[string]*string) {
	p.T.Helper()
	resp, err := p.Adm.CreateTopic(p.Ctx, 1, 1, configs, p.target.Topic)
	must(p.T, err)
	p.target.ID = resp.ID
}

func (p *partition) client(opts ...kgo.Opt) *kgo.Client {
	p.T.Helper()
	return p.Client(append([]kgo.Opt{kgo.RetryTimeout(10 * time.Second)}, opts...)...)
}

// write produces one batch for each value, without a transaction unless cl is in one.
func (p *partition) write(cl *kgo.Client, values ...string) {
	p.T.Helper()
	for _, v := range values {
		rec := &kgo.Record{Topic: p.target.Topic, Partition: p.target.Partition, Key: []byte("k"), Value: []byte(v)}
		if err := cl.ProduceSync(p.Ctx, rec).FirstErr(); err != nil {
			p.T.Fatalf("write %q: %v", v, err)
		}
	}
}

// transaction is an open transaction with a client of its own.
type transaction struct {
	p  *partition
	cl *kgo.Client
}

func (p *partition) begin(id string, values ...string) *transaction {
	p.T.Helper()
	tx := &transaction{p: p, cl: p.client(kgo.TransactionalID(p.target.Topic + id))}
	tx.begin(values...)
	return tx
}

func (tx *transaction) begin(values ...string) {
	tx.p.T.Helper()
	must(tx.p.T, tx.cl.BeginTransaction())
	tx.p.write(tx.cl, values...)
}

// end ends the transaction and waits until its marker is in the log.
func (tx *transaction) end(commit kgo.TransactionEndTry) {
	tx.p.T.Helper()
	// kgo v1.22.2 can acknowledge a record before it has stored the metadata of a topic that is new to it.
	// EndTransaction then overlooks the topic: it aborts, and returns nil.
	await.Until(tx.p.T, time.Minute, "the client knows the topic", func() bool {
		leader, _, err := tx.cl.PartitionLeader(tx.p.target.Topic, tx.p.target.Partition)
		return leader >= 0 && err == nil
	})
	before := tx.p.end()
	must(tx.p.T, tx.cl.EndTransaction(tx.p.Ctx, commit))
	await.Until(tx.p.T, time.Minute, "the marker is written", func() bool { return tx.p.end() > before })
}

// end is the high watermark.
func (p *partition) end() int64 {
	p.T.Helper()
	_, _, end, err := Bounds(p.Ctx, p.cl, p.target)
	must(p.T, err)
	return end
}

// drain reads with r until a fetch neither returns a record nor moves the position.
func (p *partition) drain(r *Reader) (values []string, last Page) {
	p.T.Helper()
	for {
		before := r.Position()
		page, err := r.Next(p.Ctx, 0)
		if err != nil {
			p.T.Fatalf("next at %d: %v", before, err)
		}
		for _, rec := range page.Records {
			if rec.Offset < before || rec.Offset >= r.Position() {
				p.T.Fatalf("record %d outside of [%d, %d)", rec.Offset, before, r.Position())
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
	p.T.Helper()
	for _, maxBytes := range []int32{1, 200, MaxBytes} {
		r := NewReader(p.cl, p.target, from)
		r.SetMaxBytes(maxBytes)
		got, last := p.drain(r)
		if !slices.Equal(got, values) || r.Position() != position {
			p.T.Errorf("with pages of %d bytes: read %q to position %d (of %+v), want %q to %d",
				maxBytes, got, r.Position(), last, values, position)
		}
	}
}

// must ends the test with an error, if there is one.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
