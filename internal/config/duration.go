package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/span"
)

const day = 24 * time.Hour

var errDuration = errors.New("needs a duration such as 250ms, 10s, 1h30m or 7d")

// ParseDuration reads what time.ParseDuration reads, and days of 24 hours in
// front of it: 7d, 1d12h. It refuses negative durations.
func ParseDuration(s string) (time.Duration, error) {
	var days time.Duration
	if n, rest, ok := strings.Cut(s, "d"); ok {
		v, err := strconv.ParseUint(n, 10, 32)
		if err != nil || v > uint64(math.MaxInt64/day) {
			return 0, errDuration
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

// duration is the pflag.Value of a time.Duration.
type duration time.Duration

func (d *duration) String() string { return span.String(time.Duration(*d)) }
func (d *duration) Type() string   { return "duration" }

func (d *duration) Set(text string) error {
	v, err := ParseDuration(text)
	if err == nil {
		*d = duration(v)
	}
	return err
}
