package api

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// A record of an events topic that is larger than any event of ours is not decoded: its members would take twenty
// times their size in a map, for each stream.
func TestMemoryOfForeignEvents(t *testing.T) {
	var members strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&members, `"%x":0,`, i)
	}
	r := &Record{Key: []byte("a"), Value: []byte("{" + members.String() + `"z":0}`)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := string(withID(r))
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 || got != `{"id":"a"}` {
		t.Errorf("a record of %d KiB takes %d KiB, and is told as %d bytes", len(r.Value)>>10, n>>10, len(got))
	}
	largest := &Record{Key: []byte("a"),
		Value: []byte(`{"type":"rejected","detail":"` + strings.Repeat(`\u0001`, 1024) + `","x":"` + strings.Repeat(
			`\u0001`, 512) + `"}`)}
	if got := string(withID(largest)); len(got) < len(largest.Value) {
		t.Errorf("an event of %d bytes is told as %d", len(largest.Value), len(got))
	}
}

// hostileLogs have one record in each partition, whose key and headers take most of a megabyte. It implements Logs.
type hostileLogs struct{ Logs }

func (hostileLogs) Read(_ context.Context, _ string, spans map[int32][2]int64, fn func(*Record) error) error {
	for p := range spans {
		r := &Record{Partition: p, Key: make([]byte, 400<<10), Value: make([]byte, 100<<10),
			Headers: []timer.Header{{Key: "x", Value: make([]byte, 400<<10)}}}
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

// A stream that sends what was there holds little of each partition, whatever other programs have written.
func TestMemoryOfPastEvents(t *testing.T) {
	const partitions = 30
	bounds := make(map[int32][2]int64)
	for p := range int32(partitions) {
		bounds[p] = [2]int64{0, 1}
	}
	s := &stream{events: &events{common: &common{logs: hostileLogs{}}}}
	order := newTimeOrder(bounds, false)
	for spans := order.spans(); len(spans) > 0; spans = order.spans() {
		if err := s.look(t.Context(), order, spans); err != nil {
			t.Fatal(err)
		}
	}
	held, told := 0, 0
	for _, ahead := range order.ahead {
		for _, r := range ahead {
			held, told = held+r.record.size(), told+len(withID(r.record))
		}
	}
	if held > partitions*2*maxEventBytes || told > partitions<<10 {
		t.Errorf("%d events are held in %d KiB, and told in %d", partitions, held>>10, told>>10)
	}
	back := &backward{bounds: make(map[int32][2]int64), low: make(map[int32]int64), over: make(map[int32]bool),
		window: 1, least: 1}
	for p := range int32(partitions) {
		back.bounds[p], back.low[p] = [2]int64{0, 1}, 1
	}
	b := &browser{logs: hostileLogs{}, now: time.Now, bounds: back.bounds, filter: eventFilter{}, limit: 100}
	found, err := b.read(t.Context(), back)
	held = 0
	for _, n := range found {
		held += n.size
	}
	if err != nil || len(found) != partitions || held > partitions*2*maxEventBytes {
		t.Errorf("a list holds %d KiB of %d partitions: %v", held>>10, len(found), err)
	}
}

// A record whose key is longer than any ID is of another program: the key is not told, as it would be a line that no
// client reads.
func TestKeysOfForeignEvents(t *testing.T) {
	r := &Record{Key: []byte(strings.Repeat("<", 900<<10)), Value: []byte(`{"type":"fired"}`)}
	if got := string(withID(r)); got != `{"type":"fired"}` {
		t.Errorf("%.100s, %d bytes", got, len(got))
	}
}

// longLogs count how many offsets are read, and in how many calls. It implements Logs.
type longLogs struct {
	Logs
	offsets int64
	calls   int
}

func (l *longLogs) Read(_ context.Context, _ string, spans map[int32][2]int64, _ func(*Record) error) error {
	l.calls++
	for _, span := range spans {
		l.offsets += span[1] - span[0]
	}
	return nil
}

// A page reads no more of a log with many partitions than of any other, and in windows as large whether all of them
// have records or one.
func TestPageOfManyPartitions(t *testing.T) {
	const partitions, window = 400, maxHistoryOffsets / 400
	for _, c := range []struct {
		name          string
		others, calls int
	}{{"all have records", 10_000, 1}, {"one has", 0, maxHistoryOffsets / window}} {
		l := &longLogs{}
		b := &browser{logs: l, now: time.Now, bounds: make(map[int32][2]int64), filter: eventFilter{}, limit: 1000}
		for p := range int32(partitions) {
			b.bounds[p] = [2]int64{0, int64(c.others)}
		}
		b.bounds[0] = [2]int64{0, 1_000_000}
		_, cursor, err := b.page(t.Context(), "")
		if err != nil || cursor == "" || l.offsets != maxHistoryOffsets || l.calls > c.calls {
			t.Errorf("%s: %d offsets are read in %d calls, want %d in %d at most; %v", c.name, l.offsets, l.calls,
				maxHistoryOffsets, c.calls, err)
		}
	}
}
