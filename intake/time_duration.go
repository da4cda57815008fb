package intake

import (
	"math"
	"math/bits"

	"github.com/waterclock/waterclock"
)

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
		{"us", microsecond}, {"µs", microsecond}, {"μs", microsecond}, // both of Unicode's micro signs, as Go has it
		{"ns", nanosecond},
	}
	dateUnits = []unit{{"W", week}, {"D", day}} // of ISO 8601, before the T
	timeUnits = []unit{{"H", hour}, {"M", minute}, {"S", second}}
)

// unitNamed returns the size of a unit, 0 if there is none of that name.
func unitNamed(name []byte, units []unit) int64 {
	for _, u := range units {
		if u.name == string(name) {
			return u.ns
		}
	}
	return 0
}

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

// add adds n units. unit is how long one is in nanoseconds, 0 if it is not known. Each unit must be smaller than the
// one before.
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
	decimals []byte // digits behind the point; nil for none
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
