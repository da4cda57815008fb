package intake

import (
	"bytes"
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kit/suggest"
	"github.com/waterclock/waterclock/internal/timer"
)

// maxMillis is the value at which instants and durations saturate, in milliseconds: some 285,000 years, far beyond
// any horizon. Two of them can be added.
const maxMillis int64 = 1 << 53

// parseInstant reads the value of a header, RFC 3339 with a zone or Unix milliseconds, and returns Unix milliseconds,
// with fractions rounded up. It saturates at maxMillis, which is beyond every horizon. bad is the reason for rejecting
// a value that is neither, such as one in microseconds.
func parseInstant(header string, bad waterclock.Reason, text []byte) (int64, *timer.Refusal) {
	if len(text) > 0 && allDigits(text) {
		n := number(text)
		switch ms, unit := suggest.Millis(n); {
		case n < waterclock.MinUnixMilli:
			return 0, Refuse(waterclock.ReasonSecondsNotMillis,
				"%s is %s: if these are seconds, send milliseconds; an instant before March 1973 is written as RFC "+
					"3339.", header, quote(text))
		case unit != "":
			return 0, Refuse(bad, "%s is %s, which is a time of today in %s: send milliseconds, %d.", header,
				quote(text), unit, ms)
		}
		return min(n, maxMillis), nil
	}
	ms, fault := parseRFC3339(text)
	if fault != "" {
		return 0, Refuse(bad,
			"%s is %s, which %s: send RFC 3339 with a zone (2026-03-01T09:00:00Z) or Unix milliseconds.", header,
			quote(text), fault)
	}
	return ms, nil
}

// parseRFC3339 reads text strictly by the grammar of RFC 3339, section 5.6. (time.Parse takes one-digit hours and
// drops digits after the ninth.) A leap second counts as the second after it. fault completes the sentence "it …".
func parseRFC3339(text []byte) (ms int64, fault string) {
	const shape = len("2006-01-02T15:04:05")
	if len(text) < shape || text[4] != '-' || text[7] != '-' || text[10]|0x20 != 't' || text[13] != ':' ||
		text[16] != ':' {
		return 0, "is not a time"
	}
	year, month, day := digits(text[0:4]), digits(text[5:7]), digits(text[8:10])
	hour, minute, second := digits(text[11:13]), digits(text[14:16]), digits(text[17:19])
	switch {
	case year < 0 || month < 1 || month > 12 || day < 1 || day > daysIn(year, month):
		return 0, "has no date of the calendar"
	case hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60:
		return 0, "has no time of the day"
	}
	fraction, zone, ok := cutFraction(text[shape:])
	if !ok {
		return 0, "has a decimal point without digits"
	}
	east, fault := parseZone(zone)
	if fault != "" {
		return 0, fault
	}
	unix := time.Date(year, time.Month(month), day, hour, minute, second, 0, time.UTC).Unix() - east
	if second == 60 && unix%(24*60*60) != 0 {
		return 0, "has a leap second in the middle of a day"
	}
	return unix*1000 + fractionOf(fraction, 1000), ""
}

// cutFraction splits text into the digits after a leading point, if there is one, and the rest. A point
// without digits is not ok.
func cutFraction(text []byte) (fraction, rest []byte, ok bool) {
	if len(text) == 0 || text[0] != '.' {
		return nil, text, true
	}
	fraction, rest = cutDigits(text[1:])
	return fraction, rest, len(fraction) > 0
}

// parseZone reads Z or ±hh:mm and returns seconds east of UTC.
func parseZone(text []byte) (east int64, fault string) {
	if len(text) == 0 {
		return 0, "has no zone"
	}
	if len(text) == 1 && text[0]|0x20 == 'z' {
		return 0, ""
	}
	if len(text) != len("+00:00") || text[3] != ':' || (text[0] != '+' && text[0] != '-') {
		return 0, "has no zone like Z or +01:00"
	}
	hour, minute := digits(text[1:3]), digits(text[4:6])
	if hour < 0 || hour > 23 || minute < 0 || minute > 59 {
		return 0, "has no zone like Z or +01:00"
	}
	east = int64(hour*60+minute) * 60
	if text[0] == '-' {
		east = -east
	}
	return east, ""
}

