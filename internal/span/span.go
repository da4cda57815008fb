// Package span writes durations as people write them, the same way in every message: days of 24
// hours in front, and no unit that is zero.
package span

import (
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// String writes d as 250ms, 1h30m, 7d or 1d12h: the form that settings and flags are read in.
func String(d time.Duration) string {
	if d < 0 && d != -d { // the smallest duration has no positive one
		return "-" + String(-d)
	}
	var days string
	if d >= day {
		days = strconv.FormatInt(int64(d/day), 10) + "d"
		if d %= day; d == 0 {
			return days
		}
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return days + s
}
