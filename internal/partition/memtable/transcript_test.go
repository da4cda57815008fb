package memtable

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/waterclock/waterclock/internal/timer"
)

// TestTranscript runs the transcripts in testdata; go test -rewrite writes the table's answers.
//
//	new now=N                 a new table, with slots of a millisecond
//	insert due=(D,…) [seq=S]  objects that are soon; Seq counts up from 1 unless given
//	remove seq=S
//	pop now=N [limit=L]
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
	table   *Table
	numbers map[int64]int32 // by Seq
	seq     int64
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	var now, due, seq int64
	var out strings.Builder
	d.MaybeScanArgs(t, "now", &now)
	switch d.Cmd {
	case "new":
		*s = script{table: New(now, 0), numbers: map[int64]int32{}}
	case "insert":
		s.insert(t, d)
	case "remove":
		d.ScanArgs(t, "seq", &seq)
		s.table.Remove(s.numbers[seq])
	case "pop":
		limit := math.MaxInt
		d.MaybeScanArgs(t, "limit", &limit)
		out.WriteString("popped")
		for ; limit > 0; limit-- {
			k, ok := s.table.First(now)
			if !ok {
				break
			}
			if at := s.table.Pop(now); at.Number() != s.numbers[k.Offset] {
				t.Fatalf("%s: %v is popped, first is %v", d.Pos, at, k)
			}
			fmt.Fprintf(&out, " %d/%d", k.Due, k.Offset)
		}
		out.WriteString("\n")
	case "next":
		if at, ok := s.table.Next(); ok {
			fmt.Fprintf(&out, "next %d\n", at)
		}
	case "evict":
		d.ScanArgs(t, "due", &due)
		d.ScanArgs(t, "seq", &seq)
		n := 0
		s.table.Evict(timer.Ref{Due: due, Offset: seq}, func(int32) { n++ })
		fmt.Fprintf(&out, "evicted %d\n", n)
	case "farthest":
		var n int
		d.ScanArgs(t, "n", &n)
		k := s.table.Farthest(n)
		fmt.Fprintf(&out, "%d/%d\n", k.Due, k.Offset)
	default:
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
	fmt.Fprintf(&out, "len %d", s.table.Stats().Soon)
	return out.String() + "\n"
}

func (s *script) insert(t *testing.T, d *datadriven.TestData) {
	var dues []int64
	d.ScanArgs(t, "due", &dues)
	for _, due := range dues {
		s.seq++
		seq := s.seq
		d.MaybeScanArgs(t, "seq", &seq)
		s.numbers[seq] = s.table.AddObject(fmt.Sprint("id", seq))
		s.table.Put(s.numbers[seq], Soon, timer.Ref{Due: due, Offset: seq})
	}
}
