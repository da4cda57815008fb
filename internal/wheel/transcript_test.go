package wheel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestTranscript runs the transcripts in testdata; go test -rewrite writes what
// the wheel answers.
//
//	new now=N                 a new wheel
//	insert due=(D,…) [seq=S]  entries; Seq counts up from 1 unless given
//	remove seq=S
//	pop now=N [limit=L] [stop=S]   stop: the callback refuses this Seq
//	next
//	evict due=D seq=S
//	farthest n=N
func TestTranscript(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.run(t, d)
		})
	})
}

type script struct {
	w    *Wheel[string]
	byID map[int64]*Entry[string]
	seq  int64
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	var now, due, seq int64
	var out strings.Builder
	d.MaybeScanArgs(t, "now", &now)
	switch d.Cmd {
	case "new":
		*s = script{w: New[string](now), byID: map[int64]*Entry[string]{}}
	case "insert":
		s.insert(t, d)
	case "remove":
		d.ScanArgs(t, "seq", &seq)
		s.w.Remove(s.byID[seq])
	case "pop":
		limit, stop := 1000, int64(-1)
		d.MaybeScanArgs(t, "limit", &limit)
		d.MaybeScanArgs(t, "stop", &stop)
		out.WriteString("popped")
		s.w.Pop(now, limit, func(e *Entry[string]) bool {
			if e.Key.Seq == stop {
				return false
			}
			fmt.Fprintf(&out, " %d/%d", e.Key.Due, e.Key.Seq)
			return true
		})
		out.WriteString("\n")
	case "next":
		if at, ok := s.w.Next(); ok {
			fmt.Fprintf(&out, "next %d\n", at)
		}
	case "evict":
		d.ScanArgs(t, "due", &due)
		d.ScanArgs(t, "seq", &seq)
		n := 0
		s.w.EvictFrom(Key{due, seq}, func(*Entry[string]) { n++ })
		fmt.Fprintf(&out, "evicted %d\n", n)
	case "farthest":
		var n int
		d.ScanArgs(t, "n", &n)
		k, ok := s.w.Farthest(n)
		fmt.Fprintf(&out, "%d/%d %v\n", k.Due, k.Seq, ok)
	default:
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
	fmt.Fprintf(&out, "len %d", s.w.Len())
	return out.String() + "\n"
}

func (s *script) insert(t *testing.T, d *datadriven.TestData) {
	var dues []int64
	d.ScanArgs(t, "due", &dues)
	for _, due := range dues {
		s.seq++
		seq := s.seq
		d.MaybeScanArgs(t, "seq", &seq)
		e := &Entry[string]{Key: Key{due, seq}}
		s.byID[seq] = e
		s.w.Insert(e)
	}
}
