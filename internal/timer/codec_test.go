package timer

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// golden holds one timer for each branch of the format. The bytes are a promise: any change to them needs a new format
// number.
var golden = []struct {
	name  string
	timer Timer
	hex   string
}{
	{
		name: "plain",
		timer: Timer{
			ID: []byte("a1"), Offset: 7, Due: 1_700_000_000_000, Occurrence: 1,
			Target: Target{Topic: "orders", Partition: AnyPartition, Key: []byte("a1")},
			Value:  []byte("hi"),
		},
		hex: "01 09 0e 80a0abfef962 02 6131 06 6f7264657273 00 02 6869",
	},
	{
		name: "everything",
		timer: Timer{
			ID: []byte("a1"), Offset: 1 << 40, Due: -1, Occurrence: 3,
			Target: Target{Topic: "t", Partition: 5, Key: []byte("k")},
			Headers: []Header{
				{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "", Value: []byte{}},
			},
			Value: []byte{},
		},
		hex: "01 1c 808080808040 01 06 02 6131 01 74 01 6b 0a 03 01 61 02 31 01 61 00 00 01 00",
	},
	{
		name: "null key and value",
		timer: Timer{
			ID: []byte("x"), Offset: NoOffset, Occurrence: 1,
			Target: Target{Topic: "t", Partition: AnyPartition},
		},
		hex: "01 02 01 00 01 78 01 74 00",
	},
	{
		name:  "empty key",
		timer: Timer{ID: []byte("x"), Occurrence: 1, Target: Target{Topic: "t", Key: []byte{}, Partition: 0}},
		hex:   "01 04 00 00 01 78 01 74 00 00 00",
	},
	{
		name: "every, and never too late",
		timer: Timer{
			ID: []byte("x"), Offset: 1, Due: 2, Occurrence: 3,
			Target:     Target{Topic: "t", Partition: AnyPartition, Key: []byte("x")},
			Recurrence: &Recurrence{Every: 1000, Until: NoUntil}, Value: []byte("v"),
		},
		hex: "01 39 02 04 06 01 78 01 74 00 05 01 03 00 e807 01 76",
	},
	{
		name: "cron and all there is",
		timer: Timer{
			ID: []byte("x"), Offset: 1, Due: 2, Occurrence: 1,
			Target: Target{Topic: "t", Partition: AnyPartition, Key: []byte("x")},
			Recurrence: &Recurrence{
				Cron: "@daily", Zone: "Africa/Lagos", Ahead: 3600, Until: 1000, Count: 5, Jitter: 300, Delay: 7,
				CatchUp: CatchUpNone,
			},
			TooLate: 1001,
		},
		hex: "01 21 02 04 01 78 01 74 00 23 " +
			"01 1d bf 06 406461696c79 0c 4166726963612f4c61676f73 a038 d00f 05 ac02 07 03 02 e907",
	},
	{
		name: "cron in UTC, which catches up with all",
		timer: Timer{
			ID: []byte("x"), Offset: 1, Due: 2, Occurrence: 1,
			Target:     Target{Topic: "t", Partition: AnyPartition, Key: []byte("x")},
			Recurrence: &Recurrence{Cron: "@daily", Until: NoUntil, CatchUp: CatchUpAll},
		},
		hex: "01 21 02 04 01 78 01 74 00 0a 01 08 41 06 406461696c79",
	},
	{
		name: "every month, from an anchor",
		timer: Timer{
			ID: []byte("x"), Offset: 1, Due: 2, Occurrence: 1,
			Target: Target{Topic: "t", Partition: AnyPartition, Key: []byte("x")},
			Recurrence: &Recurrence{
				Period: Period{Months: 1, Days: 2}, Zone: "Africa/Lagos", Ahead: 3600, Until: NoUntil,
				Start: Start{At: 2, Set: true, Ahead: 3600},
			},
		},
		hex: "01 21 02 04 01 78 01 74 00 18 " +
			"09 16 860a 01 02 0c 4166726963612f4c61676f73 a038 04 a038",
	},
	{
		name: "cron with a start",
		timer: Timer{
			ID: []byte("x"), Offset: 1, Due: 2, Occurrence: 1,
			Target:     Target{Topic: "t", Partition: AnyPartition, Key: []byte("x")},
			Recurrence: &Recurrence{Cron: "@daily", Until: NoUntil, Start: Start{At: 2, Set: true}},
			TooLate:    1,
		},
		hex: "01 21 02 04 01 78 01 74 00 0f 03 01 01 09 0a 8108 06 406461696c79 04",
	},
	{
		name: "once, with jitter",
		timer: Timer{
			ID: []byte("x"), Offset: 1, Due: 2, Occurrence: 1,
			Target:     Target{Topic: "t", Partition: AnyPartition, Key: []byte("x")},
			Recurrence: &Recurrence{Until: NoUntil, Jitter: 300, Delay: 7},
		},
		hex: "01 21 02 04 01 78 01 74 00 07 09 05 a004 ac02 07",
	},
	{
		name: "too late, a value behind it",
		timer: Timer{
			ID: []byte("x"), Offset: 1, Due: 2, Occurrence: 1,
			Target:  Target{Topic: "t", Partition: AnyPartition, Key: []byte("x")},
			TooLate: 1, Value: []byte("v"),
		},
		hex: "01 29 02 04 01 78 01 74 00 03 03 01 01 01 76",
	},
	{
		name: "paused",
		timer: Timer{
			ID: []byte("x"), Offset: 1, Due: 2, Occurrence: 1,
			Target:   Target{Topic: "t", Partition: AnyPartition, Key: []byte("x")},
			Steering: &Steering{Paused: true, By: 4},
		},
		hex: "01 21 02 04 01 78 01 74 00 04 05 02 01 08",
	},
	{
		name: "not on two calendars",
		timer: Timer{
			ID: []byte("x"), Offset: 1, Due: 2, Occurrence: 1,
			Target: Target{Topic: "t", Partition: AnyPartition, Key: []byte("x")},
			Recurrence: &Recurrence{Cron: "@daily", Zone: "Z", Until: NoUntil, NotOn: "a,b", Shift: ShiftPrevious,
				Ahead: 3600, Since: 1, Moved: -2},
		},
		hex: "01 21 02 04 01 78 01 74 00 15 09 13 8750 06 406461696c79 01 5a a038 03 612c62 02 03",
	},
	{
		name: "an interval with a calendar",
		timer: Timer{
			ID: []byte("x"), Offset: 1, Due: 2, Occurrence: 1,
			Target:     Target{Topic: "t", Partition: AnyPartition, Key: []byte("x")},
			Recurrence: &Recurrence{Every: 1000, Until: NoUntil, NotOn: "a", Start: Start{At: 2, Set: true}, Since: 1},
		},
		hex: "01 21 02 04 01 78 01 74 00 0b 09 09 8018 e807 04 01 61 02 00",
	},
	{
		name: "moved by a request",
		timer: Timer{
			ID: []byte("x"), Offset: 1, Due: 2, Occurrence: 1,
			Target:     Target{Topic: "t", Partition: AnyPartition, Key: []byte("x")},
			Recurrence: &Recurrence{Every: 1000, Until: NoUntil, Original: Instant{At: 3, Set: true}},
		},
		hex: "01 21 02 04 01 78 01 74 00 08 09 06 808001 e807 06",
	},
	{
		name: "moved by a request, and not on a calendar",
		timer: Timer{
			ID: []byte("x"), Offset: 1, Due: 2, Occurrence: 1,
			Target: Target{Topic: "t", Partition: AnyPartition, Key: []byte("x")},
			Recurrence: &Recurrence{Cron: "@daily", Until: NoUntil, Jitter: 300, NotOn: "a", Since: 1,
				Original: Instant{At: -4, Set: true}},
		},
		hex: "01 21 02 04 01 78 01 74 00 14 09 12 a19001 06 406461696c79 ac02 00 01 61 02 00 07",
	},
	{
		name: "triggered while paused",
		timer: Timer{
			ID: []byte("x"), Offset: 1, Due: 2, Occurrence: 1,
			Target:   Target{Topic: "t", Partition: AnyPartition, Key: []byte("x")},
			Steering: &Steering{Paused: true, Triggered: true, By: 5, At: 3}, TooLate: 1,
		},
		hex: "01 21 02 04 01 78 01 74 00 08 03 01 01 05 03 03 0a 06",
	},
	{
		name: "labels",
		timer: Timer{
			ID: []byte("x"), Offset: 1, Due: 2, Occurrence: 1,
			Target: Target{Topic: "t", Partition: AnyPartition, Key: []byte("x")},
			Labels: "order=17,team=a", Value: []byte("v"),
		},
		hex: "01 29 02 04 01 78 01 74 00 11 0b 0f 6f726465723d31372c7465616d3d61 01 76",
	},
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenBytes(t *testing.T) {
	for _, tt := range golden {
		t.Run(tt.name, func(t *testing.T) {
			want := unhex(t, tt.hex)
			if got := tt.timer.AppendTo(nil); !bytes.Equal(got, want) {
				t.Errorf("encoded\n got %x\nwant %x", got, want)
			}
			got, err := Decode(want)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(*got, tt.timer) {
				t.Errorf("decoded\n got %+v\nwant %+v", *got, tt.timer)
			}
		})
	}
}

func TestDecodeErrors(t *testing.T) {
	tests := []struct {
		name string
		hex  string
		want error
		says string
	}{
		{"nothing", "", ErrCorrupt, "no bytes"},
		{"format zero", "00 09", ErrCorrupt, "format 0"},
		{"format only", "01", ErrCorrupt, "1 bytes"},
		{"format two", "02", ErrNewerFormat, "format 2"},
		{"unknown flag", "01 40", ErrNewerFormat, "flags 0x40"},
		{"cut short", "01 02 01 00", ErrCorrupt, "cut short"},
		{"over-long number", "01 02 8100 00 01 78 01 74 00", ErrCorrupt, "over-long"},
		{"number out of range", "01 02 ffffffffffffffffffff01 00", ErrCorrupt, "out of range"},
		{"ID beyond the end", "01 02 01 00 05 78", ErrCorrupt, "beyond the end"},
		{"ID of 2^63 bytes", "01 02 01 00 ffffffffffffffff7f 78", ErrCorrupt, "beyond the end"},
		{"many headers, few bytes", "01 02 01 00 01 78 01 74 ffffffff0f 00", ErrCorrupt, "more headers"},
		{"header value beyond the end", "01 02 01 00 01 78 01 74 01 01 61 7f", ErrCorrupt, "beyond the end"},
		{"trailing byte", "01 02 01 00 01 78 01 74 00 00", ErrCorrupt, "behind the timer"},
		{"value shorter than the rest", "01 0a 01 00 01 78 01 74 00 01 61 62", ErrCorrupt, "behind the timer"},
		{"key null and ID", "01 03 01 00 01 78 01 74 00", ErrCorrupt, "both null"},
		{"key spelt out", "01 00 01 00 01 78 01 74 01 78 00", ErrCorrupt, "equals the ID"},
		{"occurrence spelt out", "01 12 01 00 02 01 78 01 74 00", ErrCorrupt, "occurrence 1"},
		{"partition spelt out", "01 06 01 00 01 78 01 74 01 00", ErrCorrupt, "partition"},
		{"partition of 33 bits", "01 06 01 00 01 78 01 74 8080808020 00", ErrCorrupt, "partition"},
		{"extensions promised, none", "01 22 01 00 01 78 01 74 00 00", ErrCorrupt, "empty list"},
		{"extension to understand", "01 22 01 00 01 78 01 74 00 03 0f 01 ff", ErrNewerFormat, "extension 15"},
		{"labels out of order", "01 21 00 00 01 78 01 74 00 09 0b 07 623d312c613d31", ErrCorrupt, "canonical"},
		{"no labels", "01 21 00 00 01 78 01 74 00 02 0b 00", ErrCorrupt, "canonical"},
		{"schedule with new flags", "01 21 00 00 01 78 01 74 00 05 09 03 808002", ErrNewerFormat, "flags 0x8000"},
		{"once, and moved by a request", "01 21 00 00 01 78 01 74 00 06 09 04 808401 00", ErrCorrupt, "fires once"},
		{"moved by a request, with a delay", "01 21 00 00 01 78 01 74 00 0a 09 08 a08001 e807 02 01 00", ErrCorrupt,
			"with a delay"},
		{"schedule in vain", "01 21 00 00 01 78 01 74 00 05 09 03 00 e807", ErrCorrupt, "form of a schedule"},
		{"schedule cut short", "01 21 00 00 01 78 01 74 00 02 09 00", ErrCorrupt, "cut short"},
		{"schedule beside a recurrence", "01 21 00 00 01 78 01 74 00 0d 01 03 00 e807 09 06 8004 e807 0000",
			ErrCorrupt, "beside a schedule"},
		{"once in a zone", "01 21 00 00 01 78 01 74 00 06 09 04 8204 01 5a", ErrCorrupt, "with a zone"},
		{"period of nothing", "01 21 00 00 01 78 01 74 00 08 09 06 800a 00000000", ErrCorrupt, "nothing"},
		{"period without a start", "01 21 00 00 01 78 01 74 00 07 09 05 8002 010000", ErrCorrupt, "without a start"},
		{"period too long", "01 21 00 00 01 78 01 74 00 0a 09 08 800a 81804000 0000", ErrCorrupt, "too long"},
		{"two rules", "01 21 00 00 01 78 01 74 00 05 09 03 8106 00", ErrCorrupt, "two rules"},
		{"extensions out of order", "01 22 01 00 01 78 01 74 00 04 04 00 04 00", ErrCorrupt, "out of order"},
		{"recurrence without bytes", "01 21 00 00 01 78 01 74 00 02 01 00", ErrCorrupt, "without bytes"},
		{"interval of zero", "01 21 00 00 01 78 01 74 00 04 01 02 00 00", ErrCorrupt, "not positive"},
		{"interval of 2^63", "01 21 00 00 01 78 01 74 00 0d 01 0b 00 80808080808080808001", ErrCorrupt, "not positive"},
		{"interval with a zone", "01 21 00 00 01 78 01 74 00 06 01 04 02 05 01 5a", ErrCorrupt, "interval with a zone"},
		{"interval ahead", "01 21 00 00 01 78 01 74 00 05 01 03 04 05 02", ErrCorrupt, "interval with a zone"},
		{"empty expression", "01 21 00 00 01 78 01 74 00 04 01 02 01 00", ErrCorrupt, "empty expression"},
		{"expression beyond the end", "01 21 00 00 01 78 01 74 00 05 01 03 01 05 40", ErrCorrupt, "beyond the end"},
		{"empty zone", "01 21 00 00 01 78 01 74 00 06 01 04 03 01 40 00", ErrCorrupt, "empty zone"},
		{"UTC written out", "01 21 00 00 01 78 01 74 00 06 01 04 05 01 40 00", ErrCorrupt, "UTC written out"},
		{"no end written out", "01 21 00 00 01 78 01 74 00 0e 01 0c 08 05 feffffffffffffffff01", ErrCorrupt, "no end"},
		{"count of zero", "01 21 00 00 01 78 01 74 00 05 01 03 10 05 00", ErrCorrupt, "not positive"},
		{"jitter of zero", "01 21 00 00 01 78 01 74 00 06 01 04 20 05 00 00", ErrCorrupt, "not positive"},
		{"delay as long as the jitter", "01 21 00 00 01 78 01 74 00 06 01 04 20 05 03 03", ErrCorrupt,
			"exceeds the jitter"},
		{"catch-up to come", "01 21 00 00 01 78 01 74 00 04 01 02 c0 05", ErrNewerFormat, "catch-up policy"},
		{"behind the recurrence", "01 21 00 00 01 78 01 74 00 05 01 03 00 05 00", ErrCorrupt, "behind the recurrence"},
		{"lateness of zero", "01 21 00 00 01 78 01 74 00 03 03 01 00", ErrCorrupt, "not positive"},
		{"behind a lateness", "01 21 00 00 01 78 01 74 00 04 03 02 01 00", ErrCorrupt, "behind a lateness"},
		{"recurrence twice", "01 21 00 00 01 78 01 74 00 08 01 02 00 05 01 02 00 05", ErrCorrupt, "out of order"},
		{"lateness before the recurrence", "01 21 00 00 01 78 01 74 00 07 03 01 01 01 02 00 05", ErrCorrupt,
			"out of order"},
		{"extension beyond its list", "01 22 01 00 01 78 01 74 00 02 02 05 00 00", ErrCorrupt, "beyond the end"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Decode(unhex(t, tt.hex))
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %+v, %v; want %q wrapping %q", got, err, tt.says, tt.want)
			}
		})
	}
}

