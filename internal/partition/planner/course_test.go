package planner

import (
	"encoding/binary"
	"maps"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// This file is the model's knowledge of recurrences: every occurrence, one by one, computed literally as REFERENCE and
// FORMAT say. It does not use package calendar.

// nowhere is a time zone that no instance knows.
const nowhere = "Mars/Olympus"

// setting is a change of the clock of a time zone.
type setting struct {
	zone          string
	at            int64 // Unix seconds
	before, after int64 // how far the clock is ahead of UTC before and after
}

var settings = []setting{
	{"Europe/Berlin", 1_711_846_800, 3600, 7200},
	{"Europe/Berlin", 1_729_990_800, 7200, 3600},
	{"Australia/Lord_Howe", 1_712_415_600, 39_600, 37_800},
	{"Australia/Lord_Howe", 1_728_142_200, 37_800, 39_600},
	{"Africa/Lagos", 1_711_846_800, 3600, 3600},
}

// expressions say which readings of a clock match. A reading is in seconds since 1970.
var expressions = map[string]func(shown int64) bool{
	"*/2 * * * * *": func(shown int64) bool { return shown%2 == 0 },
	"7 * * * * *":   func(shown int64) bool { return shown%60 == 7 },
	"15 30 * * * *": func(shown int64) bool { return shown%3600 == 30*60+15 },
	"*/5 * 2 * * *": func(shown int64) bool { return shown%86_400/3600 == 2 && shown%5 == 0 },
	"*/3 * 1-2 * * *": func(shown int64) bool {
		hour := shown % 86_400 / 3600
		return (hour == 1 || hour == 2) && shown%3 == 0
	},
	"0 30 2 * * *": func(shown int64) bool { return shown%86_400 == 2*3600+30*60 },
}

var crons = slices.Sorted(maps.Keys(expressions))

// everyHour are the expressions that come at each instant at which a matching reading is shown. The others come once
// for each reading: the first time that it is shown or, if the clock skips it, at that moment.
var everyHour = map[string]bool{"*/2 * * * * *": true, "7 * * * * *": true, "15 30 * * * *": true}

// coming is an instant at which an expression comes, and how far the reading is ahead of it, both in seconds.
type coming struct{ at, ahead int64 }

var comings = struct {
	sync.Mutex
	of map[[2]any][]coming
}{of: map[[2]any][]coming{}}

// all returns when an expression comes, from some minutes before the clock is set until a week later.
func (se *setting) all(cron string) (list []coming) {
	comings.Lock()
	defer comings.Unlock()
	key := [2]any{*se, cron}
	if list = comings.of[key]; list != nil {
		return list
	}
	matches, often := expressions[cron], everyHour[cron]
	latest := int64(math.MaxInt64) // that was shown
	for at := se.at - 600; at < se.at+7*86_400; at++ {
		shown := at + se.before
		if at >= se.at {
			shown = at + se.after
		}
		comes, reading := matches(shown) && (often || at == se.at-600 || shown > latest), shown
		for skipped := shown - 1; skipped > latest && !often; skipped-- {
			if matches(skipped) {
				comes, reading = true, skipped
			}
		}
		if comes {
			list = append(list, coming{at, reading - at})
		}
		if at == se.at-600 {
			latest = shown
		}
		latest = max(latest, shown)
	}
	comings.of[key] = list
	return list
}

// next returns the first time after an instant, in ms, at which an expression comes.
func (se *setting) next(cron string, after int64) (at, ahead int64) {
	list := se.all(cron)
	i, _ := slices.BinarySearchFunc(list, after, func(c coming, after int64) int {
		if c.at*1000 <= after {
			return -1
		}
		return 1
	})
	return list[i].at * 1000, list[i].ahead
}

// course returns the timer as it is pending for each occurrence of a recurring timer. An interval begins at s.Due; an
// expression comes after it.
func (se *setting) course(s *timer.Timer) (all []*timer.Timer) {
	r := s.Recurrence
	next := func(after int64) (at, ahead int64) { return after + r.Every, 0 }
	at, ahead := s.Due, int64(0)
	if r.Every == 0 {
		next = func(after int64) (at, ahead int64) { return se.next(r.Cron, after) }
		at, ahead = next(s.Due)
	}
	for n := int64(1); n <= r.Count && at <= r.Until; n++ {
		behind, aheadThen := next(at)
		o, current := *s, *r
		current.Ahead, current.Delay = ahead, 0
		if r.Jitter > 0 {
			b := binary.BigEndian.AppendUint64(slices.Clone(s.ID), uint64(s.Offset))
			part, _ := bits.Mul64(xxhash.Sum64(binary.BigEndian.AppendUint64(b, uint64(n))),
				uint64(min(r.Jitter, behind-at)))
			current.Delay = int64(part)
		}
		o.Recurrence, o.Occurrence, o.Due = &current, n, at+current.Delay
		all = append(all, &o)
		at, ahead = behind, aheadThen
	}
	return all
}

// underOtherRules returns t as an instance may have stored it whose zone rules had the clock some seconds further
// ahead. By the present rules it comes at another time: its stored due time is the old one.
func underOtherRules(t *timer.Timer, seconds int64) *timer.Timer {
	other, r := *t, *t.Recurrence
	r.Ahead += seconds
	other.Recurrence, other.Due = &r, t.Due-seconds*1000
	return &other
}
