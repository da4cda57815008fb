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
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// calendarsPage lists the exclusion calendars that the caller may read.
type calendarsPage struct {
	Calendars []api.CalendarInfo
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
	return v.show(nil, "calendars", "Calendars", p)
}

// calendarPage shows the rules of a calendar, and the months of a year.
type calendarPage struct {
	Name, Rules   string
	Year          int
	Before, After template.URL // the same in the years around it
	Months        []month
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
}

func (c *Console) calendar(v *visit) error {
	p := &calendarPage{Name: v.raw("name"), Ask: v.query("do") == "delete"}
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
	if n, err := strconv.Atoi(v.query("year")); err == nil && n >= 1 && n < 10_000 {
		cp.Year = n
	}
	cp.Before = link("/calendar", "name", cp.Name, "year", strconv.Itoa(cp.Year-1))
	cp.After = link("/calendar", "name", cp.Name, "year", strconv.Itoa(cp.Year+1))
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
		for m := time.January; m <= time.December; m++ {
			cp.Months = append(cp.Months, monthOf(e, cp.Year, m, loc))
		}
	}
	return v.show(cp.Wrong, "calendar", cmp.Or(cp.Name, "New calendar"), cp)
}

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
		out.Weeks[len(out.Weeks)-1][column] = day{at.Day(), all, some && !all}
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
			p.Wrong = wrong(http.StatusBadRequest, "the rules are not JSON")
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
