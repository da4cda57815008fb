package budget

import (
	"testing"

	"pgregory.net/rapid"
)

// holder is an account with pieces that it has taken and not released.
type holder struct {
	*Account
	of     string
	pieces []int64
	next   int64 // the size of the piece that it wants
}

// take takes the next piece if there is room for it.
func (h *holder) take() bool {
	if room := h.Room(h.next); room < h.next {
		return false
	}
	h.pieces = append(h.pieces, h.next)
	h.Set(h.used + h.next)
	return true
}

// release lets go of the oldest piece.
func (h *holder) release() {
	if len(h.pieces) > 0 {
		h.Set(h.used - h.pieces[0])
		h.pieces = h.pieces[1:]
	}
}

// Accounts that take what Room allows hold no more than the total and one piece for each topic, whatever the size of
// their pieces. When others release theirs, each that holds nothing gets its next piece.
func TestRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "topics")]
		partitions := make(map[string]int32)
		for _, n := range names {
			partitions[n] = rapid.Int32Range(1, 4).Draw(t, "partitions")
		}
		total := rapid.Int64Range(reserved*Least*3*4, 1<<20).Draw(t, "total")
		piece := func() int64 {
			if rapid.IntRange(0, 3).Draw(t, "large") == 0 {
				return rapid.Int64Range(1, 2*total).Draw(t, "piece")
			}
			return rapid.Int64Range(1, max(1, total/50)).Draw(t, "piece")
		}
		b := New(total, partitions)
		var all []*holder
		for _, n := range names {
			for range partitions[n] {
				all = append(all, &holder{Account: b.Open(n), of: n, next: piece()})
			}
		}
		largest := make(map[string]int64) // piece of a topic that was taken
		bound := func() {
			sum, most := int64(0), total
			for _, h := range all {
				sum += h.used
			}
			for _, n := range largest {
				most += n
			}
			if sum > most {
				t.Fatalf("%d bytes are held, of %d and one piece of each topic (%v)", sum, total, largest)
			}
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			h := rapid.SampledFrom(all).Draw(t, "account")
			if rapid.IntRange(0, 2).Draw(t, "what") == 0 {
				h.release()
			} else if h.take() {
				largest[h.of] = max(largest[h.of], h.pieces[len(h.pieces)-1])
				h.next = piece()
			}
			bound()
		}
		for _, h := range all {
			if h.used > 0 {
				continue
			}
			for _, other := range all {
				for other != h && len(other.pieces) > 0 {
					other.release()
				}
			}
			if !h.take() {
				t.Fatalf("nobody holds anything, and there is no room for %d of %d bytes", h.next, total)
			}
			h.release()
		}
	})
}

// One account of a topic had a piece for which there was no memory. From then on it always holds something, but no more
// than it may. That does not keep another one of its topic from the next such piece, while a third topic never lets go
// of what is common.
func TestRoomForALargePieceDoesNotWaitForAnAccountThatNeverHoldsNothing(t *testing.T) {
	const total, small = 1 << 20, 1 << 10
	b := New(total, map[string]int32{"greedy": 1, "shared": 2})
	greedy := &holder{Account: b.Open("greedy"), next: small}
	for greedy.take() {
	}
	busy, late := &holder{Account: b.Open("shared"), next: total / 2},
		&holder{Account: b.Open("shared"), next: total / 2}
	if !busy.take() {
		t.Fatal("no room for the first large piece")
	}
	if late.take() {
		t.Fatal("room for two large pieces of one topic")
	}
	busy.next = small
	for range 3 { // it always holds something
		busy.Set(busy.used + small)
		busy.pieces = append(busy.pieces, small)
		busy.release()
		if late.take() {
			return
		}
	}
	t.Errorf("an account that holds nothing has no room for %d bytes, because another one of its topic holds %d, of "+
		"%d that are reserved for it",
		late.next, busy.used, busy.topic.reserved)
}

// An account whose large piece is covered, because others have released as much, may keep it for ever: another one of
// its topic gets its own.
func TestRoomForALargePieceDoesNotWaitForOneThatIsCovered(t *testing.T) {
	const total = 1 << 20
	b := New(total, map[string]int32{"greedy": 1, "shared": 2})
	greedy := &holder{Account: b.Open("greedy"), next: 1 << 10}
	for greedy.take() {
	}
	stuck, late := &holder{Account: b.Open("shared"), next: total / 2}, &holder{Account: b.Open("shared"), next: total}
	if !stuck.take() || late.take() {
		t.Fatal("not one large piece")
	}
	for len(greedy.pieces) > 0 {
		greedy.release()
	}
	if !late.take() {
		t.Errorf("no room for %d bytes beside %d, of %d", late.next, stuck.used, total)
	}
}

// An account that holds nothing gets its next piece while others of its topic and of other topics go on taking all that
// they may, and release it in any order.
func TestRoomIsNotTakenForEver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const total = 1 << 20
		b := New(total, map[string]int32{"a": 4, "b": 2})
		var all []*holder
		for i := range 6 {
			all = append(all, &holder{Account: b.Open([]string{"a", "a", "a", "a", "b", "b"}[i]),
				next: rapid.Int64Range(1, total/20).Draw(t, "piece")})
		}
		late := all[0]
		late.next = rapid.Int64Range(1, 2*total).Draw(t, "late piece")
		for range 200 {
			for _, h := range all[1:] {
				for range rapid.IntRange(0, 60).Draw(t, "pieces") {
					if !h.take() {
						break
					}
					if h.next = total / 40; rapid.IntRange(0, 30).Draw(t, "large") == 0 {
						h.next = total
					}
				}
			}
			if late.take() {
				return
			}
			for _, h := range all[1:] {
				for range rapid.IntRange(1, 2).Draw(t, "released") {
					h.release()
				}
			}
		}
		t.Fatalf("no room for %d bytes in 200 rounds", late.next)
	})
}
