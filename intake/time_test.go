package intake

import (
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

func TestParseInstant(t *testing.T) {
	tests := []struct {
		text   string
		want   int64
		reason waterclock.Reason
	}{
		{"1700000000000", 1_700_000_000_000, ""},
		{"100000000000", 100_000_000_000, ""},
		{"0001700000000000", 1_700_000_000_000, ""},
		{"99999999999", 0, waterclock.ReasonSecondsNotMillis},
		{"0", 0, waterclock.ReasonSecondsNotMillis},
		{"9007199254740993", maxMillis, ""},
		{strings.Repeat("9", 1000), maxMillis, ""},
		{"1893456000000000", 0, waterclock.ReasonBadTime},    // microseconds
		{"1893456000000000000", 0, waterclock.ReasonBadTime}, // nanoseconds
		{"2023-11-14T22:13:20Z", 1_700_000_000_000, ""},
		{"2023-11-14t22:13:20z", 1_700_000_000_000, ""},
		{"2023-11-14T22:13:20-00:00", 1_700_000_000_000, ""},
		{"2023-11-15T03:43:20+05:30", 1_700_000_000_000, ""},
		{"2023-11-13T22:14:20-23:59", 1_700_000_000_000, ""},
		{"2023-11-14T22:13:20.001Z", 1_700_000_000_001, ""},
		{"2023-11-14T22:13:20.0010Z", 1_700_000_000_001, ""},
		{"2023-11-14T22:13:20.0000001Z", 1_700_000_000_001, ""},
		{"2023-11-14T22:13:20.00000000000000000001Z", 1_700_000_000_001, ""},
		{"2023-11-14T22:13:20.9991Z", 1_700_000_001_000, ""},
		{"2023-11-14T22:13:20.5Z", 1_700_000_000_500, ""},
		{"1969-12-31T23:59:59.9991Z", 0, ""},
		{"0000-01-01T00:00:00Z", -62_167_219_200_000, ""},
		{"9999-12-31T23:59:59.999Z", 253_402_300_799_999, ""},
		{"2024-02-29T00:00:00Z", 1_709_164_800_000, ""},
		{"2016-12-31T23:59:60Z", 1_483_228_800_000, ""},
		{"2017-01-01T00:59:60.25+01:00", 1_483_228_800_250, ""},
		{"", 0, waterclock.ReasonBadTime},
		{"-1", 0, waterclock.ReasonBadTime},
		{"+1700000000000", 0, waterclock.ReasonBadTime},
		{"1700000000000.5", 0, waterclock.ReasonBadTime},
		{"1.7e12", 0, waterclock.ReasonBadTime},
		{" 1700000000000", 0, waterclock.ReasonBadTime},
		{"1700000000000\n", 0, waterclock.ReasonBadTime},
		{"2023-11-14", 0, waterclock.ReasonBadTime},
		{"2023-11-14T22:13Z", 0, waterclock.ReasonBadTime},
		{"2023-11-14T22:13:20", 0, waterclock.ReasonBadTime},
		{"2023-11-14T22:13:20.Z", 0, waterclock.ReasonBadTime},
		{"2023-11-14T22:13:20,5Z", 0, waterclock.ReasonBadTime},
		{"2023-11-14T22:13:20 Z", 0, waterclock.ReasonBadTime},
		{"2023-11-14 22:13:20Z", 0, waterclock.ReasonBadTime},
		{"2023-11-14T2:13:20Z", 0, waterclock.ReasonBadTime},
		{"2023-11-14T22:13:20+01", 0, waterclock.ReasonBadTime},
		{"2023-11-14T22:13:20+0100", 0, waterclock.ReasonBadTime},
		{"2023-11-14T22:13:20+24:00", 0, waterclock.ReasonBadTime},
		{"2023-11-14T22:13:20+01:60", 0, waterclock.ReasonBadTime},
		{"2023-11-14T22:13:20CET", 0, waterclock.ReasonBadTime},
		{"2023-11-14T22:13:20Z[Europe/Berlin]", 0, waterclock.ReasonBadTime},
		{"2023-02-29T00:00:00Z", 0, waterclock.ReasonBadTime},
		{"2023-00-14T22:13:20Z", 0, waterclock.ReasonBadTime},
		{"2023-13-14T22:13:20Z", 0, waterclock.ReasonBadTime},
		{"2023-11-31T22:13:20Z", 0, waterclock.ReasonBadTime},
		{"2023-11-14T24:00:00Z", 0, waterclock.ReasonBadTime},
		{"2023-11-14T22:60:20Z", 0, waterclock.ReasonBadTime},
		{"2023-11-14T22:13:61Z", 0, waterclock.ReasonBadTime},
		{"2023-11-14T22:13:60Z", 0, waterclock.ReasonBadTime},
		{"20-3-11-14T22:13:20Z", 0, waterclock.ReasonBadTime},
	}
	for _, tt := range tests {
		got, refusal := parseInstant("timer-at", waterclock.ReasonBadTime, []byte(tt.text))
		checkParsed(t, tt.text, got, refusal, tt.want, tt.reason)
	}
}

func TestParseDuration(t *testing.T) {
	const bad = waterclock.ReasonBadDuration
	tests := []struct {
		text   string
		want   int64
		reason waterclock.Reason
	}{
		{"250ms", 250, ""},
		{"90s", 90_000, ""},
		{"1h30m", 5_400_000, ""},
		{"3d", 3 * 86_400_000, ""},
		{"2w", 14 * 86_400_000, ""},
		{"1w2d3h4m5s6ms", 788_645_006, ""},
		{"1w2d3h4m5s6ms7us8ns", 788_645_007, ""},
		{"0s", 0, ""},
		{"0.0s", 0, ""},
		{"000001s", 1000, ""},
		{"1.5s", 1500, ""},
		{"1h0.0001s", 3_600_001, ""},
		{"0.1ms", 1, ""},
		{"1ns", 1, ""},
		{"1us", 1, ""},
		{"1µs", 1, ""},
		{"1μs", 1, ""},
		{"1000000ns", 1, ""},
		{"1000001ns", 2, ""},
		{"999us1000ns", 1, ""},
		{"999us1001ns", 2, ""},
		{"0.000000001d", 1, ""},
		{"0.123456789012345678d", 10_666_667, ""},
		{"1." + strings.Repeat("0", 17) + "1ms", 2, ""},
		{"1." + strings.Repeat("0", 40) + "1ms", 2, ""},
		{"1." + strings.Repeat("0", 40) + "ms", 1, ""},
		{"0." + strings.Repeat("9", 40) + "w", 7 * 86_400_000, ""},
		{"1h0m0s", 3_600_000, ""},
		{"P1DT2H", 26 * 3_600_000, ""},
		{"P1D", 86_400_000, ""},
		{"P2W", 14 * 86_400_000, ""},
		{"PT1M", 60_000, ""},
		{"PT0S", 0, ""},
		{"PT0.25S", 250, ""},
		{"PT48H0.0005S", 172_800_001, ""},
		{"PT1.5H", 5_400_000, ""},
		{"P1W2DT3H4M5S", 788_645_000, ""},
		{strings.Repeat("9", 400) + "s", maxMillis, ""},
		{strings.Repeat("9", 400) + "ns", maxMillis, ""},
		{"9223372036854775799ns", 9_223_372_036_855, ""},
		{"9007199254740993ns", 9_007_199_255, ""},
		{"9007199254740992ms", maxMillis, ""},
		{"9007199254740991ms", maxMillis - 1, ""},
		{"14892855747w9007199254740991ms", maxMillis, ""},
		{"", 0, bad},
		{"90", 0, bad},
		{"0", 0, bad},
		{"1.5", 0, bad},
		{"s", 0, bad},
		{"-5s", 0, bad},
		{"+5s", 0, bad},
		{"5 s", 0, bad},
		{" 5s", 0, bad},
		{"5s ", 0, bad},
		{"5S", 0, bad},
		{"5sec", 0, bad},
		{"1y", 0, bad},
		{"1M", 0, bad},
		{".5s", 0, bad},
		{"5.s", 0, bad},
		{"1,5s", 0, bad},
		{"1h30", 0, bad},
		{"30m1h", 0, bad},
		{"1h1h", 0, bad},
		{"1.5h30m", 0, bad},
		{"0.0h30m", 0, bad},
		{"1e3s", 0, bad},
		{"P", 0, bad},
		{"PT", 0, bad},
		{"P1DT", 0, bad},
		{"P1", 0, bad},
		{"PD", 0, bad},
		{"P1Y", 0, bad},
		{"P1M", 0, bad},
		{"P1Y2M3D", 0, bad},
		{"P1H", 0, bad},
		{"PT1D", 0, bad},
		{"PTT1S", 0, bad},
		{"PT1HT1S", 0, bad},
		{"PT1S1M", 0, bad},
		{"PT-6H", 0, bad},
		{"-PT6H", 0, bad},
		{"p1d", 0, bad},
		{"PT1.5H30M", 0, bad},
		{"PT1,5S", 0, bad},
		{"PT1S ", 0, bad},
	}
	for _, tt := range tests {
		got, refusal := parseDuration("timer-after", waterclock.ReasonBadDuration, []byte(tt.text))
		checkParsed(t, tt.text, got, refusal, tt.want, tt.reason)
	}
}

func checkParsed(t *testing.T, text string, got int64, refusal *timer.Refusal, want int64, reason waterclock.Reason) {
	t.Helper()
	var gotReason waterclock.Reason
	if refusal != nil {
		gotReason = waterclock.Reason(refusal.Reason)
		if text != "" && !strings.Contains(refusal.Detail, strconv.Quote(text)) {
			t.Errorf("%q: the detail does not show it: %s", text, refusal.Detail)
		}
	}
	if got != want || gotReason != reason {
		t.Errorf("%q: got %d, %q; want %d, %q", text, got, gotReason, want, reason)
	}
}

// TestParseDurationMonths: months are the most likely mistake, so the error names them.
func TestParseDurationMonths(t *testing.T) {
	_, refusal := parseDuration("timer-after", waterclock.ReasonBadDuration, []byte("P1M"))
	if !strings.Contains(refusal.Detail, "years or months") {
		t.Error(refusal.Detail)
	}
}

// ceilMillis rounds a number of nanoseconds up to milliseconds.
func ceilMillis(ns *big.Rat) int64 {
	ms := new(big.Rat).Quo(ns, big.NewRat(1_000_000, 1))
	q, rest := new(big.Int).QuoRem(ms.Num(), ms.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64()
}

// TestDurationIsExact writes a random duration in both forms and compares the value read with exact arithmetic.
func TestDurationIsExact(t *testing.T) {
	units := []struct {
		plain, iso string
		ns         int64
	}{
		{"w", "W", week}, {"d", "D", day}, {"h", "H", hour}, {"m", "M", minute},
		{"s", "S", second}, {"ms", "", millisecond}, {"us", "", microsecond}, {"ns", "", nanosecond},
	}
	rapid.Check(t, func(t *rapid.T) {
		iso := rapid.Bool().Draw(t, "iso")
		pick := rapid.IntRange(1, 1<<len(units)-1).Draw(t, "units")
		if iso {
			if pick &= 1<<5 - 1; pick == 0 {
				pick = 1
			}
		}
		var text strings.Builder
		if iso {
			text.WriteByte('P')
		}
		want, inTime := new(big.Rat), false
		for i, u := range units {
			if pick&(1<<i) == 0 {
				continue
			}
			if iso && i >= 2 && !inTime {
				inTime = true
				text.WriteByte('T')
			}
			number := strconv.Itoa(rapid.IntRange(0, 100_000).Draw(t, "whole"))
			if pick>>(i+1) == 0 && rapid.Bool().Draw(t, "decimals") {
				number += "." + rapid.StringMatching(`[0-9]{1,18}`).Draw(t, "fraction")
			}
			text.WriteString(number)
			if iso {
				text.WriteString(u.iso)
			} else {
				text.WriteString(u.plain)
			}
			n, ok := new(big.Rat).SetString(number)
			if !ok {
				t.Fatalf("no number: %s", number)
			}
			want.Add(want, n.Mul(n, big.NewRat(u.ns, 1)))
		}
		got, refusal := parseDuration("timer-after", waterclock.ReasonBadDuration, []byte(text.String()))
		if refusal != nil || got != ceilMillis(want) {
			t.Fatalf("%s: got %d, %+v; want %d", text.String(), got, refusal, ceilMillis(want))
		}
	})
}

// TestDurationReadsGo: the output of time.Duration is read back.
func TestDurationReadsGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Min(0).Draw(t, "d"))
		got, refusal := parseDuration("timer-after", waterclock.ReasonBadDuration, []byte(d.String()))
		if want := ceilMillis(big.NewRat(int64(d), 1)); refusal != nil || got != want {
			t.Fatalf("%s: got %d, %+v; want %d", d, got, refusal, want)
		}
	})
}

