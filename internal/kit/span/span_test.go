package span

import (
	"math"
	"testing"
	"time"
)

func TestString(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                             "0s",
		250 * time.Millisecond:        "250ms",
		90 * time.Second:              "1m30s",
		10 * time.Minute:              "10m",
		time.Hour:                     "1h",
		time.Hour + time.Second:       "1h0m1s",
		10*time.Hour + 30*time.Minute: "10h30m",
		24 * time.Hour:                "1d",
		7 * 24 * time.Hour:            "7d",
		36 * time.Hour:                "1d12h",
		-2 * time.Hour:                "-2h",
		math.MinInt64:                 "-2562047h47m16.854775808s",
	} {
		if got := String(d); got != want {
			t.Errorf("%d ns is %q, want %q", d, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		in   string
		want time.Duration
		out  string // as it prints; empty: refused
	}{
		{"250ms", 250 * time.Millisecond, "250ms"}, {"10s", 10 * time.Second, "10s"},
		{"90s", 90 * time.Second, "1m30s"}, {"1h", time.Hour, "1h"}, {"60m", time.Hour, "1h"},
		{"1h0m5s", time.Hour + 5*time.Second, "1h0m5s"}, {"10m", 10 * time.Minute, "10m"},
		{"7d", 7 * day, "7d"}, {"1d12h", 36 * time.Hour, "1d12h"}, {"36525d", 36525 * day, "36525d"},
		{"0s", 0, "0s"}, {"20h", 20 * time.Hour, "20h"},
		{"", 0, ""}, {"10", 0, ""}, {"-1s", 0, ""}, {"-1d", 0, ""}, {"1d-1h", 0, ""}, {"1y", 0, ""}, {"1.5d", 0, ""},
		{"106752d", 0, ""}, {"106751d24h", 0, ""}, {"4294967295d", 0, ""}, {"-0s", 0, ""},
	} {
		got, err := Parse(c.in)
		if got != c.want || (err == nil) != (c.out != "") {
			t.Errorf("Parse(%q) = %v, %v; want %v", c.in, got, err, c.want)
		}
		if s := String(got); err == nil && s != c.out {
			t.Errorf("%q prints %q, want %q", c.in, s, c.out)
		}
	}
}

func TestParseSigned(t *testing.T) {
	for in, want := range map[string]time.Duration{"1h": time.Hour, "-30m": -30 * time.Minute, "-1d": -day, "0s": 0} {
		if got, err := ParseSigned(in); got != want || err != nil {
			t.Errorf("ParseSigned(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-", "--1h", "1d-1h"} {
		if got, err := ParseSigned(in); err == nil {
			t.Errorf("ParseSigned(%q) = %v, and is not refused", in, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"1d", "10s", "1d1h1m1s1ms", "106751d", "1µs"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := Parse(s)
		if err != nil {
			return
		}
		if back, err := Parse(String(v)); v < 0 || back != v || err != nil {
			t.Errorf("%q is %d, prints %q, which is %d, %v", s, v, String(v), back, err)
		}
	})
}
