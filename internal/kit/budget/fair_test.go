package budget

import "testing"

// fillAsReaders takes what Room offers, in pieces of a size, as a Consumer does for a sink, until there is none.
func fillAsReaders(a *Account, used *int64, piece int64) (full bool) {
	for {
		room := a.Room(piece)
		if room < piece {
			return a.Set(*used)
		}
		*used += room / piece * piece
		full = a.Set(*used)
		if full {
			return true
		}
	}
}

// Who has no room for the next piece has come to its limit: the owner pauses only then, and only then the account
// counts as backlogged.
func TestAnAccountWithoutRoomIsFull(t *testing.T) {
	for _, piece := range []int64{1024, 1500, 10_000, 300_000} {
		b := New(8<<20+123, map[string]int32{"a": 4, "b": 4})
		a, used := b.Open("a"), int64(0)
		if !fillAsReaders(a, &used, piece) {
			t.Errorf("pieces of %d: no room for another at %d of %d, and the account is not full: nobody pauses, "+
				"and it does not count as backlogged",
				piece, used, a.Limit())
		}
	}
}

// A topic with a backlog leaves the others as much as it has itself (package comment). Both are as hungry as they
// can be, and a looks first each time.
func TestReadersShareEvenly(t *testing.T) {
	const total, piece = 8 << 20, 1500
	b := New(total, map[string]int32{"a": 1, "b": 1})
	a, c := b.Open("a"), b.Open("b")
	var usedA, usedC int64
	fillAsReaders(a, &usedA, piece)
	for range 10_000 { // each settles ten pieces, and takes what there is room for
		usedA -= min(usedA, 10*piece)
		a.Set(usedA)
		fillAsReaders(a, &usedA, piece)
		usedC -= min(usedC, 10*piece)
		c.Set(usedC)
		fillAsReaders(c, &usedC, piece)
	}
	if usedC < total/4 {
		t.Errorf("after 10,000 rounds a holds %d and b %d of %d", usedA, usedC, total)
	}
}
