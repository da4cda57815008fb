package bench

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// emission is what a correct service would write for timer n of l.
func emission(l *ledger, n int, id []byte, due int64) *kgo.Record {
	return &kgo.Record{
		Key: id, Value: payload(nil, n, l.bytes), Timestamp: time.UnixMilli(due),
		Headers: []kgo.RecordHeader{
			{Key: waterclock.HeaderID, Value: id}, {Key: waterclock.HeaderDue, Value: strconv.AppendInt(nil, due, 10)}},
	}
}

func TestLedger(t *testing.T) {
	const due = int64(1_700_000_000_000)
	for _, c := range []struct {
		name string
		do   func(l *ledger, r *kgo.Record, at time.Time)
		want Exactness
	}{
		{"exact", func(l *ledger, r *kgo.Record, at time.Time) { l.receive(r, at) }, Exactness{Received: 1}},
		{"lost", func(*ledger, *kgo.Record, time.Time) {}, Exactness{Lost: 1}},
		{"doubled", func(l *ledger, r *kgo.Record, at time.Time) { l.receive(r, at); l.receive(r, at) }, Exactness{Received: 1, Doubled: 1}},
		{"early by its timestamp", func(l *ledger, r *kgo.Record, at time.Time) {
			r.Timestamp = r.Timestamp.Add(-time.Millisecond)
			l.receive(r, at)
		}, Exactness{Received: 1, Early: 1}},
		{"early by receipt", func(l *ledger, r *kgo.Record, at time.Time) { l.receive(r, at.Add(-time.Millisecond)) }, Exactness{Received: 1, Early: 1}},
		{"another value", func(l *ledger, r *kgo.Record, at time.Time) { r.Value[3]++; l.receive(r, at) }, Exactness{Received: 1, Altered: 1}},
		{"another key", func(l *ledger, r *kgo.Record, at time.Time) { r.Key = []byte("x"); l.receive(r, at) }, Exactness{Received: 1, Altered: 1}},
		{"another due time", func(l *ledger, r *kgo.Record, at time.Time) { r.Headers[1].Value = []byte("17"); l.receive(r, at) }, Exactness{Received: 1, Altered: 1}},
		{"a timer that nobody scheduled", func(l *ledger, r *kgo.Record, at time.Time) {
			l.receive(r, at)
			r.Key, r.Headers[0].Value = []byte("p-1"), []byte("p-1")
			l.receive(r, at)
		}, Exactness{Received: 1, Altered: 1}},
		{"somebody else's", func(l *ledger, r *kgo.Record, at time.Time) {
			l.receive(r, at)
			l.receive(&kgo.Record{Key: []byte("other")}, at)
		}, Exactness{Received: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger("p-", 20, 1)
			id, value := l.schedule(due)
			if len(value) != 20 {
				t.Errorf("payload of %d bytes", len(value))
			}
			l.close()
			c.do(l, emission(l, 0, id, due), time.UnixMilli(due))
			c.want.Scheduled = 1
			got := l.result()
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			exact := got.Lost+got.Doubled+got.Early+got.Altered == 0
			if err := got.err("phase"); errors.Is(err, ErrInexact) == exact {
				t.Errorf("%+v: %v", got, err)
			}
			select {
			case <-l.full:
				if got.Received == 0 {
					t.Error("complete without the emission")
				}
			default:
				if got.Received == 1 {
					t.Error("not complete")
				}
			}
		})
	}
}

func TestLateness(t *testing.T) {
	h := newHistogram()
	if h.lateness() != nil {
		t.Error("a distribution of nothing")
	}
	for i := 1; i <= 1000; i++ {
		h.record(time.Duration(i) * time.Millisecond)
	}
	h.record(-time.Second)
	got := h.lateness()
	for _, c := range []struct{ got, want float64 }{{got.P50, 500}, {got.P99, 990}, {got.Max, 1000}} {
		if c.got < c.want*0.998 || c.got > c.want*1.002 {
			t.Errorf("%+v: %g, want %g", got, c.got, c.want)
		}
	}
}

func TestParseStatus(t *testing.T) {
	rss, peak := ParseStatus([]byte("Name:\twaterclock\nVmPeak:\t  999 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t9\n"))
	if rss != 1<<20 || peak != 2<<20 {
		t.Errorf("%d, %d", rss, peak)
	}
}
