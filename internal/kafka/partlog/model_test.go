package partlog

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

// logModel is the correct view of a read_committed reader on a log.
type logModel struct {
	end   int64
	first map[int]int64 // open transactions: producer to its first offset
	recs  []modelRecord
}

type modelRecord struct {
	offset    int64
	producer  int // -1: no transaction
	value     string
	committed bool
}

func (l *logModel) append(producer int, value string) {
	if _, open := l.first[producer]; producer >= 0 && !open {
		l.first[producer] = l.end
	}
	l.recs = append(l.recs, modelRecord{l.end, producer, value, producer < 0})
	l.end++
}

func (l *logModel) finish(producer int, committed bool) {
	for i := range l.recs {
		if r := &l.recs[i]; r.producer == producer && r.offset >= l.first[producer] {
			r.committed = committed
		}
	}
	delete(l.first, producer)
	l.end++ // the marker
}

func (l *logModel) lastStable() int64 {
	stable := l.end
	for _, first := range l.first {
		stable = min(stable, first)
	}
	return stable
}

func (l *logModel) visible() (values []string) {
	for _, r := range l.recs {
		if r.committed && r.offset < l.lastStable() {
			values = append(values, r.value)
		}
	}
	return values
}

// TestReaderAgainstModel writes random interleavings of transactions and reads along.
func TestReaderAgainstModel(t *testing.T) {
	const producers = 3
	on := kafkatest.OnFake(t, 1)
	p := newPartition(on, nil)
	txns := make([]*transaction, producers)
	for i := range txns {
		txns[i] = &transaction{p: p, cl: p.client(kgo.TransactionalID(fmt.Sprint("m", i)))}
	}
	rapid.Check(t, func(rt *rapid.T) {
		p.target = Log{Topic: kafkatest.Topic(t)}
		p.create(nil)
		m := &logModel{first: map[int]int64{}}
		var along []string // the records of one Reader that reads all along
		r := NewReader(p.cl, p.target, 0)
		r.SetMaxBytes(int32(rapid.SampledFrom([]int{1, 150, 1 << 20}).Draw(rt, "page bytes")))

		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			who := rapid.IntRange(-1, producers-1).Draw(rt, "producer")
			_, open := m.first[who]
			switch {
			case who < 0:
				m.append(who, fmt.Sprint("v", m.end))
				p.write(p.cl, fmt.Sprint("v", m.end-1))
			case !open || rapid.IntRange(0, 2).Draw(rt, "go on") == 0:
				m.append(who, fmt.Sprint("v", m.end))
				if v := fmt.Sprint("v", m.end-1); open {
					p.write(txns[who].cl, v)
				} else {
					txns[who].begin(v)
				}
			default:
				committed := rapid.Bool().Draw(rt, "commit")
				m.finish(who, committed)
				txns[who].end(kgo.TransactionEndTry(committed))
			}
			if more, err := r.More(p.Ctx); err != nil || more != (m.lastStable() > r.Position()) {
				rt.Fatalf("more behind %d of %d: %v, %v", r.Position(), m.lastStable(), more, err)
			}
			if rapid.Bool().Draw(rt, "read") {
				got, _ := p.drain(r)
				along = append(along, got...)
				if want := m.visible(); !slices.Equal(along, want) || r.Position() != m.lastStable() {
					rt.Fatalf("read %q to %d, want %q to %d", along, r.Position(), want, m.lastStable())
				}
			}
		}
		p.want(0, m.visible(), m.lastStable())
		for who := range m.first {
			txns[who].end(abort)
		}
	})
}
