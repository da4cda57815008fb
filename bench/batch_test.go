package bench

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
)

func TestLateness(t *testing.T) {
	const first = int64(1_700_000_000_000)
	l := newBatch("p-", 20, 1000)
	if stamp, receipt := l.lateness(window{}); stamp != nil || receipt != nil {
		t.Error("a distribution of nothing")
	}
	for i := range 1000 {
		due := first + int64(i)
		l.Schedule(due)
		l.Receive(history.Received{At: time.UnixMilli(due).Add(time.Duration(2*i)*time.Millisecond + time.Microsecond),
			Record: &kgo.Record{
				Key: l.id(i), Value: l.payload(i), Timestamp: time.UnixMilli(due + int64(i)),
				Headers: []kgo.RecordHeader{{Key: waterclock.HeaderDue, Value: strconv.AppendInt(nil, due, 10)}},
			}})
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

// The best of pass-throughs is the fastest, and by itself the one that costs all processes together the least.
func TestBestLimit(t *testing.T) {
	best := &limit{}
	for _, p := range []*Phase{
		{PerSecond: 2, CPU: &CPU{Own: 3, Broker: 9, Clients: 1}},
		{PerSecond: 5, CPU: &CPU{Own: 5, Broker: 4, Clients: 1}},
		{PerSecond: 4, CPU: &CPU{Own: 4, Broker: 4, Clients: 1}}, {PerSecond: 3},
	} {
		best.add(p)
	}
	if best.perSecond != 5 || best.cpu != 4 {
		t.Errorf("%+v", best)
	}
}

// What this process uses is seen, and is what the machine uses too.
func TestUsage(t *testing.T) {
	r := &run{Common: &Common{}}
	begin := usageOf(r, os.Getpid())
	if begin.own < 0 {
		t.Skip("this system does not tell")
	}
	for u := usageOf(r, os.Getpid()); u.own-begin.own < 50*time.Millisecond; u = usageOf(r, os.Getpid()) {
	}
	u := usageOf(r, os.Getpid())
	c := u.since(begin, 10)
	// The process is read twice, and goes on in between.
	if c.Own < 5000 || c.Own > 6*5000 || c.Clients < c.Own || c.Clients > c.Own+5000 ||
		u.machine-begin.machine < 30*time.Millisecond {
		t.Errorf("%+v, of the machine %s", c, u.machine-begin.machine)
	}
	if usageOf(r, 0).since(usageOf(r, 0), 10) != nil {
		t.Error("the processor time of nobody is known")
	}
}
