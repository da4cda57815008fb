package calendars

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "holidays-de_2.x", strings.Repeat("n", 64)} {
		if err := CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "a b", "a,b", "é", "a/b", "\x00", strings.Repeat("n", 65)} {
		if CheckName(name) == nil {
			t.Errorf("%q is taken for a name", name)
		}
	}
}

func TestSet(t *testing.T) {
	table, err := Of(map[string]string{"days": `{"weekly": ["sat"]}`})
	must(t, err)
	before := table.Now()
	must(t, table.Change("more", []byte(`{"dates":["2026-12-25"]}`), 7))
	must(t, table.Change("days", nil, 8))
	after := table.Now()
	if c, ok := before.Get("days"); !ok || string(c.Text) != `{"weekly": ["sat"]}` || before.Len() != 1 {
		t.Errorf("a set has changed: %+v", before)
	}
	if c, ok := after.Get("more"); !ok || c.Changed != 7 || !c.Excludes(1798196400000) { // 2026-12-25T11:00Z
		t.Errorf("%+v", c)
	}
	if _, ok := after.Get("days"); ok || !slices.Equal(after.Names(), []string{"more"}) {
		t.Errorf("%v", after.Names())
	}
	if after.Changed("days") != 8 || after.Changed("more") != 7 || after.Changed("x") != math.MinInt64 {
		t.Errorf("%d %d %d", after.Changed("days"), after.Changed("more"), after.Changed("x"))
	}
	if err := table.Change("more", []byte(`{"dates":["2026-13-25"]}`), 9); err == nil {
		t.Error("wrong rules are taken")
	}
	if c, _ := table.Now().Get("more"); c.Changed != 7 {
		t.Errorf("the version before wrong rules is gone: %+v", c)
	}
	must(t, table.CaughtUp(t.Context()))
}

func TestLimits(t *testing.T) {
	s := newSet()
	for i := range MaxCalendars {
		must(t, s.apply(fmt.Sprint(i), []byte(`{}`), 1))
	}
	if s.Takes("new", []byte(`{}`)) == nil {
		t.Error("one calendar too many")
	}
	if err := s.Takes("7", []byte(`{"weekly":["sat"]}`)); err != nil {
		t.Errorf("one that is there cannot change: %v", err)
	}
	must(t, s.apply("new", []byte(`{}`), 1)) // another instance wrote at the same time
	large := []byte("{}" + strings.Repeat(" ", 250<<10-2))
	n := 0
	for ; s.Takes(fmt.Sprint(n), large) == nil; n++ {
		must(t, s.apply(fmt.Sprint(n), large, 1))
	}
	if n != MaxTotalBytes/(250<<10) {
		t.Errorf("%d large ones", n)
	}
	if err := s.Takes("0", []byte(`{}`)); err != nil {
		t.Errorf("a large one cannot be made smaller: %v", err)
	}
	if s.Takes("1", append(large, make([]byte, 10<<10)...)) == nil {
		t.Error("more than 256 KiB")
	}
}
