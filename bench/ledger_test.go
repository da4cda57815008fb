package bench

import (
	"errors"
	"os"
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

// Each occurrence of a timer that recurs is booked by itself, and is to come once.
func TestLedgerOfRecurringTimers(t *testing.T) {
	const due, timers, last = int64(1_700_000_000_000), 2, 3
	l := newLedger("p-", 20, timers*last)
	l.timers = timers
	for range timers * last {
		l.schedule(0)
	}
	for i := range timers {
		l.recur(i, due+int64(i), time.Second)
	}
	l.close()
	come := func(timer, occurrence int, due int64) {
		id := []byte("p-" + strconv.Itoa(timer))
		r := emission(l, timer, id, due)
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: waterclock.HeaderOccurrence, Value: strconv.AppendInt(nil, int64(occurrence), 10)})
		l.receive(r, time.UnixMilli(due+1))
	}
	for i := range timers {
		for k := 1; k <= last; k++ {
			if i == 0 || k < last {
				come(i, k, due+int64(i)+int64(k-1)*1000)
			}
		}
	}
	if ids := l.missing(); len(ids) != 1 || ids[0] != "p-1" {
		t.Errorf("%q are missing", ids)
	}
	if got, want := l.result(), (Exactness{Scheduled: 6, Received: 5, Lost: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	come(0, 2, due+1000)                 // again
	come(1, last+1, due+1+1000*last)     // one too many
	come(timers, 1, due)                 // no such timer
	come(0, 0, due-1000)                 // no such occurrence
	come(1, last, due+1+1000*(last-1)+1) // at another time
	if got, want := l.result(), (Exactness{Scheduled: 6, Received: 6, Duplicated: 1, Altered: 4}); got != want {
		t.Errorf("%+v, want %+v", got, want)
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
		{"duplicated", func(l *ledger, r *kgo.Record, at time.Time) { l.receive(r, at); l.receive(r, at) }, Exactness{Received: 1, Duplicated: 1}},
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
		{"cancelled", func(l *ledger, _ *kgo.Record, _ time.Time) { l.cancel(0, time.UnixMilli(due)) }, Exactness{Cancelled: 1}},
		{"cancelled too late", func(l *ledger, r *kgo.Record, at time.Time) {
			l.cancel(0, time.UnixMilli(due+1))
			l.receive(r, at)
			l.cancel(0, time.UnixMilli(due))
		}, Exactness{Received: 1}},
		{"cancelled in vain", func(l *ledger, r *kgo.Record, at time.Time) {
			l.cancel(0, time.UnixMilli(due))
			l.receive(r, at)
		}, Exactness{Cancelled: 1, Uncancelled: 1}},
		{"somebody else's", func(l *ledger, r *kgo.Record, at time.Time) {
			l.receive(r, at)
			l.receive(&kgo.Record{Key: []byte("other")}, at)
		}, Exactness{Received: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger("p-", 20, 1)
			n := l.schedule(due)
			if len(l.payload(n)) != 20 {
				t.Errorf("payload of %d bytes", len(l.payload(n)))
			}
			c.do(l, emission(l, n, l.id(n), due), time.UnixMilli(due))
			l.close()
			c.want.Scheduled = 1
			got := l.result()
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			exact := got.Lost+got.Duplicated+got.Early+got.Altered+got.Uncancelled == 0
			if err := got.err("phase"); errors.Is(err, ErrInexact) == exact {
				t.Errorf("%+v: %v", got, err)
			}
			select {
			case <-l.full:
				if got.Received+got.Cancelled == 0 {
					t.Error("complete without the emission")
				}
			default:
				if got.Received+got.Cancelled == 1 {
					t.Error("not complete")
				}
			}
		})
	}
}

func TestLateness(t *testing.T) {
	const first = int64(1_700_000_000_000)
	l := newLedger("p-", 20, 1000)
	if stamp, receipt := l.lateness(window{}); stamp != nil || receipt != nil {
		t.Error("a distribution of nothing")
	}
	for i := range 1000 {
		due := first + int64(i)
		l.schedule(due)
		r := emission(l, i, l.id(i), due)
		r.Timestamp = r.Timestamp.Add(time.Duration(i) * time.Millisecond)
		l.receive(r, time.UnixMilli(due).Add(time.Duration(2*i)*time.Millisecond+time.Microsecond))
	}
	at := func(i int64) time.Time { return time.UnixMilli(first + i) }
	for _, c := range []struct {
		w              window
		stamp, receipt Lateness
		received       int
	}{
		{window{}, Lateness{499, 989, 999}, Lateness{998.001, 1978.001, 1998.001}, 1000},
		{window{at(100), at(200)}, Lateness{149, 198, 199}, Lateness{298.001, 396.001, 398.001}, 33},
	} {
		stamp, receipt := l.lateness(c.w)
		if n := l.receivedIn(c.w); *stamp != c.stamp || *receipt != c.receipt || n != c.received {
			t.Errorf("%+v, %+v, %d received; want %+v, %+v, %d", stamp, receipt, n, c.stamp, c.receipt, c.received)
		}
	}
}

// The best of pass-throughs is the fastest, and by itself the one that costs all
// processes together the least.
func TestBestLimit(t *testing.T) {
	best := &limit{}
	for _, p := range []*Phase{
		{PerSecond: 2, CPU: &CPU{Own: 3, Broker: 9, Clients: 1}}, {PerSecond: 5, CPU: &CPU{Own: 5, Broker: 4, Clients: 1}},
		{PerSecond: 4, CPU: &CPU{Own: 4, Broker: 4, Clients: 1}}, {PerSecond: 3},
	} {
		best.add(p)
	}
	if best.perSecond != 5 || best.cpu != 4 {
		t.Errorf("%+v", best)
	}
}

func TestParseStat(t *testing.T) {
	if got := parseStat([]byte("17 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 50 3 4 20 0 1\n")); got != 3*time.Second {
		t.Errorf("%s of processor time", got)
	}
}

// What this process uses is seen, and is what the machine uses too.
func TestUsage(t *testing.T) {
	r := &run{Common: &Common{}}
	begin := r.usageOf(os.Getpid())
	if begin.own < 0 {
		t.Skip("this system does not tell")
	}
	for u := r.usageOf(os.Getpid()); u.own-begin.own < 50*time.Millisecond; u = r.usageOf(os.Getpid()) {
	}
	u := r.usageOf(os.Getpid())
	c := u.since(begin, 10)
	// The process is read twice, and goes on in between.
	if c.Own < 5000 || c.Own > 6*5000 || c.Clients < c.Own || c.Clients > c.Own+5000 || u.machine-begin.machine < 30*time.Millisecond {
		t.Errorf("%+v, of the machine %s", c, u.machine-begin.machine)
	}
	if r.usageOf(0).since(r.usageOf(0), 10) != nil {
		t.Error("the processor time of nobody is known")
	}
}

func TestParseStatus(t *testing.T) {
	rss, peak := ParseStatus([]byte("Name:\twaterclock\nVmPeak:\t  999 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t9\n"))
	if rss != 1<<20 || peak != 2<<20 {
		t.Errorf("%d, %d", rss, peak)
	}
}