func TestDecodePassesOverExtensions(t *testing.T) {
	b := unhex(t, "01 2a 01 00 01 78 01 74 00 06 02 01 ff 10 01 ee 01 76")
	got, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Value) != "v" {
		t.Errorf("value behind the extensions: %q", got.Value)
	}
}

// TestDecodeTruncated cuts every golden timer at every length.
func TestDecodeTruncated(t *testing.T) {
	for _, tt := range golden {
		b := unhex(t, tt.hex)
		for n := range b {
			if got, err := Decode(b[:n]); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s cut to %d bytes: %+v, %v", tt.name, n, got, err)
			}
		}
	}
}

func drawBytes(t *rapid.T, label string) []byte {
	if rapid.Bool().Draw(t, label+" null") {
		return nil
	}
	return rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, label)
}

func drawTimer(t *rapid.T) *Timer {
	tm := &Timer{
		ID:         rapid.SliceOfN(rapid.Byte(), 0, 512).Draw(t, "id"),
		Offset:     rapid.Int64().Draw(t, "offset"),
		Due:        rapid.Int64().Draw(t, "due"),
		Occurrence: rapid.Int64().Draw(t, "occurrence"),
		Target: Target{
			Topic:     rapid.String().Draw(t, "topic"),
			Partition: rapid.Int32().Draw(t, "partition"),
			Key:       drawBytes(t, "key"),
		},
		Value: drawBytes(t, "value"),
	}
	if rapid.Bool().Draw(t, "key is ID") {
		tm.Target.Key = tm.ID
	}
	if rapid.Bool().Draw(t, "recurs") {
		tm.Recurrence = drawRecurrence(t)
	}
	if rapid.Bool().Draw(t, "may be too late") {
		tm.TooLate = rapid.Int64Min(1).Draw(t, "too late")
	}
	if rapid.Bool().Draw(t, "steered") {
		s := &Steering{Paused: rapid.Bool().Draw(t, "paused"), By: rapid.Int64().Draw(t, "by")}
		if s.Triggered = !s.Paused || rapid.Bool().Draw(t, "triggered"); s.Triggered {
			s.At = rapid.Int64().Draw(t, "at")
		}
		tm.Steering = s
	}
	if rapid.Bool().Draw(t, "to be remembered") {
		tm.Remember = &Remember{For: rapid.Int64Min(0).Draw(t, "for"), Token: rapid.String().Draw(t, "token")}
	}
	tm.Labels = drawLabels(t)
	for range rapid.IntRange(0, 5).Draw(t, "headers") {
		tm.Headers = append(tm.Headers, Header{Key: rapid.String().Draw(t, "name"), Value: drawBytes(t, "header")})
	}
	return tm
}

