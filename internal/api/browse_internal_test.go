package api

import (
	"encoding/base64"
	"maps"
	"testing"

	"pgregory.net/rapid"
)

// A cursor is read as it was written; whatever else it is, it is refused or read, and the page stays within its log.
func TestPageCursor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ends := rapid.MapOf(rapid.Int32Min(0), rapid.Int64Min(0)).Draw(t, "ends")
		if got, ok := parsePageCursor(pageCursor(ends)); !ok || !maps.Equal(got, ends) {
			t.Fatalf("%v is read as %v", ends, got)
		}
		odd := append([]byte{cursorFormat}, rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")...)
		bounds := map[int32][2]int64{0: {3, 9}, 1: {0, 0}}
		got, err := pageEnds(base64.RawURLEncoding.EncodeToString(odd), bounds)
		for p, b := range bounds {
			if err == nil && (len(got) != len(bounds) || got[p] < b[0] || got[p] > b[1]) {
				t.Fatalf("%x: %v", odd, got)
			}
		}
	})
}
