package statestore

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// Copies of any size stay unchanged until a reset, and a few small copies take little memory.
func TestArena(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := arena{block: rapid.SampledFrom([]int{slabSize, 4 * slabSize, replayBlock}).Draw(t, "block")}
		for round := range rapid.IntRange(1, 3).Draw(t, "resets") {
			var want, got [][]byte
			total := 0
			for i := range rapid.IntRange(0, 200).Draw(t, "copies") {
				b := bytes.Repeat(
					[]byte{byte(i)}, rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, a.block/2)).Draw(t, "size"))
				want, got, total = append(want, b), append(got, a.copy(b)), total+len(b)
			}
			for i := range want {
				if !bytes.Equal(got[i], want[i]) || cap(got[i]) != len(got[i]) && len(want[i]) <= a.block/4 {
					t.Fatalf("copy %d of %d bytes is not what it was", i, len(want[i]))
				}
			}
			if round == 0 && len(a.blocks) == 1 && cap(a.blocks[0]) > max(slabSize, total) {
				t.Fatalf("%d bytes are copied into a block of %d", total, cap(a.blocks[0]))
			}
			a.reset()
		}
	})
}
