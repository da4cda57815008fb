package intake

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestTrackerTranscript runs the transcripts in testdata/tracker; go test
// -rewrite writes what the tracker answers.
//
//	new position=N                   a new tracker
//	open name=b parts=N position=N   the next batch in order of delivery
//	done name=b entries=(…)          one planned part of it
//	fire [after=b] entries=(…)       firings of one worker
//	take [entries=N]                 seals a prefix
//	commit, untake                   end the segment that is out
//
// Every answer ends with the committed position and the fill.
func TestTrackerTranscript(t *testing.T) {
	datadriven.Walk(t, "testdata/tracker", func(t *testing.T, path string) {
		var s trackerScript
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.run(t, d)
		})
	})
}

type trackerScript struct {
	tr      *Tracker[string]
	batches map[string]*Batch[string]
}

func (s *trackerScript) run(t *testing.T, d *datadriven.TestData) string {
	var (
		out             strings.Builder
		name, after     string
		entries         []string
		parts, position int
	)
	d.MaybeScanArgs(t, "name", &name)
	d.MaybeScanArgs(t, "after", &after)
	d.MaybeScanArgs(t, "parts", &parts)
	d.MaybeScanArgs(t, "position", &position)
	switch d.Cmd {
	case "new":
		s.tr, s.batches = NewTracker[string](int64(position)), map[string]*Batch[string]{}
	case "open":
		s.batches[name] = s.tr.Open(parts, int64(position))
		fmt.Fprintf(&out, "joined %v\n", s.tr.Joined(s.batches[name]))
	case "done":
		d.MaybeScanArgs(t, "entries", &entries)
		fmt.Fprintf(&out, "grew %v\n", s.tr.Done(s.batches[name], entries, int64(len(entries))))
	case "fire":
		d.ScanArgs(t, "entries", &entries)
		fmt.Fprintf(&out, "grew %v\n", s.tr.Fire(s.batches[after], entries, int64(len(entries))))
	case "take":
		limit := 1000
		d.MaybeScanArgs(t, "entries", &limit)
		seg := s.tr.Take(limit, 1<<20)
		if seg == nil {
			out.WriteString("nothing ready\n")
			break
		}
		for _, c := range seg.Chunks {
			fmt.Fprintf(&out, "%v ", c)
		}
		fmt.Fprintf(&out, "→ position %d\n", seg.Position)
	case "commit":
		s.tr.Commit()
	case "untake":
		s.tr.Untake()
	default:
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
	n, b := s.tr.Fill()
	fmt.Fprintf(&out, "position %d, fill %d entries, %d bytes", s.tr.Position(), n, b)
	return out.String() + "\n"
}
