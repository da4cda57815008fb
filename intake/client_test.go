package intake

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// TestValidateAcceptsTheClientsRequests: Validate understands the requests that waterclock.Schedule builds as
// their options say.
func TestValidateAcceptsTheClientsRequests(t *testing.T) {
	r := testRules()
	rapid.Check(t, func(t *rapid.T) {
		id := string(rapid.SliceOfN(rapid.Byte(), 1, 512).Draw(t, "id"))
		want := timer.Timer{ID: []byte(id), Occurrence: 1, Value: rapid.SliceOf(rapid.Byte()).Draw(t, "value")}
		want.Target = timer.Target{Topic: "ok", Partition: timer.AnyPartition, Key: want.ID}
		stamp := time.UnixMilli(rapid.Int64Range(0, now).Draw(t, "timestamp"))
		opts := []waterclock.Option{waterclock.To("ok"), waterclock.Value(want.Value), waterclock.Timestamp(stamp)}

		if rapid.Bool().Draw(t, "after") {
			d := time.Duration(rapid.Int64Range(0, int64(DefaultHorizon)).Draw(t, "duration"))
			want.Due = stamp.UnixMilli() + d.Milliseconds()
			if d%time.Millisecond != 0 {
				want.Due++
			}
			opts = append(opts, waterclock.After(d))
		} else {
			want.Due = rapid.Int64Range(-62_000_000_000_000, now+DefaultHorizon.Milliseconds()-1).Draw(t, "due")
			early := time.Duration(rapid.IntRange(0, 999_999).Draw(t, "nanoseconds before"))
			opts = append(opts, waterclock.At(time.UnixMilli(want.Due).Add(-early)))
		}
		if rapid.Bool().Draw(t, "has key") {
			want.Target.Key = drawNullable(t, "key")
			opts = append(opts, waterclock.Key(want.Target.Key))
		}
		if rapid.Bool().Draw(t, "has partition") {
			want.Target.Partition = rapid.Int32Min(0).Draw(t, "partition")
			opts = append(opts, waterclock.Partition(want.Target.Partition))
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			h := timer.Header{Key: "x" + rapid.String().Draw(t, "name"), Value: drawNullable(t, "header")}
			want.Headers = append(want.Headers, h)
			opts = append(opts, waterclock.Header(h.Key, h.Value))
		}

		rec, err := waterclock.Schedule("timers", id, opts...)
		must(t, err)
		req, _, refusal := r.Validate(rec, now)
		if refusal != nil {
			t.Fatalf("refused: %+v", refusal)
		}
		if got := req.Schedule.AppendTo(nil); !bytes.Equal(got, want.AppendTo(nil)) {
			t.Fatalf("got %+v, want %+v", req.Schedule, want)
		}
	})
}

// TestValidateTakesTheClientsRecurrences: so do recurring timers.
func TestValidateTakesTheClientsRecurrences(t *testing.T) {
	r := testRules()
	rapid.Check(t, func(t *rapid.T) {
		stamp := time.UnixMilli(rapid.Int64Range(0, now).Draw(t, "timestamp"))
		opts := []waterclock.Option{waterclock.To("ok"), waterclock.Timestamp(stamp)}
		want := timer.Recurrence{Until: timer.NoUntil}
		first := stamp.UnixMilli()
		if rapid.Bool().Draw(t, "every") {
			want.Every = rapid.Int64Range(DefaultInterval.Milliseconds(), DefaultHorizon.Milliseconds()/2).Draw(
				t, "interval")
			opts = append(opts, waterclock.Every(time.Duration(want.Every)*time.Millisecond))
			if first += want.Every; rapid.Bool().Draw(t, "at") {
				first = rapid.Int64Range(-62_000_000_000_000, now).Draw(t, "first")
				opts = append(opts, waterclock.At(time.UnixMilli(first)))
			}
		} else {
			want.Cron, want.Zone = "0 9 * * mon-fri",
				rapid.SampledFrom([]string{"", "Africa/Lagos", "Europe/Berlin"}).Draw(t, "zone")
			opts = append(opts, waterclock.Cron(want.Cron))
			if want.Zone != "" {
				opts = append(opts, waterclock.Zone(want.Zone))
			}
			first += (4 * 24 * time.Hour).Milliseconds() // at the latest
		}
		if rapid.Bool().Draw(t, "has until") {
			want.Until = first + rapid.Int64Range(0, 1<<40).Draw(t, "until")
			opts = append(opts, waterclock.Until(time.UnixMilli(want.Until)))
		}
		if rapid.Bool().Draw(t, "has count") {
			want.Count = rapid.Int64Min(1).Draw(t, "count")
			opts = append(opts, waterclock.Count(want.Count))
		}
		if rapid.Bool().Draw(t, "has jitter") {
			want.Jitter = rapid.Int64Range(0, 1<<40).Draw(t, "jitter")
			opts = append(opts, waterclock.Jitter(time.Duration(want.Jitter)*time.Millisecond))
		}
		if rapid.Bool().Draw(t, "has policy") {
			want.CatchUp = rapid.SampledFrom(
				[]timer.CatchUp{timer.CatchUpLatest, timer.CatchUpAll, timer.CatchUpNone}).Draw(t, "policy")
			opts = append(opts, waterclock.CatchUp([]waterclock.CatchUpPolicy{"latest", "all", "none"}[want.CatchUp]))
		}
		late := rapid.Int64Range(0, 1<<40).Draw(t, "late")
		rec, err := waterclock.Schedule("timers", "id",
			append(opts, waterclock.MaxLate(time.Duration(late)*time.Millisecond))...)
		must(t, err)
		req, _, refusal := r.Validate(rec, now)
		if refusal != nil {
			t.Fatalf("refused: %+v", refusal)
		}
		got := *req.Schedule.Recurrence
		if n := req.Schedule.Occurrence; n > 1 && first < stamp.UnixMilli() { // TestDueBeforeTheRequest has the rule
			if got.Count > 0 && n > got.Count {
				want.Count, n = n-1, n-1
			}
			first += (n - 1) * want.Every
		}
		if want.Every > 0 && req.Schedule.Scheduled() != first || want.Cron != "" && req.Schedule.Scheduled() > first {
			t.Fatalf("first at %d, want %d", req.Schedule.Scheduled(), first)
		}
		got.Delay, got.Ahead = 0, 0
		if got != want || req.Schedule.TooLate != late+1 {
			t.Fatalf("got %+v, %d, want %+v, %d", got, req.Schedule.TooLate, want, late+1)
		}
	})
}

func drawNullable(t *rapid.T, label string) []byte {
	if rapid.Bool().Draw(t, label+" null") {
		return nil
	}
	return rapid.SliceOf(rapid.Byte()).Draw(t, label)
}

// TestValidateTakesTheClientsCancel: a cancel built there cancels here.
func TestValidateTakesTheClientsCancel(t *testing.T) {
	rec, err := waterclock.Cancel("timers", "id")
	must(t, err)
	req, _, refusal := testRules().Validate(rec, now)
	if refusal != nil || req.Schedule != nil || string(req.ID) != "id" {
		t.Errorf("got %+v, %+v", req, refusal)
	}
}
