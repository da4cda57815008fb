package api

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
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
	largest := &Record{Key: []byte("a"), Value: []byte(`{"type":"rejected","detail":"` + strings.Repeat(`\u0001`, 1024) + `","x":"` + strings.Repeat(`\u0001`, 512) + `"}`)}
	if got := string(withID(largest)); len(got) < len(largest.Value) {
		t.Errorf("an event of %d bytes is told as %d", len(largest.Value), len(got))
	}
}
