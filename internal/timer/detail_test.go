package timer

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCutDetail(t *testing.T) {
	for _, tt := range []struct {
		name, detail string
		want         int // bytes
	}{
		{"at the limit", strings.Repeat("d", MaxDetailBytes), MaxDetailBytes},
		{"one byte more", strings.Repeat("d", MaxDetailBytes+1), MaxDetailBytes},
		{"within a character", "d" + strings.Repeat("ä", MaxDetailBytes/2), MaxDetailBytes - 1},
	} {
		got := CutDetail(tt.detail)
		if len(got) != tt.want || !utf8.ValidString(got) || !strings.HasPrefix(tt.detail, got) {
			t.Errorf("%s: %d bytes, want %d; valid %v", tt.name, len(got), tt.want, utf8.ValidString(got))
		}
	}
}
