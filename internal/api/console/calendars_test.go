package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

func TestMonths(t *testing.T) {
	e, err := calendar.ParseRules([]byte(`{"zone":"Europe/Berlin","dates":["2026-12-25"],"hours":["thu 18:00-20:00"]}`))
	if err != nil {
		t.Fatal(err)
	}
	loc, _ := time.LoadLocation("Europe/Berlin")
	m := monthOf(e, 2026, time.December, loc) // the 1st is a Tuesday
	if len(m.Weeks) != 5 || m.Weeks[0][0].Number != 0 || m.Weeks[0][1].Number != 1 || m.Weeks[4][3].Number != 31 {
		t.Fatalf("%+v", m)
	}
	for i, want := range []day{{Number: 23}, {Number: 24, Part: true}, {Number: 25, Whole: true}} {
		if got := m.Weeks[3][2+i]; got.Number != want.Number || got.Whole != want.Whole || got.Part != want.Part {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// TestDaysAreExplained: the page says which rules exclude a day. Only days with a rule of their own are in the way of a
// reader with a keyboard.
func TestDaysAreExplained(t *testing.T) {
	f := newFake(t)
	f.answers["/v1/calendars"] = api.CalendarList{}
	f.answers["/v1/calendars/de"] = calendar.Rules{Zone: "Europe/Berlin", Dates: []string{"2026-12-24/2026-12-26"},
		Yearly: []string{"11-22"}, Weekly: []string{"sat"}, Hours: []string{"fri 18:00-20:00"}}
	w := f.get("/calendar?name=de&year=2026")
	says(t, w, 200, `id="why-2026-12-25"`, ">25<", "excluded, yearly 11-22", "excluded, dates 2026-12-24/2026-12-26",
		"dates 2026-12-24/2026-12-26, weekly sat", "55 days are", "51 days", "<code>fri 18:00-20:00</code>",
		`title="weekly sat">`, "year=2027#year", "in Europe/Berlin")
	if n := strings.Count(w.Body.String(), "popovertarget="); n != 4 {
		t.Errorf("%d days have a button", n)
	}
	if n := strings.Count(w.Body.String(), `aria-current="date"`); n != 1 {
		t.Errorf("%d days are today", n)
	}
	lacks(t, f.get("/calendar?name=de&year=2027"), `aria-current="date"`)
	lacks(t, f.get("/calendar?name=de&year=9999"), "Year after")
	lacks(t, f.get("/calendar?name=de&year=1"), "Year before")
}

// TestMissingCalendars: those that timers name and that do not exist are shown where they can be put again, and on the
// overview, to callers who may see the cluster.
func TestMissingCalendars(t *testing.T) {
	f := newFake(t)
	f.answers["/v1/calendars"] = api.CalendarList{}
	c := f.answers["/v1/cluster"].(*api.Cluster)
	c.MissingCalendars = []route.MissingCalendar{{Calendar: "gone", Topic: "timers", Timers: 1234}}
	for _, page := range []string{"/calendars", "/"} {
		says(t, f.get(page), 200, "<code>gone</code>: 1,234 timers of", "/calendar?calendar=gone",
			"/timers?topic=timers")
	}
	says(t, f.get("/calendar?calendar=gone"), 200, `name="calendar" value="gone"`)
	f.answers["/v1/cluster"] = forbidden()
	lacks(t, f.get("/calendars"), "gone")
}

// TestDeferredTargets: the overview and the cluster say what waits for a rate, and until when.
func TestDeferredTargets(t *testing.T) {
	f := newFake(t)
	c := f.answers["/v1/cluster"].(*api.Cluster)
	c.Deferred = []route.DeferredTarget{
		{Target: "sms", PerSecond: 0.5, Burst: 1, Timers: 12000, Oldest: now.Add(-time.Minute),
			Through: now.Add(6 * time.Hour)},
		{Target: "mail", Topic: "timers", PerSecond: 500, Timers: 1},
	}
	says(t, f.get("/"), 200, `/timers?state=deferred&amp;target=sms"`, "about 12,000 timers wait for its rate of 30 a minute",
		"(1 min ago)", "(in 6 h)", "/timers?state=deferred&amp;target=mail&amp;topic=timers", "about 1 timer waits",
		"500 a second")
	says(t, f.get("/cluster"), 200, "Deferred by rates", ">12,000<", "in 6 h", "triggered", "not known")
	one := f.answers["/v1/topics/timers/timers/order-1"].(*api.Timer)
	one.State, one.Target.Topic = "deferred", "mail"
	says(t, f.get("/timer?topic=timers&id=order-1"), 200, "It is not late",
		"rate of its target, 500 a second. About 1 timer")
	f.answers["/v1/cluster"] = forbidden()
	says(t, f.get("/timer?topic=timers&id=order-1"), 200, "waits for the rate of its target.</dd>")
	f.answers["/v1/cluster"] = c
	c.Deferred = nil
	lacks(t, f.get("/"), "Deferred")
}

func TestCalendarPages(t *testing.T) {
	f := newFake(t)
	f.answers["/v1/calendars"] = api.CalendarList{Calendars: []api.CalendarInfo{{Name: "de", Changed: now, Mine: true}}}
	f.answers["/v1/calendars/de"] = calendar.Rules{Dates: []string{"2026-12-25"}}
	f.answers["PUT /v1/calendars/new"] = api.CalendarResult{Name: "new", Result: "created"}
	f.answers["PUT /v1/calendars/bad"] = refusal(http.StatusBadRequest, "bad-calendar", "dates[0] is wrong")
	f.answers["DELETE /v1/calendars/de"] = api.CalendarResult{Name: "de", Result: "deleted"}
	says(t, f.get("/calendars"), 200, ">de</a>", "New calendar")
	says(t, f.get("/calendars?done=created"), 200, "The calendar is created.")
	says(t, f.get("/calendar?name=de&year=2026"), 200, "December", ">25<", "2026-12-25", "do=delete", "year=2027")
	says(t, f.get("/calendar?name=de&do=delete"), 200, "Delete it?")
	says(t, f.get("/calendar"), 200, `name="calendar"`)
	w := f.post("/calendar", url.Values{"calendar": {"new"}, "rules": {`{"weekly": ["sat"]}`}})
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/calendars?done=created" ||
		!strings.Contains(f.last().body, `"sat"`) {
		t.Errorf("%d %v %+v", w.Code, w.Header(), f.last())
	}
	says(t, f.post("/calendar?name=bad", url.Values{"rules": {`{"dates":["x"]}`}}), 400, "dates[0] is wrong")
	says(t, f.post("/calendar?name=bad", url.Values{"rules": {"no json"}}), 400, "not JSON", "no json</textarea>")
	w = f.post("/calendar?name=de", url.Values{"do": {"delete"}})
	if w.Code != http.StatusSeeOther || f.last().method != http.MethodDelete {
		t.Errorf("%d %+v", w.Code, f.last())
	}
	f.answers["/v1/calendars"] = api.CalendarList{Calendars: []api.CalendarInfo{{Name: "de", Changed: now}}}
	lacks(t, f.get("/calendar?name=de"), "do=delete", "Put</button>")
}
