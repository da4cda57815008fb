package emitter

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Emissions of all shares are sorted by (Due, Seq), and otherwise keep their order, whether a share's are in order or
// not.
func TestOrdered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shares := make([]*Share, rapid.IntRange(0, 9).Draw(t, "shares"))
		var want []*Emission
		for i := range shares {
			s := &Share{Emissions: make([]Emission, rapid.IntRange(0, 20).Draw(t, "emissions"))}
			for k := range s.Emissions {
				s.Emissions[k].Due = rapid.Int64Range(0, 5).Draw(t, "due")
				s.Emissions[k].Seq = rapid.Int64Range(0, 5).Draw(t, "seq")
			}
			if rapid.Bool().Draw(t, "in order") {
				slices.SortStableFunc(s.Emissions, func(a, b Emission) int { return compared(&a, &b) })
			}
			for k := range s.Emissions {
				want = append(want, &s.Emissions[k])
			}
			shares[i] = s
		}
		slices.SortStableFunc(want, compared)
		if got := ordered(shares); !slices.Equal(got, want) {
			t.Errorf("%s\nwant %s", places(got), places(want))
		}
	})
}

func compared(a, b *Emission) int {
	return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Seq, b.Seq))
}

func places(list []*Emission) (text []string) {
	for _, e := range list {
		text = append(text, fmt.Sprintf("%d/%d", e.Due, e.Seq))
	}
	return text
}
