package api

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A set has what was added, and nothing else; as text it is the same set, unless the text has no room, and then the
// first of it.
func TestOffsets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s offsets
		want := make(map[int64]bool)
		for range rapid.IntRange(0, 12).Draw(t, "spans") {
			from := rapid.Int64Range(0, 60).Draw(t, "from")
			to := from + rapid.Int64Range(0, 9).Draw(t, "length")
			s = s.with([2]int64{from, to})
			for o := from; o < to; o++ {
				want[o] = true
			}
		}
		for o := range int64(80) {
			if s.has(o) != want[o] {
				t.Fatalf("%v has %d: %v", s, o, s.has(o))
			}
		}
		if !s.includes(s) || !s.with([2]int64{0, 90}).includes(s) || s.includes(offsets{{85, 86}}) {
			t.Fatalf("%v includes something else", s)
		}
		most := rapid.SampledFrom([]int{0, 4, 9, 1000}).Draw(t, "most")
		text, kept := s.above(most)
		got := readOffsets(s.upTo(), text)
		if len(text) > most || !slices.Equal(got, s[:kept]) || most == 1000 && kept != len(s) {
			t.Fatalf("%v is %q, which has %d spans and is read as %v", s, text, kept, got)
		}
	})
	for text, want := range map[string]int{"": 1, "x": 1, "3,y": 2, "3+-1": 1, "3,4+2,99999999999999999999": 3} {
		if got := readOffsets(7, text); len(got) != want {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
