package intake

import (
	"bytes"
	"strconv"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kit/near"
)

// maxMillis is where instants and durations saturate, in milliseconds: some 285,000 years, far beyond any
// horizon. Two of them can be added.
const maxMillis int64 = 1 << 53

// parseInstant reads the value of a header, RFC 3339 with a zone or Unix
// milliseconds, and returns Unix milliseconds, with fractions rounded up. It saturates at maxMillis, which
// is beyond every horizon. bad is the reason for rejecting a value that is neither, such as one in microseconds.
func parseInstant(header string, bad waterclock.Reason, text []byte) (int64, *Refusal) {
	if len(text) > 0 && allDigits(text) {
		n := number(text)
		switch ms, unit := near.Millis(n); {
		case n < waterclock.MinUnixMilli:
			return 0, refuse(waterclock.ReasonSecondsNotMillis,
				"%s is %s: if these are seconds, send milliseconds; an instant before March 1973 is written as RFC "+
					"3339.", header, quote(text))
		case unit != "":
			return 0, refuse(bad, "%s is %s, which is a time of today in %s: send milliseconds, %d.", header,
				quote(text), unit, ms)
		}
		return min(n, maxMillis), nil
	}
	ms, fault := parseRFC3339(text)
	if fault != "" {
		return 0, refuse(bad,
			"%s is %s, which %s: send RFC 3339 with a zone (2026-03-01T09:00:00Z) or Unix milliseconds.", header,
			quote(text), fault)
	}
	return ms, nil
}

// parseRFC3339 reads text strictly by the grammar of RFC 3339, section 5.6. (time.Parse takes one-digit
// hours and drops digits after the ninth.) A leap second counts as the second after it. fault completes
// the sentence "it …".
func parseRFC3339(text []byte) (ms int64, fault string) {
	const shape = len("2006-01-02T15:04:05")
	if len(text) < shape || text[4] != '-' || text[7] != '-' || text[10]|0x20 != 't' || text[13] != ':' ||
		text[16] != ':' {
		return 0, "is no time"
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