func drawRecurrence(t *rapid.T) *Recurrence {
	r := &Recurrence{Until: NoUntil, CatchUp: CatchUp(rapid.Uint8Range(0, uint8(catchUps)-1).Draw(t, "catch-up"))}
	switch kind := rapid.IntRange(0, 3).Draw(t, "kind"); kind {
	case 0:
		r.Every = rapid.Int64Min(1).Draw(t, "interval")
	case 1: // once
	case 2:
		r.Period.Months = rapid.Int64Range(0, MaxPeriod).Draw(t, "months")
		r.Period.Days = rapid.Int64Range(1, MaxPeriod).Draw(t, "days")
		r.Start = Start{At: rapid.Int64().Draw(t, "anchor"), Set: true, Ahead: rapid.Int64().Draw(t, "ahead")}
	default:
		r.Start.Set = rapid.Bool().Draw(t, "starts")
		if r.Start.Set {
			r.Start.At = rapid.Int64().Draw(t, "start")
		}
		r.Cron = rapid.StringN(1, 300, -1).Draw(t, "expression")
		r.Zone = rapid.String().Draw(t, "zone")
		r.Ahead = rapid.Int64().Draw(t, "ahead")
	}
	if rapid.Bool().Draw(t, "ends") {
		r.Until = rapid.Int64().Draw(t, "until")
		r.Count = rapid.Int64Min(0).Draw(t, "count")
	}
	if rapid.Bool().Draw(t, "jitters") {
		r.Jitter = rapid.Int64Min(1).Draw(t, "jitter")
		r.Delay = rapid.Int64Range(0, r.Jitter-1).Draw(t, "delay")
	}
	if (r.Every > 0 || r.Cron != "" || r.Period != Period{}) && rapid.Bool().Draw(t, "moved by a request") {
		r.Original, r.Delay = Instant{At: rapid.Int64().Draw(t, "original"), Set: true}, 0
	}

	return r
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawTimer(t)
		prefix := []byte("prefix")
		b := want.AppendTo(prefix)
		if !bytes.HasPrefix(b, prefix) {
			t.Fatalf("AppendTo overwrote what was there: %x", b)
		}
		got, err := Decode(b[len(prefix):])
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

// TestOwn: a timer that owns its bytes does not change, whatever happens to the memory that it was built from.
func TestOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawTimer(t)
		b := want.AppendTo(nil)
		shared := bytes.Clone(b)
		got, err := Decode(shared)
		if err != nil {
			t.Fatal(err)
		}
		own, err := got.Own()
		if err != nil || !bytes.Equal(own, b) {
			t.Fatalf("own bytes %x, %v, want %x", own, err, b)
		}
		if n := want.Size(); n < len(b) {
			t.Fatalf("has %d bytes, Own makes room for %d", len(b), n)
		}
		for i := range shared {
			shared[i] ^= 0xff
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, tt := range golden {
		f.Add(unhex(f, tt.hex))
	}
	f.Add(unhex(f, "01 2a 01 00 01 78 01 74 00 06 02 01 ff 10 01 ee 01 76"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Decode(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewerFormat) {
				t.Fatalf("neither corrupt nor newer: %v", err)
			}
			return
		}
		again := got.AppendTo(nil)
		// Only skipped fields are lost, and that makes the bytes shorter.
		if (b[1]&flagExtensions == 0 || len(again) == len(b)) && !bytes.Equal(again, b) {
			t.Fatalf("two encodings of one timer: %x and %x", b, again)
		}
		if round, err := Decode(again); err != nil || !reflect.DeepEqual(round, got) {
			t.Fatalf("got %+v, %v; want %+v", round, err, got)
		}
	})
}

