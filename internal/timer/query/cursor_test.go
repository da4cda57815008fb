package query

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/timer"
)

func places(o Order) *rapid.Generator[Cursor] {
	number := rapid.OneOf(rapid.Int64Range(-3, 3), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, 1 << 62}),
		rapid.Int64())
	partition := rapid.OneOf(rapid.Int32Range(0, 3), rapid.Int32Range(0, math.MaxInt32))
	return rapid.Custom(func(t *rapid.T) Cursor {
		if o == ByID {
			return Cursor{Order: ByID, ID: string(rapid.SliceOfN(rapid.Byte(), 1, maxID).Draw(t, "id")),
				Partition: partition.Draw(t, "partition")}
		}
		return Cursor{Order: ByDue, Ref: timer.Ref{Due: number.Draw(t, "due"), Offset: number.Draw(t, "offset")},
			Partition: partition.Draw(t, "partition")}
	})
}

// A place is read as it was written, also within JSON, and is in the order of what it stands for: a total one.
func TestCursors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := rapid.SampledFrom([]Order{ByDue, ByID}).Draw(t, "order")
		a, b, c := places(o).Draw(t, "a"), places(o).Draw(t, "b"), places(o).Draw(t, "c")
		if got, err := ParseCursor(a.String()); err != nil || got != a {
			t.Fatalf("%q is read as %v: %v", a, got, err)
		}
		if strings.Trim(a.String(), "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-") != "" {
			t.Fatalf("%q is no text for a URL", a)
		}
		var list List
		if text, err := json.Marshal(List{Next: a}); err != nil || json.Unmarshal(text, &list) != nil ||
			list.Next != a {
			t.Fatalf("%s is read as %+v: %v", text, list, err)
		}
		if a.Compare(b) != -b.Compare(a) || a.Compare(b) == 0 != (a == b) || (Cursor{}).Compare(a) != -1 ||
			a.Compare(Cursor{}) != 1 {
			t.Fatalf("%v and %v compare as %d and %d", a, b, a.Compare(b), b.Compare(a))
		}
		sorted := []Cursor{a, b, c}
		slices.SortFunc(sorted, Cursor.Compare)
		if sorted[0].Compare(sorted[2]) > 0 || sorted[0].Compare(sorted[1]) > 0 || sorted[1].Compare(sorted[2]) > 0 {
			t.Fatalf("%v is no order", sorted)
		}
	})
}

// hostile are texts that are no places.
var hostile = []string{
	" ", "d", "d.", "d.1.2", "d.1.2.3.4", "d.01.2.3", "d.+1.2.3", "d.1.2.-3", "d.1.2.3 ", "d.1.2.4294967296",
	"d.9223372036854775808.0.0",
	"d.1.2.x", "d.0x1.2.3", "d.1_0.2.3", "i.0", "i.0.", "i.-1.YQ", "i.0.YQ==", "i.0.YR", "i.0.Y", "i.0.a b", "i.00.YQ",
	"i.0.YQ.", "x.1.2.3", "due.1.2.3",
	"i.0." + strings.Repeat("YWFh", 171), "d.1.2.3\n", "d.1.2.3\x00", "i.0.\xff", strings.Repeat("d.", 1<<16),
}

func TestHostileCursors(t *testing.T) {
	for _, text := range hostile {
		if p, err := ParseCursor(text); !errors.Is(err, ErrCursor) || p != (Cursor{}) || len(err.Error()) > 250 {
			t.Errorf("%.60q is read as %v: %v", text, p, err)
		}
	}
	if p, err := ParseCursor(""); err != nil || !p.IsZero() {
		t.Errorf("nothing is read as %v: %v", p, err)
	}
}

func FuzzParseCursor(f *testing.F) {
	for _, text := range append(hostile, "d.1.2.3", "d.-4611686018427387904.-1.0", "i.3.YWJj") {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParseCursor(text)
		if err == nil && p.String() != text || err != nil && p != (Cursor{}) {
			t.Fatalf("%q is read as %q: %v", text, p, err)
		}
	})
}

// Pages that are merged, question by question, list each timer once and in order, whatever part of its timers a
// partition shows at a time.
func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := rapid.SampledFrom([]Order{ByDue, ByID}).Draw(t, "order")
		parts := make([][]*Timer, rapid.IntRange(1, 4).Draw(t, "partitions"))
		var want []Cursor
		for n := range parts {
			due := rapid.SliceOfNDistinct(rapid.Int64Range(0, 20), 0, 8, rapid.ID[int64]).Draw(t, "due")
			for _, at := range due {
				q := &Timer{Timer: &timer.Timer{ID: []byte{byte(at)}, Due: at, Offset: 7}, Partition: int32(n)}
				parts[n], want = append(parts[n], q), append(want, CursorOf(o, q))
			}
			slices.SortFunc(parts[n], func(a, b *Timer) int { return CursorOf(o, a).Compare(CursorOf(o, b)) })
		}
		slices.SortFunc(want, Cursor.Compare)
		page := Page{Order: o, Limit: rapid.IntRange(1, 5).Draw(t, "limit")}
		var got []Cursor
		for round := 0; ; round++ {
			lists := make([]List, len(parts))
			for n, all := range parts {
				rest := slices.DeleteFunc(
					slices.Clone(all), func(q *Timer) bool { return CursorOf(o, q).Compare(page.After) <= 0 })
				if k := rapid.IntRange(1, page.Limit).Draw(t, "shown"); k < len(rest) {
					lists[n] = List{rest[:k], CursorOf(o, rest[k-1])}
				} else {
					lists[n] = List{Timers: rest}
				}
			}
			l := Merge(o, page.Limit, lists)
			for _, q := range l.Timers {
				got = append(got, CursorOf(o, q))
			}
			if page.After = l.Next; l.Next.IsZero() {
				break
			}
			if round > 100 {
				t.Fatal("no end")
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("merged %v, want %v", got, want)
		}
	})
}
