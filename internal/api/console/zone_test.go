package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// in gets a page for a browser that has chosen a zone.
func (f *fakeAPI) in(zone, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.AddCookie(&http.Cookie{Name: zoneCookie, Value: zone})
	return f.send(r)
}

func TestTimesAreInOneZone(t *testing.T) {
	f := newFake(t)
	for zone, want := range map[string]string{
		"Africa/Lagos":         "2026-11-22 11:00:00",
		"browser:Africa/Lagos": "2026-11-22 11:00:00",
		"America/New_York":     "2026-11-22 05:00:00",
		"UTC":                  "2026-11-22 10:00:00",
		"Nowhere":              "2026-11-22 10:00:00",
		"../../etc/passwd":     "2026-11-22 10:00:00",
		"Local":                "2026-11-22 10:00:00",
	} {
		for _, path := range []string{"/timers", timerPath("order-1"), timerPath("order-1", "do", "cancel")} {
			says(t, f.in(zone, path), http.StatusOK, want)
		}
		if w := f.in(zone, "/timers"); strings.Contains(w.Body.String(), "UTC)") != (want == "2026-11-22 10:00:00") {
			t.Errorf("%s: the page names another zone than its own", zone)
		}
	}
	for _, path := range []string{"/", "/cluster", "/job?id=j1"} {
		says(t, f.in("Africa/Lagos", path), http.StatusOK, "Africa/Lagos", "2026-11-22 ")
		lacks(t, f.in("Africa/Lagos", path), "</time> UTC", "(UTC)")
	}
	// A filter is typed in the zone that the page names.
	f.in("America/New_York", "/timers?"+url.Values{"from": {"2026-11-22 04:00"}}.Encode())
	if got := f.last().query.Get("due-after"); got != "1795338000000" {
		t.Errorf("04:00 in New York is %s", got)
	}
}

// A time that a clock shows twice has its offset from UTC.
func TestTimesThatComeTwice(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	lord, err := time.LoadLocation("Australia/Lord_Howe")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		zone     *time.Location
		at, want string
	}{
		{berlin, "2026-10-25T00:30:00Z", "2026-10-25 02:30:00 +02:00"},
		{berlin, "2026-10-25T01:30:00Z", "2026-10-25 02:30:00 +01:00"},
		{berlin, "2026-10-25T02:30:00Z", "2026-10-25 03:30:00"},
		{lord, "2026-04-04T14:45:00Z", "2026-04-05 01:45:00 +11:00"},
		{lord, "2026-04-04T15:15:00Z", "2026-04-05 01:45:00 +10:30"},
		{time.UTC, "2026-10-25T01:30:00.25Z", "2026-10-25 01:30:00.250"},
	} {
		at, err := time.Parse(time.RFC3339Nano, c.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := (clock{zone: c.zone}).Exact(at); got != c.want {
			t.Errorf("%s in %v: %q, want %q", c.at, c.zone, got, c.want)
		}
	}
}

// The form of the zone leads back to its page, and nowhere else.
func TestZoneForm(t *testing.T) {
	for back, want := range map[string]string{
		"/timers?q=a%26b&topic=t": "/timers?q=a%26b&topic=t",
		"/":                       "/",
		"//evil.example/timers":   "/",
		"https://evil.example/":   "/",
		`/\evil.example`:          "/",
		"/v1/topics":              "/",
		"javascript:alert(1)":     "/",
		"":                        "/",
	} {
		w := newFake(t).post("/zone", url.Values{"zone": {"browser:Africa/Lagos"}, "back": {back}})
		if to := w.Header().Get("Location"); w.Code != http.StatusSeeOther || to != want {
			t.Errorf("%q: %d to %q, want %q", back, w.Code, to, want)
		}
		if c := w.Result().Cookies(); len(c) != 1 || c[0].Value != "browser:Africa/Lagos" ||
			c[0].SameSite != http.SameSiteLaxMode {
			t.Errorf("%v", c)
		}
	}
	says(t, newFake(t).post("/zone", url.Values{"zone": {evil}}), http.StatusBadRequest, "write an IANA name")
}
