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