// daysIn returns the number of days of a month from 1 to 12 (Gregorian).
func daysIn(year, month int) int {
	return time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// digits returns the value of a few digits, -1 if text has anything else.
func digits(text []byte) (n int) {
	for _, c := range text {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// number reads digits and saturates at math.MaxInt64.
func number(text []byte) int64 {
	n, _ := strconv.ParseInt(string(text), 10, 64) // its only error is one of range
	return n
}

// cutDigits splits text after its leading digits.
func cutDigits(text []byte) (leading, rest []byte) {
	n := 0
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return text[:n], text[n:]
}

func allDigits(text []byte) bool {
	_, rest := cutDigits(text)
	return len(rest) == 0
}

func allZeros(text []byte) bool { return len(bytes.TrimLeft(text, "0")) == 0 }

// unit is a unit of a duration, in nanoseconds. A day is 24 hours, a week seven days.
type unit struct {
	name string
	ns   int64
}

const (
	nanosecond  int64 = 1
	microsecond       = 1000 * nanosecond
	millisecond       = 1000 * microsecond
	second            = 1000 * millisecond
	minute            = 60 * second
	hour              = 60 * minute
	day               = 24 * hour
	week              = 7 * day
)

var (
	plainUnits = []unit{
		{"w", week}, {"d", day}, {"h", hour}, {"m", minute}, {"s", second}, {"ms", millisecond},
		{"us", microsecond}, {"µs", microsecond}, {"μs", microsecond}, // both of Unicode's micro signs, like Go
		{"ns", nanosecond},
	}
	dateUnits = []unit{{"W", week}, {"D", day}} // of ISO 8601, before the T
	timeUnits = []unit{{"H", hour}, {"M", minute}, {"S", second}}
)

// unitNamed returns the size of a unit, 0 if the name is unknown.
func unitNamed(name []byte, units []unit) int64 {
	for _, u := range units {
		if u.name == string(name) {
			return u.ns
		}
	}
	return 0
}

// maxFraction is the number of decimals that count. With 18 the error is less than a nanosecond of a week. Further
// digits only round up.
const maxFraction = 18

// parseDuration reads the value of a header and returns milliseconds, 0 to maxMillis, with fractions rounded up. bad
// is the reason for rejecting a value that has neither of these forms:
//
//	1w2d3h4m5s6ms7us8ns   any of these units, the largest first, each once
//	P1W or P1DT2H3M4S     ISO 8601, without years and months
//
// The last number may have decimals: 1.5h, PT0.25S. There is no sign.
func parseDuration(header string, bad waterclock.Reason, text []byte) (int64, *timer.Refusal) {
	var s sum
	var fault string
	switch {
	case len(text) == 0:
		fault = "is empty"
	case allDigits(text):
		fault = "is a bare number"
	case text[0] == 'P':
		fault = s.iso(text[1:])
	default:
		fault = s.plain(text)
	}
	if fault != "" {
		return 0, Refuse(bad,
			"%s is %s, which %s: send numbers with units, as in 250ms, 90s, 1h30m, 3d or P1DT2H.", header,
			quote(text), fault)
	}
	return s.millis(), nil
}

// sum adds up the parts of a duration. Its zero value is zero.
type sum struct {
	ms, ns   int64 // Invariant: 0 <= ms <= maxMillis
	smallest int64 // the unit of the last part, 0 before the first
	fraction bool  // the last part had decimals
}

func (s *sum) plain(text []byte) (fault string) {
	for len(text) > 0 {
		var n decimal
		if n, text, fault = cutDecimal(text); fault != "" {
			return fault
		}
		size := 0
		for size < len(text) && (text[size] < '0' || text[size] > '9') {
			size++
		}
		if fault = s.add(n, unitNamed(text[:size], plainUnits)); fault != "" {
			return fault
		}
		text = text[size:]
	}
	return ""
}

// iso reads the text after the P.
func (s *sum) iso(text []byte) (fault string) {
	units, inTime := dateUnits, false
	for len(text) > 0 {
		if text[0] == 'T' && !inTime {
			units, inTime = timeUnits, true
			if text = text[1:]; len(text) == 0 {
				return "ends with T"
			}
		}
		var n decimal
		if n, text, fault = cutDecimal(text); fault != "" {
			return fault
		}
		name := text[:min(1, len(text))]
		if c := string(name); !inTime && (c == "Y" || c == "M") {
			return "has years or months, which have no fixed length"
		}
		if fault = s.add(n, unitNamed(name, units)); fault != "" {
			return fault
		}
		text = text[len(name):]
	}
	if s.smallest == 0 {
		return "has no number"
	}
	return ""
}

// add adds n units. unit is the length of one in nanoseconds, 0 if it is not known. Each unit must be smaller than
// the one before.
func (s *sum) add(n decimal, unit int64) (fault string) {
	switch {
	case unit == 0:
		return "has an unknown unit or none"
	case s.fraction:
		return "has decimals before the last unit"
	case s.smallest != 0 && unit >= s.smallest:
		return "does not name its units once each, the largest first"
	}
	s.smallest, s.fraction = unit, len(n.decimals) > 0
	switch {
	case n.whole == math.MaxInt64: // saturated: too long in any unit
		s.grow(maxMillis)
	case unit >= millisecond:
		per := unit / millisecond
		s.grow(min(n.whole, maxMillis/per+1) * per)
	default:
		per := millisecond / unit
		s.grow(min(n.whole/per, maxMillis))
		s.ns += n.whole % per * unit
	}
	s.ns += fractionOf(n.decimals, unit)
	return ""
}

func (s *sum) grow(ms int64) { s.ms = min(s.ms+ms, maxMillis) }

// millis rounds up. ns cannot overflow: it has less than a millisecond for each of the two smaller units
// and at most a week from the decimals of a larger unit.
func (s *sum) millis() int64 {
	s.grow((s.ns + millisecond - 1) / millisecond)
	return s.ms
}

// decimal is a number as written.
type decimal struct {
	whole    int64  // saturated at math.MaxInt64
	decimals []byte // digits after the point; nil for none
}

// cutDecimal splits text after its leading number, which needs a digit before the point and, if there is a
// point, one after it.
func cutDecimal(text []byte) (n decimal, rest []byte, fault string) {
	if text[0] == '-' || text[0] == '+' {
		return n, nil, "has a sign"
	}
	whole, rest := cutDigits(text)
	if len(whole) == 0 {
		return n, nil, "lacks a number before a unit"
	}
	n.whole = number(whole)
	var ok bool
	if n.decimals, rest, ok = cutFraction(rest); !ok {
		return n, nil, "has a decimal point without digits"
	}
	return n, rest, ""
}

// fractionOf returns 0.DECIMALS × unit, rounded up: 0 to unit.
func fractionOf(decimals []byte, unit int64) int64 {
	kept := decimals[:min(len(decimals), maxFraction)]
	fraction, power := uint64(0), uint64(1)
	for _, c := range kept {
		fraction, power = fraction*10+uint64(c-'0'), power*10
	}
	high, low := bits.Mul64(fraction, uint64(unit))
	parts, rest := bits.Div64(high, low, power) // no panic: fraction < power, so high < power
	if rest > 0 || !allZeros(decimals[len(kept):]) {
		parts++
	}
	return int64(parts)
}
