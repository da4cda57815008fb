package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kit/beats"
)

// barEvery is the interval at which a progress bar moves.
const barEvery = 100 * time.Millisecond

// phase is a measurement in progress: timers, their plain consumer, and a meter.
type phase struct {
	*batch
	meter
	name   string
	timers int
	// stopReading ends the consumer, which books into the batch. It may be called twice.
	stopReading func()
}

// nextBatch returns n timers that no earlier phase had.
func (r *run) nextBatch(n int) *batch {
	b := newBatch(fmt.Sprintf("%s-%d-", r.name, len(r.batches)), r.ValueBytes, n)
	r.batches = append(r.batches, b)
	return b
}

// begin opens a phase of n timers. The caller stops it.
func (r *run) begin(ctx context.Context, name string, n int) (*phase, error) {
	return r.collect(ctx, name, r.target, r.nextBatch(n), n)
}

// collect is begin for an existing batch whose n timers fire to a topic. It reads the topic from its current end.
func (r *run) collect(ctx context.Context, name, topic string, b *batch, n int) (*phase, error) {
	from, err := r.ends(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	cl, err := r.newClient(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	stop := background(context.WithoutCancel(ctx), func(life context.Context) {
		for life.Err() == nil {
			fetches, at := cl.PollFetches(life), time.Now()
			fetches.EachRecord(func(rec *kgo.Record) {
				got := history.Received{Record: rec, At: at}
				if b.Receive(got); r.receive != nil {
					r.receive(got)
				}
			})
		}
	})
	return &phase{batch: b, meter: meter{r: r}, name: name, timers: n, stopReading: func() {
		stop()
		cl.Close()
	}}, nil
}

// finish ends the scheduling. It waits until every timer has fired and then some time more, or until ctx ends, and
// stops reading. A timer that has not fired by then is lost.
func (p *phase) finish(ctx context.Context) {
	p.Close()
	bar := p.r.bar(p.name, p.timers)
	_ = poll(ctx, barEvery, func() (bool, error) {
		_ = bar.Set(p.Received())
		select {
		case <-p.Full():
			return true, nil
		default:
			return false, nil
		}
	}, ctx.Err)
	_ = bar.Finish()
	beats.Sleep(ctx, p.r.linger)
	p.stopReading()
}

// tell adds the phase to the report: its speed between a moment and the last receipt, its cost, and the lateness of its
// timers. It fails unless the emissions were exact.
func (p *phase) tell(rep *Report, from time.Time) (*Phase, error) {
	told := rep.add(&Phase{Name: p.name})
	_, last := p.Span()
	told.perSecond(p.timers, from, last)
	p.measure(told, p.timers)
	_, told.PeakRSS = memory(p.pid)
	told.late(p.batch, window{})
	if err := told.verify(p.batch); err != nil {
		return nil, fmt.Errorf("%s: %w", rep.Workload, err)
	}
	return told, nil
}

// capacity measures how many timers a second the instance handles if it is sent as many as it accepts.
func (p *phase) capacity(ctx context.Context, rep *Report, o offer, l Lives) (*Phase, error) {
	defer p.stopReading()
	p.start(p.r.serving.pid())
	if err := p.r.schedule(ctx, p.batch, o); err != nil {
		return nil, err
	}
	if err := p.r.awaitSettled(ctx); err != nil {
		return nil, err
	}
	taken := time.Now()
	p.finish(ctx)
	p.stop()
	told, err := p.tell(rep, p.meter.begin.at)
	if err == nil { // without the begin, when no timer is due, and the end, when none is accepted
		told.perSecond(p.timers, p.meter.begin.at, taken.Add(l.lead()/2))
	}
	return told, err
}

// takenIn waits until all requests have been accepted, and adds that as a phase to the report.
func (p *phase) takenIn(ctx context.Context, rep *Report) (*Phase, error) {
	if err := p.r.awaitSettled(ctx); err != nil {
		return nil, err
	}
	p.stop()
	told := rep.add(&Phase{Name: "taking in", Exact: history.Counts{Scheduled: p.timers}})
	told.perSecond(p.timers, p.meter.begin.at, p.end.at)
	p.measure(told, p.timers)
	_, told.PeakRSS = memory(p.pid)
	if p.Received() > 0 {
		told.Note = "some fired before all were taken in"
	}
	return told, nil
}

// ErrInexact means that emissions were lost, duplicated, early or altered. The report that comes with it has their
// numbers and no other figures.
var ErrInexact = history.ErrInexact

// payloadSeed makes payloads the same in every run.
const payloadSeed = 0x77617465

// batch is a set of timers that are scheduled together: their IDs, their payloads, and the book of received emissions.
type batch struct {
	*history.Book
	prefix string // of the IDs; the timer's number follows
	bytes  int    // payload of each timer
	// on selects the partitions of the IDs, which then have a suffix. nil: any partition.
	on         func(partition int) bool
	partitions int
	// places is the partitioner of Java clients. It is kept, because making one for each key took most of the
	// producer's time.
	places kgo.TopicPartitioner
}

func newBatch(prefix string, bytes, n int) *batch {
	return (&batch{prefix: prefix, bytes: bytes}).open(n)
}

// open gives the batch an empty book for n timers.
func (b *batch) open(n int) *batch {
	b.Book = history.NewBook(history.Timers{Prefix: b.prefix, Salted: b.on != nil, Value: func(v []byte, n int) []byte {
		return payload(v, n, b.bytes)
	}}, n)
	return b
}

// place restricts the IDs to some of the partitions. The caller opens the batch again.
func (b *batch) place(partitions int, on func(partition int) bool) *batch {
	b.partitions, b.on, b.places = partitions, on, kgo.StickyKeyPartitioner(nil).ForTopic("")
	return b
}

// id returns the ID of timer n.
func (b *batch) id(n int) []byte {
	id := strconv.AppendInt([]byte(b.prefix), int64(n), 10)
	if b.on == nil {
		return id
	}
	id = append(id, '.')
	for salt := int64(0); ; salt++ {
		if salted := strconv.AppendInt(id, salt, 10); b.on(b.places.Partition(&kgo.Record{Key: salted}, b.partitions)) {
			return salted
		}
	}
}

// payload returns the value of timer n.
func (b *batch) payload(n int) []byte {
	return payload(make([]byte, 0, b.bytes+7), n, b.bytes)
}

// payload appends the value of a timer: bytes that no other timer has and that cannot be compressed.
func payload(b []byte, number, bytes int) []byte {
	random := rand.NewPCG(payloadSeed, uint64(number))
	for len(b) < bytes {
		b = binary.LittleEndian.AppendUint64(b, random.Uint64())
	}
	return b[:bytes]
}

// Lateness is a distribution, in milliseconds.
type Lateness struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

func (l *Lateness) p99() float64 {
	if l == nil {
		return 0
	}
	return l.P99
}

// latenessOf sorts the values and returns their quantiles by nearest rank. perMs is how many units a millisecond has.
func latenessOf(values []int32, perMs float64) *Lateness {
	if len(values) == 0 {
		return nil
	}
	slices.Sort(values)
	ms := func(q float64) float64 {
		return float64(values[max(0, int(math.Ceil(q*float64(len(values))))-1)]) / perMs
	}
	return &Lateness{P50: ms(0.5), P99: ms(0.99), Max: ms(1)}
}

// window is a span of time; the zero one is all time.
type window struct{ from, to time.Time }

func (w window) holds(ms int64) bool {
	return w == window{} || ms >= w.from.UnixMilli() && ms < w.to.UnixMilli()
}

// receivedIn returns how many timers were received within w, by the consumer's clock.
func (b *batch) receivedIn(w window) (n int) {
	b.Each(func(due int64, byReceipt, _ int32) {
		if w.holds(due + int64(byReceipt)/1000) {
			n++
		}
	})
	return n
}

// lateness returns the lateness of timers that are due within w, by the emissions' timestamps and by receipt.
func (b *batch) lateness(w window) (byStamp, byReceipt *Lateness) {
	var stamps, receipts []int32
	b.Each(func(due int64, byReceipt, byStamp int32) {
		if w.holds(due) {
			stamps, receipts = append(stamps, byStamp), append(receipts, byReceipt)
		}
	})
	return latenessOf(stamps, 1), latenessOf(receipts, 1000)
}
