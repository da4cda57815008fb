// Package span formats durations the way people write them, the same way in every message, and parses them: days of
// 24 hours in front, and no unit that is zero.
//
//	span.String(36 * time.Hour) // 1d12h
package span

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// String writes d as 250ms, 1h30m, 7d or 1d12h: the form that settings and flags are read in.
func String(d time.Duration) string {
	if d < 0 && d != -d { // the smallest duration has no positive counterpart
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

var (
	errDuration = errors.New("needs a duration such as 250ms, 10s, 1h30m or 7d")
	errTooLong  = errors.New("needs at most 106751d")
)

// Parse accepts the format of time.ParseDuration, with days of 24 hours in front: 7d, 1d12h. It rejects negative
// durations.
func Parse(s string) (time.Duration, error) {
	var days time.Duration
	if n, rest, ok := strings.Cut(s, "d"); ok {
		v, err := strconv.ParseUint(n, 10, 32)
		switch {
		case err != nil:
			return 0, errDuration
		case v > uint64(math.MaxInt64/day):
			return 0, errTooLong
		}
		if days, s = time.Duration(v)*day, rest; s == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || strings.HasPrefix(s, "-") || d > math.MaxInt64-days {
		return 0, errDuration
	}
	return days + d, nil
}

// ParseSigned is Parse that accepts negative durations too, as in -30m.
func ParseSigned(s string) (time.Duration, error) {
	text, negative := strings.CutPrefix(s, "-")
	d, err := Parse(text)
	if negative {
		d = -d
	}
	return d, err
}
