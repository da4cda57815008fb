package api

import (
	"slices"
	"strings"
	"testing"
)

func TestPosition(t *testing.T) {
	for text, want := range map[string]Position{
		"0:0":             {0, []int64{0}},
		"3:17":            {3, []int64{17}},
		"0:17.5.99":       {0, []int64{17, 5, 99}},
		"2147483647:1.00": {1<<31 - 1, []int64{1, 0}},
	} {
		p, ok := parsePosition(text)
		if !ok || p.First != want.First || !slices.Equal(p.Next, want.Next) {
			t.Errorf("%s: %v, %v", text, p, ok)
		}
	}
	for _, text := range []string{"", "0", "0:", ":1", "0:1.", "0:.1", "0:-1", "-1:1", "0:1,2", "0/17", "2147483648:1",
		"0:9223372036854775807", "0:1:2", " 0:1"} {
		if p, ok := parsePosition(text); ok {
			t.Errorf("%q is %v", text, p)
		}
	}
	p := Position{2, []int64{5, 6}}
	for _, passed := range [][2]int64{{1, 90}, {4, 90}, {2, 5}, {3, 5}, {3, 9}} {
		p.Passed(int32(passed[0]), passed[1])
	}
	if p.String() != "2:6.10" || p.next(1) != 0 || p.next(2) != 6 || p.next(3) != 10 || p.next(4) != 0 {
		t.Error(p)
	}
}

func FuzzPosition(f *testing.F) {
	f.Add("0:17.5.99")
	f.Add("3:17")
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := parsePosition(text)
		if !ok {
			return
		}
		again, ok := parsePosition(p.String())
		if !ok || again.First != p.First || !slices.Equal(again.Next, p.Next) ||
			len(p.Next) != strings.Count(text, ".")+1 {
			t.Errorf("%q is %v, which is %v", text, p, again)
		}
	})
}
