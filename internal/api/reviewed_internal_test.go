package api

import (
	"context"
	"testing"
	"time"
)

// notedMarks implements Marks with one mark.
type notedMarks struct{ note string }

func (n *notedMarks) Marks(context.Context, string) (map[int32]Mark, error) {
	return map[int32]Mark{0: {Offset: 3, Metadata: n.note}}, nil
}

func (n *notedMarks) SetMarks(_ context.Context, _ string, marks map[int32]Mark) error {
	n.note = marks[0].Metadata
	return nil
}

// Marks are written again before Kafka forgets them, also those that somebody else has dated to the future.
func TestMarksAreKept(t *testing.T) {
	now := time.UnixMilli(1_795_338_000_000)
	for note, again := range map[string]bool{
		"": true, `{"at":1795000000000,"kept":1795338000000}`: false, `{"kept":1795000000000}`: true,
		`{"kept":1795424400001}`: true, `{"kept":9223372036854775807}`: true, `{"kept":-9223372036854775808}`: true,
	} {
		m := &notedMarks{note}
		r := &reviews{common: &common{now: func() time.Time { return now }}, marks: m, changed: func(string) {},
			cache: make(map[string]cachedReview)}
		if err := r.keep(t.Context(), "dead"); err != nil {
			t.Error(err)
		}
		if (m.note != note) != again {
			t.Errorf("%s is written as %s", note, m.note)
		}
	}
}
