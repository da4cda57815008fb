package timer

import "testing"

func TestPeriodText(t *testing.T) {
	for text, want := range map[string]struct {
		period Period
		shown  string
	}{
		"P1D": {Period{0, 1}, "P1D"}, "P14D": {Period{0, 14}, "P2W"}, "P1W3D": {Period{0, 10}, "P10D"},
		"P1Y": {Period{12, 0}, "P1Y"}, "P15M": {Period{15, 0}, "P1Y3M"}, "P2Y1M2W1D": {Period{25, 15}, "P2Y1M15D"},
		"P0D": {Period{}, ""}, "P0Y1D": {Period{0, 1}, "P1D"},
		"P50000Y50000M50000W50000D": {Period{650_000, 400_000}, "P54166Y8M400000D"},
		"P1048576M1048576D":         {Period{1 << 20, 1 << 20}, "P87381Y4M1048576D"},
	} {
		p, fault := ParsePeriod(text)
		if fault != "" || p != want.period || p.String() != want.shown {
			t.Errorf("%s: %+v, %s, %q; want %+v", text, p, p, fault, want)
		}
		if again, fault := ParsePeriod(p.String()); p != (Period{}) && (fault != "" || again != p) {
			t.Errorf("%s: read again as %+v, %q", p, again, fault)
		}
	}
}

func FuzzPeriod(f *testing.F) {
	for _, text := range []string{"P1D", "P1Y2M3W4D", "P", "PT1H", "P1.5D", "P99999999999999999999D", "P1D1D"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, fault := ParsePeriod(text)
		if fault != "" {
			return
		}
		if p.Months < 0 || p.Months > MaxPeriod || p.Days < 0 || p.Days > MaxPeriod {
			t.Fatalf("%q is %+v", text, p)
		}
		if again, fault := ParsePeriod(p.String()); p != (Period{}) && (fault != "" || again != p) {
			t.Fatalf("%q is %s, which is %+v, %q", text, p, again, fault)
		}
	})
}