// TestInstantReadsGo: the output of time.Time is read back, in any zone.
func TestInstantReadsGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		east := rapid.IntRange(-23*60-59, 23*60+59).Draw(t, "minutes east") * 60
		at := time.Unix(
			rapid.Int64Range(-62_000_000_000, 253_000_000_000).Draw(t, "seconds"),
			rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).In(time.FixedZone("", east))
		want := at.UnixMilli()
		if at.Nanosecond()%1_000_000 != 0 {
			want++
		}
		got, refusal := parseInstant("timer-at", waterclock.ReasonBadTime, []byte(at.Format(time.RFC3339Nano)))
		if refusal != nil || got != want {
			t.Fatalf("%s: got %d, %+v; want %d", at.Format(time.RFC3339Nano), got, refusal, want)
		}
	})
}

func FuzzParseInstant(f *testing.F) {
	for _, s := range []string{"1700000000000", "2023-11-14T22:13:20.5+01:00", "2016-12-31T23:59:60Z", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, refusal := parseInstant("timer-at", waterclock.ReasonBadTime, []byte(s))
		if refusal != nil {
			return
		}
		if got > maxMillis {
			t.Fatalf("%q: %d does not saturate", s, got)
		}
		// The standard library is the model where it reads every digit.
		at, err := time.Parse(time.RFC3339, strings.ToUpper(s))
		if err != nil || strings.Contains(s, ":60") || len(s) > len("2006-01-02T15:04:05.999999999+00:00") {
			return
		}
		want := at.UnixMilli()
		if at.Nanosecond()%1_000_000 != 0 {
			want++
		}
		if got != want {
			t.Fatalf("%q: got %d, want %d", s, got, want)
		}
	})
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"250ms", "1h30m", "P1DT2H", "1.5s", "PT0.25S", "3d", "1M"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, refusal := parseDuration("timer-after", waterclock.ReasonBadDuration, []byte(s))
		if refusal == nil && (got < 0 || got > maxMillis) {
			t.Fatalf("%q: %d out of range", s, got)
		}
		// Durations that Go also reads mean the same.
		if d, err := time.ParseDuration(s); err == nil && refusal == nil {
			if want := ceilMillis(big.NewRat(int64(d), 1)); got != want && !strings.Contains(s, ".") {
				t.Fatalf("%q: got %d, want %d", s, got, want)
			}
		}
	})
}