func TestDecodeAllocations(t *testing.T) {
	b := golden[1].timer.AppendTo(nil)
	got := testing.AllocsPerRun(100, func() {
		if _, err := Decode(b); err != nil {
			t.Fatal(err)
		}
	})
	if got > 2 {
		t.Errorf("%v allocations, want 2: the timer and its list of headers", got)
	}
	b = golden[5].timer.AppendTo(nil)
	room := make([]byte, 0, len(b))
	got = testing.AllocsPerRun(100, func() {
		if tm, err := Decode(b); err != nil || len(tm.AppendTo(room)) != len(b) {
			t.Fatal(err)
		}
	})
	if got > 2 {
		t.Errorf("%v allocations, want 2: the timer and its recurrence", got)
	}
}

func benchTimer() *Timer {
	return &Timer{
		ID: []byte("order-00000001"), Offset: 1 << 30, Due: 1_700_000_000_000, Occurrence: 1,
		Target:  Target{Topic: "orders", Partition: AnyPartition, Key: []byte("order-00000001")},
		Headers: []Header{{Key: "traceparent", Value: bytes.Repeat([]byte("0"), 55)}},
		Value:   bytes.Repeat([]byte("x"), 200),
	}
}

func BenchmarkAppendTo(b *testing.B) {
	t, buf := benchTimer(), make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = t.AppendTo(buf[:0])
	}
	b.ReportMetric(float64(len(buf)-len(t.Value)), "overhead-bytes")
}

func BenchmarkDecode(b *testing.B) {
	buf := benchTimer().AppendTo(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOwn makes one allocation. AppendTo and Decode made three.
func BenchmarkOwn(b *testing.B) {
	t := benchTimer()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := t.Own(); err != nil {
			b.Fatal(err)
		}
	}
}

// What a pending timer keeps in memory is its bytes, not what Size has counted for its headers.
func TestOwnKeepsNoMoreThanItsBytes(t *testing.T) {
	x := &Timer{ID: []byte("a"), Due: 1, Offset: 1, Target: Target{Topic: "t", Partition: AnyPartition}}
	for range 128 {
		x.Headers = append(x.Headers, Header{Key: "header", Value: []byte("12345678")})
	}
	b, err := x.Own()
	if err != nil {
		t.Fatal(err)
	}
	if cap(b) > len(b)*5/4 {
		t.Errorf("%d bytes are kept for a timer of %d", cap(b), len(b))
	}
}
