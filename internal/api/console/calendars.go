package console

import (
	"cmp"
	"encoding/json"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// calendarsPage lists the exclusion calendars that the caller may read.
type calendarsPage struct {
	Calendars []api.CalendarInfo
	Missing   []route.MissingCalendar // none also if the caller may not see the service as a whole
	Done      string
}

func (c *Console) calendars(v *visit) error {
	p := &calendarsPage{Done: v.query("done")}
	if !slices.Contains([]string{"created", "replaced", "deleted"}, p.Done) {
		p.Done = ""
	}
	var all api.CalendarList
	if err := v.ask(call{path: []string{"calendars"}}, &all); err != nil {
		return err
	}
	p.Calendars = all.Calendars
	var cluster api.Cluster
	if v.ask(call{path: []string{"cluster"}}, &cluster) == nil {
		p.Missing = cluster.MissingCalendars
	}
	return v.show(nil, "calendars", "Calendars", p)
}

// calendarPage shows the rules of a calendar, and the months of a year.
type calendarPage struct {
	Name, Rules   string
	Typed         string // the name in the form of a new one
	Year          int
	Before, After template.URL // the same in the years around it; empty: there is none
	Months        []month
	Weekly, Parts []string // the rules that exclude days of each week, and parts of days
	Whole, Part   int      // days of the year
	Zone          string
	Mine          bool // the caller may change it
	Ask           bool // whether to delete it
	Wrong         *api.Problem
}

// month has the days of a month by weeks, which begin on Mondays. A day 0 is of another month.
type month struct {
	Name  string
	Weeks [][7]day
}

// day is a day. Whole says that all of it is excluded, Part that some of it is.
type day struct {
	Number      int
	Whole, Part bool
	Today       bool
	ID          string // of the day in the page
	Why         string // the rules that exclude it
	// Own says that a rule for this day, and not for each week, excludes it. The page explains the rules for each week
	// once, because a reader with a keyboard would have to pass a hundred days otherwise.
	Own  bool
	noon int64 // Unix ms
}

func (c *Console) calendar(v *visit) error {
	p := &calendarPage{Name: v.raw("name"), Typed: v.query("calendar"), Ask: v.query("do") == "delete"}
	var rules json.RawMessage
	if p.Name != "" {
		if err := v.ask(call{path: []string{"calendars", p.Name}}, &rules); err != nil {
			return err
		}
	}
	p.Rules = string(rules)
	return p.show(v)
}

func (cp *calendarPage) show(v *visit) error {
	cp.Year = v.now.Year()
	if n, err := strconv.Atoi(v.query("year")); err == nil && n >= 1 && n <= lastYear {
		cp.Year = n
	}
	if cp.Year > 1 {
		cp.Before = link("/calendar", "name", cp.Name, "year", strconv.Itoa(cp.Year-1))
	}
	if cp.Year < lastYear {
		cp.After = link("/calendar", "name", cp.Name, "year", strconv.Itoa(cp.Year+1))
	}
	cp.Mine = cp.Name == ""
	var all api.CalendarList
	if v.ask(call{path: []string{"calendars"}}, &all) == nil {
		cp.Mine = cp.Mine || slices.ContainsFunc(all.Calendars,
			func(c api.CalendarInfo) bool { return c.Name == cp.Name && c.Mine })
	}
	if e, err := calendar.ParseRules([]byte(cp.Rules)); err == nil {
		var r calendar.Rules
		_ = json.Unmarshal([]byte(cp.Rules), &r) // ParseRules has
		loc, err := calendar.LoadZone(r.Zone)
		if err != nil {
			return err
		}
		cp.Zone, cp.Weekly, cp.Parts = cmp.Or(r.Zone, "UTC"), r.Weekly, r.Hours
		single, today := singly(&r), v.now.In(loc).Format(time.DateOnly)
		for m := time.January; m <= time.December; m++ {
			cp.Months = append(cp.Months, monthOf(e, cp.Year, m, loc))
			cp.explain(&cp.Months[len(cp.Months)-1], m, single, today)
		}
	}
	return v.show(cp.Wrong, "calendar", cmp.Or(cp.Name, "New calendar"), cp)
}

// singleRule is a rule of a calendar as a calendar of its own.
type singleRule struct {
	text string
	day  bool // it is for some days, and not for each week or a part of a day
	*calendar.Exclusion
}

// singly returns the rules that exclude whole days.
func singly(r *calendar.Rules) (all []singleRule) {
	add := func(text string, day bool, one calendar.Rules) {
		one.Zone = r.Zone
		if e, err := one.Compile(); err == nil {
			all = append(all, singleRule{text, day, e})
		}
	}
	for _, text := range r.Dates {
		add("dates "+text, true, calendar.Rules{Dates: []string{text}})
	}
	for _, text := range r.Yearly {
		add("yearly "+text, true, calendar.Rules{Yearly: []string{text}})
	}
	for _, text := range r.Weekly {
		add("weekly "+text, false, calendar.Rules{Weekly: []string{text}})
	}
	return all
}

// explain adds to the days of a month which rules exclude them, and counts them.
func (cp *calendarPage) explain(m *month, of time.Month, rules []singleRule, today string) {
	for w := range m.Weeks {
		for i := range m.Weeks[w] {
			d := &m.Weeks[w][i]
			if d.Number == 0 {
				continue
			}
			d.ID = time.Date(cp.Year, of, d.Number, 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
			d.Today = d.ID == today
			switch {
			case d.Whole:
				cp.Whole++
			case d.Part:
				cp.Part++
				continue // only hours exclude it
			default:
				continue
			}
			var why []string
			for _, r := range rules {
				if r.Excludes(d.noon) {
					why, d.Own = append(why, r.text), d.Own || r.day
				}
			}
			d.Why = cmp.Or(strings.Join(why, ", "), "hours")
		}
	}
}

// lastYear is the last one that the page shows.
const lastYear = 9999

// monthOf marks the days of a month. It looks at each quarter of an hour.
func monthOf(e *calendar.Exclusion, year int, m time.Month, loc *time.Location) month {
	const step = 15 * time.Minute
	out := month{Name: m.String()}
	first := time.Date(year, m, 1, 0, 0, 0, 0, loc)
	for at := first; at.Month() == m; {
		column := (int(at.Weekday()) + 6) % 7
		if column == 0 || len(out.Weeks) == 0 {
			out.Weeks = append(out.Weeks, [7]day{})
		}
		next := time.Date(year, m, at.Day()+1, 0, 0, 0, 0, loc)
		some, all := false, true
		for t := at; t.Before(next); t = t.Add(step) {
			excluded := e.Excludes(t.UnixMilli())
			some, all = some || excluded, all && excluded
		}
		out.Weeks[len(out.Weeks)-1][column] = day{Number: at.Day(), Whole: all, Part: some && !all,
			noon: at.Add(next.Sub(at) / 2).UnixMilli()}
		if !next.After(at) { // the zone skips the day
			break
		}
		at = next
	}
	return out
}

// changeCalendar puts a calendar, or deletes it.
func (c *Console) changeCalendar(v *visit) error {
	form := v.r.PostForm
	name := cmp.Or(v.raw("name"), strings.TrimSpace(form.Get("calendar")))
	one := call{method: http.MethodDelete, path: []string{"calendars", name}}
	p := &calendarPage{Name: v.raw("name"), Rules: form.Get("rules")}
	if form.Get("do") != "delete" {
		text := []byte(p.Rules)
		if !json.Valid(text) {
			p.Wrong = bad("the rules are not JSON")
			return p.show(v)
		}
		one.method, one.body = http.MethodPut, json.RawMessage(text)
	}
	var done api.CalendarResult
	if err := v.ask(one, &done); err != nil {
		p.Wrong = asProblem(err)
		return p.show(v)
	}
	return v.lead(template.URL("/calendars?" + url.Values{"done": {done.Result}}.Encode()))
}
