package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/api"
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
	if m.Weeks[3][4] != (day{25, true, false}) || m.Weeks[3][3] != (day{24, false, true}) ||
		m.Weeks[3][2] != (day{23, false, false}) {
		t.Errorf("%+v", m.Weeks[3])
	}
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
	says(t, f.get("/calendar?name=de&year=2026"), 200, "December", "<strong>25", "2026-12-25", "do=delete", "year=2027")
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
