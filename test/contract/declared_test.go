package contract

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Timers are declared again and again while they fire. A schedule that stays the same goes on: each occurrence fires
// once, numbered by its due time, with the contents of the request before it in the log. Another schedule begins anew.
func TestDeclaredAgainWhileTheyFire(t *testing.T) {
	t.Parallel()
	const n, last = 20, 8
	r := newRecurrence(t)
	r.serve(r.config(), 1)
	first := r.soon(3 * time.Second)
	end := first.Add((last - 1) * every)
	declare := func(kind string, i int, value string) *kgo.Record {
		id := fmt.Sprint(kind, "-", i)
		headers := []string{"timer-catch-up", "all", "timer-until", millis(end), "timer-if", "changed"}
		if kind == "cron" {
			return r.request(id, value, append(headers, "timer-cron", "* * * * * *", "timer-at", millis(first))...)
		}
		return r.recurring(id, value, first, headers...)
	}
	send := func(value string) {
		var recs []*kgo.Record
		for i := range n {
			recs = append(recs, declare("same", i, "1"), declare("cron", i, "1"), declare("contents", i, value))
		}
		r.Send(recs...)
	}
	send("1")
	r.in.Balanced(3 * n)
	// Not when it may be over: then nothing is pending, and the schedule begins anew.
	for round := 2; r.now().Before(end.Add(-every)); round++ {
		r.at(r.now().Truncate(every / 4).Add(every / 4)) // also when they are due
		send(fmt.Sprint(round))
	}
	by := r.over()
	for i := range n {
		for _, kind := range []string{"same", "cron", "contents"} {
			id := fmt.Sprint(kind, "-", i)
			r.contiguous(id, by[id], first.UnixMilli(), last)
			changed := 0
			for k, f := range by[id] {
				if k > 0 && f.value != by[id][k-1].value {
					changed++
				}
			}
			if kind == "contents" != (changed > 0) {
				t.Errorf("%s: its contents changed %d times", id, changed)
			}
		}
	}
}

// A schedule that differs, a plain timer at the same instant, and a timer that is paused.
func TestDeclaredAgain(t *testing.T) {
	t.Parallel()
	r := newRecurrence(t)
	r.serve(r.config(), 1)
	first := r.soon(6 * time.Second)
	at := []string{"timer-at", millis(first), "timer-if", "changed"}
	count := []string{"timer-count", "2", "timer-if", "changed"}
	r.Send(
		r.request("plain", "1", at...), r.request("plain", "1", at...), r.request("plain", "2", at...),
		r.recurring("longer", "1", first, count...), r.recurring("longer", "2", first.Add(every), count...),
		r.recurring("paused", "1", first, count...), r.Request("paused", "", "timer-pause", "true"),
		r.recurring("paused", "2", first, count...),
		r.Request("nothing", "", "timer-cancel", "true", "timer-if", "changed"),
		r.request("later", "1", "timer-after", "1h", "timer-if", "changed"),
		r.request("later", "2", "timer-after", "1s", "timer-if", "changed"))
	r.fires(2, "longer")
	r.Out.Quiet(2 * every)
	by := r.firings()
	r.contiguous("longer", by["longer"], first.Add(every).UnixMilli(), 2)
	for id, due := range map[string]int64{"plain": first.UnixMilli(), "later": 0} {
		if fs := by[id]; len(fs) != 1 || fs[0].value != "2" || due != 0 && fs[0].due != due {
			t.Errorf("%s has fired %+v, want once with 2", id, fs)
		}
	}
	if fs := by["paused"]; len(fs) != 0 {
		t.Errorf("fires while it is paused: %+v", fs)
	}
	r.Send(r.Request("paused", "", "timer-resume", "true"))
	r.fires(1, "paused")
	if fs := r.over()["paused"]; len(fs) != 1 || fs[0].value != "2" || fs[0].number != 2 {
		t.Errorf("after it was resumed, %+v has fired, want the latest occurrence with 2", fs)
	}
}

// Periods are counted from the first occurrence by the clock of their zone, and catch up as intervals do. A cron
// expression begins at its start, and a timer that fires once may have jitter.
func TestPeriodsStartsAndJitter(t *testing.T) {
	t.Parallel()
	r := newRecurrence(t)
	r.serve(r.config(), 1)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	today := r.now().In(berlin)
	// At the end of a January some years ago, at an hour that no clock skips or shows twice.
	first := time.Date(today.Year()-2, 1, 31, 12, 0, 0, 0, berlin)
	const months = 14
	soon := r.soon(4 * time.Second)
	r.Send(
		r.request("months", "v", "timer-every", "P1M", "timer-zone", "Europe/Berlin", "timer-at", millis(first),
			"timer-count", fmt.Sprint(months), "timer-catch-up", "all"),
		r.request("latest", "v", "timer-every", "P1W", "timer-zone", "Europe/Berlin", "timer-at",
			millis(today.AddDate(0, 0, -21).Add(time.Hour)), "timer-count", "3"),
		r.request("cron", "v", "timer-cron", "* * * * * *", "timer-at", millis(soon), "timer-count", "3"),
		r.request("jitter", "v", "timer-at", millis(soon), "timer-jitter", "2s"))
	r.fires(3, "cron")
	by := r.over()
	if len(by["months"]) != months {
		t.Errorf("%d months have fired, want %d", len(by["months"]), months)
	}
	for i, f := range by["months"] {
		lastDay := time.Date(first.Year(), time.Month(2+i), 0, 12, 0, 0, 0, berlin) // day 0 is the last one before
		if f.number != int64(i+1) || f.due != lastDay.UnixMilli() {
			t.Errorf("occurrence %d is number %d, due %s, want %s", i+1, f.number, time.UnixMilli(f.due).In(berlin),
				lastDay)
		}
	}
	if fs := by["latest"]; len(fs) != 1 || fs[0].number != 3 {
		t.Errorf("of three weeks that were missed, %+v has fired, want the last", fs)
	}
	r.contiguous("cron", by["cron"], soon.UnixMilli(), 3)
	if fs := by["jitter"]; len(fs) != 1 || fs[0].due <= soon.UnixMilli() || fs[0].due >= soon.UnixMilli()+2000 ||
		fs[0].number != 1 {
		t.Errorf("with jitter %+v has fired, want once, up to 2 s after %d", fs, soon.UnixMilli())
	}
}
