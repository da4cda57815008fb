package calendar

import (
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// periodic computes the occurrences of a timer.Period. The n-th comes when the zone's clock shows the date and time of
// the anchor plus n − 1 periods. It is computed from the anchor and never from the occurrence before: the months after
// 31 January end on 28 February and on 31 March.
type periodic struct {
	timer.Period
	start timer.Start
	zone  zone
}

// after returns the reading n periods after another one: n times the months first, then n times the days. A day of the
// month that does not exist becomes the last one. (So do java.time's LocalDateTime.plus and dateutil's relativedelta.)
func (p *periodic) after(r reading, n int64) reading {
	day, timeOfDay := split(r)
	m, dayOfMonth := monthOf(day)
	first := time.Date(m.year, time.Month(int64(m.number)+n*p.Months), 1, 0, 0, 0, 0, time.UTC)
	m, _ = monthOf(first.Unix() / daySeconds)
	day = m.first + int64(min(dayOfMonth, m.days())) - 1 + n*p.Days
	return day*daySeconds + int64(timeOfDay)
}

// occurrence returns the n-th occurrence, from 1. The first is the anchor itself, even if the clock shows it the second
// time.
func (p *periodic) occurrence(n int64) Occurrence {
	if n == 1 {
		return Occurrence{Number: 1, Scheduled: p.start.At, Ahead: p.start.Ahead}
	}
	shown := p.start.At + p.start.Ahead*1000
	second := floorSeconds(shown)
	r := p.after(second, n-1)
	instant := p.zone.reaches(r)
	o := Occurrence{Number: n, Scheduled: instant * 1000, Ahead: r - instant}
	if instant+p.zone.at(instant).offset == r { // not skipped by the clock
		o.Scheduled += shown - second*1000
	}
	return o
}

// anchored returns at as the start of occurrences.
func (p *periodic) anchored(at int64) timer.Start {
	return timer.Start{At: at, Set: true, Ahead: p.zone.at(floorSeconds(at)).offset}
}

// next returns the occurrence after o. If several come at the same instant, because a zone skips a day, they are one,
// and the numbers of the others are skipped.
func (p *periodic) next(o Occurrence) Occurrence {
	for n := o.Number + 1; ; n++ {
		if next := p.occurrence(n); next.Scheduled > o.Scheduled {
			return next
		}
	}
}

// latest returns the last occurrence that is scheduled at or before a time, but at least o, and with a number of at
// most limit; 0 is no limit.
func (p *periodic) latest(o Occurrence, time, limit int64) Occurrence {
	const meanMonth = 146097 * daySeconds / 4800 // in seconds: 400 years have 146097 days
	n := max(1, (time-p.start.At)/1000/(p.Months*meanMonth+p.Days*daySeconds)+1)
	for p.occurrence(n+1).Scheduled <= time { // a few times: a month is a little longer or shorter than the mean
		n++
	}
	for n > 1 && p.occurrence(n).Scheduled > time {
		n--
	}
	if limit > 0 {
		n = min(n, limit)
	}
	for n > 1 && p.occurrence(n-1).Scheduled == p.occurrence(n).Scheduled {
		n--
	}
	if n <= o.Number {
		return o
	}
	return p.occurrence(n)
}
