package timer

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseLabels(t *testing.T) {
	long := strings.Repeat("x", MaxLabelBytes-1)
	var many []string
	for i := range MaxLabels {
		many = append(many, fmt.Sprintf("n%02d=", i))
	}
	for _, c := range []struct{ text, want, fault string }{
		{"team=a,order=17", "order=17,team=a", ""},
		{" team = a b , order=17  ", "order=17,team=a b", ""},
		{"a-b=1,a=2,a.b=3", "a=2,a-b=1,a.b=3", ""},
		{"url=x=1&y=2!", "url=x=1&y=2!", ""},
		{"empty=", "empty=", ""},
		{"größe=klein ✓", "größe=klein ✓", ""},
		{"n=" + long, "n=" + long, ""},
		{strings.Join(many, ","), strings.Join(many, ","), ""},
		{strings.Join(many, ",") + ",z=1", "", "16 labels at most"},
		{"n=x" + long, "", "513 bytes together"},
		{"", "", "no name"},
		{"a=1,", "", "no name"},
		{"a=1,,b=2", "", "no name"},
		{" =1", "", "no name"},
		{"a=1, a=2", "", `"a" is given twice`},
		{"urgent", "", `"urgent" has no =`},
		{"a!=1", "", "one of , = !"},
		{"a\n=1", "", "control character"},
		{"a=1\x00", "", "control character"},
		{"a=\xff", "", "not UTF-8"},
	} {
		got, fault := ParseLabels(c.text)
		if string(got) != c.want || !strings.Contains(fault, c.fault) || (fault == "") != (c.fault == "") {
			t.Errorf("%q: %q, %q; want %q, %q", c.text, got, fault, c.want, c.fault)
		}
	}
}

// drawLabels draws up to max labels of short names, which are often the same.
func drawLabels(t *rapid.T) Labels {
	l, fault := LabelsOf(rapid.MapOfN(rapid.StringMatching(`[abc]{1,2}|é`), rapid.StringMatching(`[01=]{0,2}`), 0, 5).
		Draw(t, "labels"))
	if fault != "" {
		t.Fatal(fault)
	}
	return l
}

// Labels are read as they were written, by name too, and only the canonical form is one.
func TestLabels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLabels(t)
		if l == "" {
			return
		}
		again, fault := ParseLabels(string(l))
		byName, _ := LabelsOf(l.Map())
		if fault != "" || again != l || byName != l || !l.canonical() || len(maps.Collect(l.All())) != len(l.Map()) {
			t.Fatalf("%q: %q, %q, %s", l, again, byName, fault)
		}
		for name, value := range l.Map() {
			if got, ok := l.Get(name); !ok || got != value {
				t.Fatalf("%q has %q as %q", l, name, got)
			}
		}
	})
	for _, l := range []Labels{"", "a", "=1", "a=1,", ",a=1", "b=1,a=1", "a=1,a=2", "a=1,,b=1"} {
		if l.canonical() {
			t.Errorf("%q is taken for canonical", l)
		}
	}
}

func TestSelector(t *testing.T) {
	labels := Labels("order=17,team=a,url=x=1,zone=")
	for _, c := range []struct {
		texts []string
		match bool
	}{
		{nil, true},
		{[]string{"team=a"}, true},
		{[]string{"team=b"}, false},
		{[]string{"team"}, true},
		{[]string{"tea"}, false},
		{[]string{"team!=a"}, false},
		{[]string{"team!=b"}, true},
		{[]string{"missing!=b"}, true},
		{[]string{"missing"}, false},
		{[]string{"missing="}, false},
		{[]string{"zone="}, true},
		{[]string{"zone!="}, false},
		{[]string{"url=x=1"}, true},
		{[]string{"team=a", "order=17"}, true},
		{[]string{" team = a , order"}, true},
		{[]string{"team=a,order=18"}, false},
		{[]string{"team", "team!=a"}, false},
	} {
		s, fault := ParseSelector(c.texts)
		if fault != "" || s.Match(labels) != c.match {
			t.Errorf("%q: %q matches %v, %s", c.texts, s, !c.match, fault)
		}
	}
	for _, text := range []string{"", "=a", "!=a", "team!", "!team", "a!b=c", "team=a,", "a\n"} {
		if s, fault := ParseSelector([]string{text}); fault == "" {
			t.Errorf("%q is read as %q", text, s)
		}
	}
	if s, fault := ParseSelector([]string{strings.Repeat("a=1,", MaxLabels) + "b"}); fault == "" {
		t.Errorf("%d conditions are read as %q", MaxLabels+1, s)
	}
	s, _ := ParseSelector([]string{"team=a", "order", "x!=1"})
	if n := testing.AllocsPerRun(100, func() { s.Match(labels) }); n > 0 {
		t.Errorf("%v allocations for a timer", n)
	}
}
