package oracles

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// TestPeriods compares where the n-th period after an anchor ends, by the clock of a zone: by java.time and dateutil. A
// time that the clock skips comes at the end of the gap, one that it shows twice the first time, except for the anchor.
func TestPeriods(t *testing.T) {
	rng := drawn(t)
	var queries, own []string
	var ahead []int
	for range *expressions {
		period := drawPeriod(rng)
		for _, name := range zones {
			loc, err := calendar.LoadZone(name)
			if err != nil {
				t.Fatal(err)
			}
			for range *starts {
				anchor, n := drawAnchor(rng, loc, period)
				queries = append(queries, fmt.Sprintf("%s\t%d\t%s\t%d", name, anchor.UnixMilli(), period, n))
				_, offset := anchor.Zone()
				ahead = append(ahead, offset)
				own = append(own, ours(t, name, anchor.UnixMilli(), period.String(), n))
			}
		}
	}
	javas, dateutils := ask(t, java(t, "periods"), queries), ask(t, python(t, "dateutil"), queries)
	agree, older := 0, 0
	for i, q := range queries {
		javas, its, _ := strings.Cut(javas[i], " ")
		switch {
		case own[i] == dateutils[i] && own[i] == javas:
			agree++
		case own[i] == dateutils[i] && its != strconv.Itoa(ahead[i]):
			older++
		default:
			t.Errorf("%s: ours %s, java.time %s, dateutil %s", q, own[i], javas, dateutils[i])
		}
	}
	t.Logf("%d instants agree", agree)
	if older > 0 {
		t.Logf("%d differences to java.time, whose rules have another offset at the anchor: tzdata 2025b corrects "+
			"Iran's clock of 1978, and Java's may be older", older)
	}
}

// ours returns when the n-th period after an anchor ends, as a timer with that period has it.
func ours(t *testing.T, zone string, anchor int64, period string, n int) string {
	p, fault := timer.ParsePeriod(period)
	if fault != "" {
		t.Fatal(fault)
	}
	tm := &timer.Timer{}
	for range 2 { // the first time it gets its start
		r, err := new(calendar.Cache).Recurrence(cmp.Or(tm.Recurrence,
			&timer.Recurrence{Period: p, Zone: zone, Until: timer.NoUntil}))
		if err != nil {
			t.Fatal(err)
		}
		if tm.Recurrence == nil {
			r.Start(tm, anchor, anchor)
			continue
		}
		o := r.First(anchor)
		for o.Number <= int64(n) {
			next, _ := r.Next(o)
			if next.Number > int64(n)+1 {
				break // the n-th one comes at the same instant as o
			}
			o = next
		}
		anchor = o.Scheduled
	}
	return strconv.FormatInt(anchor, 10)
}

// period is a date period of ISO 8601: years, months, weeks, days.
type period [4]int

func drawPeriod(rng *rand.Rand) (p period) {
	for p == (period{}) {
		for i := range p {
			p[i] = rng.IntN(5) * rng.IntN(2)
		}
	}
	return p
}

func (p period) String() string {
	b := []byte{'P'}
	for i, n := range p {
		if n > 0 {
			b = append(strconv.AppendInt(b, int64(n), 10), "YMWD"[i])
		}
	}
	return string(b)
}

// drawAnchor returns an anchor for which the n-th period ends near a change of the clock, if the zone has any.
func drawAnchor(rng *rand.Rand, loc *time.Location, p period) (anchor time.Time, n int) {
	n = rng.IntN(30)
	at := start(rng, loc)
	if next := calendar.Changes(loc, at, to, 1); len(next) > 0 {
		at = next[0].At + next[0].Before + rng.Int64N(3*3600) - 3600
	}
	shown := time.Unix(at, rng.Int64N(1000)*1e6).UTC().AddDate(-n*p[0], -n*p[1], -n*(7*p[2]+p[3]))
	year, month, day := shown.Date()
	return time.Date(year, month, day, shown.Hour(), shown.Minute(), shown.Second(), shown.Nanosecond(), loc), n
}
