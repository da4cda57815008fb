package timer

import (
	"strconv"
	"strings"
)

// Period is an interval of whole months and days. A year has twelve months, and a week seven days.
type Period struct{ Months, Days int64 }

// MaxPeriod bounds the months of a Period, and its days.
const MaxPeriod = 1 << 20

// ParsePeriod reads a duration of ISO 8601 that has only whole years, months, weeks and days. fault completes the
// sentence "it …" and is empty if there is none.
func ParsePeriod[B []byte | string](text B) (p Period, fault string) {
	switch {
	case len(text) == 0:
		return p, "is empty"
	case text[0] != 'P':
		return p, "is no date period of ISO 8601 and comes together with timer-zone"
	case len(text) == 1:
		return p, "has no number"
	}
	units := []struct {
		name byte
		n    *int64
		size int64
	}{{'Y', &p.Months, 12}, {'M', &p.Months, 1}, {'W', &p.Days, 7}, {'D', &p.Days, 1}}
	for rest := text[1:]; len(rest) > 0; {
		digits, n := 0, int64(0)
		for ; digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9'; digits++ {
			n = min(10*n+int64(rest[digits]-'0'), MaxPeriod+1)
		}
		switch {
		case rest[0] == 'T':
			return p, "has a part of a day and comes together with timer-zone"
		case digits == 0 || digits == len(rest):
			return p, "needs numbers with a unit each, as in P1M and P2W"
		case rest[digits] == '.' || rest[digits] == ',':
			return p, "has decimals"
		}
		for len(units) > 0 && units[0].name != rest[digits] {
			units = units[1:]
		}
		if len(units) == 0 {
			return p, "does not name the units Y, M, W and D once each, the largest first"
		}
		if *units[0].n += n * units[0].size; *units[0].n > MaxPeriod {
			return p, "is too long"
		}
		units, rest = units[1:], rest[digits+1:]
	}
	return p, ""
}

// CutStart splits an interval of ISO 8601 that has its start in front, 2027-01-31T09:00:00Z/P1M. start is empty if it
// has none.
func CutStart(text string) (start, period string) {
	if start, period, ok := strings.Cut(text, "/"); ok {
		return start, period
	}
	return "", text
}

// String writes a period as ISO 8601, with as few units as possible: P1Y2M, P2W, P10D. It is empty for no period.
func (p Period) String() string {
	if p == (Period{}) {
		return ""
	}
	b := []byte{'P'}
	unit := func(n int64, name byte) {
		if n > 0 {
			b = append(strconv.AppendInt(b, n, 10), name)
		}
	}
	unit(p.Months/12, 'Y')
	unit(p.Months%12, 'M')
	if weeks := p.Days / 7; p.Days%7 == 0 {
		unit(weeks, 'W')
	} else {
		unit(p.Days, 'D')
	}
	return string(b)
}
