package intake

import (
	"math"
	"math/bits"

	"github.com/waterclock/waterclock"
)

// Units of a duration, in nanoseconds. A day is 24 hours, a week seven days.
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

// maxFraction is how many decimals of a number count. With 18 the error is less than a nanosecond of a
// week. Further digits only round up.
const maxFraction = 18

// parseDuration reads the value of a header and returns milliseconds, 0 to maxMillis, with fractions
// rounded up. bad is the reason for rejecting a value that has neither of these forms:
//
//	1w2d3h4m5s6ms7us8ns   any of these units, the largest first, each once
//	P1W or P1DT2H3M4S     ISO 8601, without years and months
//
// The last number may have decimals: 1.5h, PT0.25S. There is no sign.
func parseDuration(header string, bad waterclock.Reason, text []byte) (int64, *Refusal) {
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
		return 0, refuse(bad,
			"%s is %s, which %s: send numbers with units, as in 250ms, 90s, 1h30m, 3d or P1DT2H.", header, quote(text), fault)
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
		unit, size := plainUnit(text)
		if unit == 0 {
			return "has an unknown unit or none"
		}
		text = text[size:]
		if fault = s.add(n, unit); fault != "" {
			return fault
		}
	}
	return ""
}

// plainUnit returns the unit at the start of text and its length in bytes, zeros if there is none. It takes
// both of Unicode's micro signs, as Go does.
func plainUnit(text []byte) (unit int64, size int) {
	size = 0
	for size < len(text) && (text[size] < '0' || text[size] > '9') {
		size++
	}
	switch string(text[:size]) {
	case "w":
		return week, size
	case "d":
		return day, size
	case "h":
		return hour, size
	case "m":
		return minute, size
	case "s":
		return second, size
	case "ms":
		return millisecond, size
	case "us", "µs", "μs":
		return microsecond, size
	case "ns":
		return nanosecond, size
	}
	return 0, 0
}

// iso reads the text after the P.
func (s *sum) iso(text []byte) (fault string) {
	inTime := false
	for len(text) > 0 {
		if text[0] == 'T' && !inTime {
			if inTime, text = true, text[1:]; len(text) == 0 {
				return "ends with T"
			}
		}
		var n decimal
		if n, text, fault = cutDecimal(text); fault != "" {
			return fault
		}
		if len(text) == 0 {
			return "has an unknown unit or none"
		}
		unit, fault := isoUnit(text[0], inTime)
		if fault != "" {
			return fault
		}
		text = text[1:]
		if fault = s.add(n, unit); fault != "" {
			return fault
		}
	}
	if s.smallest == 0 {
		return "has no number"
	}
	return ""
}

func isoUnit(letter byte, inTime bool) (unit int64, fault string) {
	switch {
	case !inTime && (letter == 'Y' || letter == 'M'):
		return 0, "has years or months, which have no fixed length"
	case !inTime && letter == 'W':
		return week, ""
	case !inTime && letter == 'D':
		return day, ""
	case inTime && letter == 'H':
		return hour, ""
	case inTime && letter == 'M':
		return minute, ""
	case inTime && letter == 'S':
		return second, ""
	}
	return 0, "has an unknown unit or none"
}

// add adds n units, which must be smaller than the unit before.
func (s *sum) add(n decimal, unit int64) (fault string) {
	switch {
	case s.fraction:
		return "has decimals before the last unit"
	case s.smallest != 0 && unit >= s.smallest:
		return "does not name its units once each, the largest first"
	}
	s.smallest, s.fraction = unit, n.decimals > 0
	switch {
	case n.whole == math.MaxInt64: // saturated: of any unit, too long
		s.grow(maxMillis)
	case unit >= millisecond:
		per := unit / millisecond
		s.grow(min(n.whole, maxMillis/per+1) * per)
	default:
		per := millisecond / unit
		s.grow(min(n.whole/per, maxMillis))
		s.ns += n.whole % per * unit
	}
	s.ns += n.fractionOf(unit)
	return ""
}

func (s *sum) grow(ms int64) { s.ms = min(s.ms+ms, maxMillis) }

// millis rounds up. ns cannot overflow: it has less than a millisecond for each of the two smaller units
// and at most a week from the decimals of a larger unit.
func (s *sum) millis() int64 {
	s.grow((s.ns + millisecond - 1) / millisecond)
	return s.ms
}

// decimal is a number as written: whole plus fraction / 10^places.
type decimal struct {
	whole    int64  // saturated at math.MaxInt64
	fraction uint64 // below 10^maxFraction
	decimals int    // 0 to maxFraction
	more     bool   // there are further digits, not all zero
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
	fraction, rest, ok := cutFraction(rest)
	if !ok {
		return n, nil, "has a decimal point without digits"
	}
	n.decimals = min(len(fraction), maxFraction)
	for _, c := range fraction[:n.decimals] {
		n.fraction = n.fraction*10 + uint64(c-'0')
	}
	n.more = !allZeros(fraction[n.decimals:])
	return n, rest, ""
}

// fractionOf returns the decimals of n as nanoseconds of unit, rounded up; at
// most unit.
func (n *decimal) fractionOf(unit int64) int64 {
	power := uint64(1)
	for range n.decimals {
		power *= 10
	}
	high, low := bits.Mul64(n.fraction, uint64(unit))
	ns, rest := bits.Div64(high, low, power) // no panic: fraction < power, so high < power
	if rest > 0 || n.more {
		ns++
	}
	return int64(ns)
}
