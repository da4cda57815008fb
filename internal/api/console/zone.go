package console

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/timer/calendar"
)

const (
	// zoneCookie keeps, in each browser, the zone in which its pages show times.
	zoneCookie = "waterclock-zone"
	// browserZone precedes the name of a zone that is the browser's own. The script updates that one.
	browserZone = "browser:"
	zoneAge     = 400 * 24 * time.Hour // the longest that browsers keep a cookie
)

// clock shows times in one zone.
type clock struct {
	zone *time.Location
	// Follows: the zone is that of the browser, and the script changes it when the browser's changes.
	Follows bool
}

// clockOf returns the clock that a browser has chosen: UTC unless it names a known zone.
func clockOf(r *http.Request) clock {
	c, err := r.Cookie(zoneCookie)
	if err != nil {
		return clock{zone: time.UTC}
	}
	name, follows := strings.CutPrefix(c.Value, browserZone)
	zone, err := calendar.LoadZone(name)
	if err != nil {
		return clock{zone: time.UTC}
	}
	return clock{zone, follows}
}

// Zone is the name of the zone.
func (c clock) Zone() string { return c.zone.String() }

// Time shows a time in seconds.
func (c clock) Time(t time.Time) string { return c.format(t, timeLayout) }

// Millis shows a time in milliseconds.
func (c clock) Millis(t time.Time) string { return c.format(t, timeLayout+".000") }

// Exact shows a time in milliseconds, unless they are 0.
func (c clock) Exact(t time.Time) string {
	if t.UnixMilli()%1000 == 0 {
		return c.Time(t)
	}
	return c.Millis(t)
}

// format adds the offset from UTC to times that the clock shows twice because it is set back.
func (c clock) format(t time.Time, layout string) string {
	t = t.In(c.zone)
	text := t.Format(layout)
	for _, by := range []time.Duration{30 * time.Minute, time.Hour} {
		if t.Add(by).Format(layout) == text || t.Add(-by).Format(layout) == text {
			return t.Format(layout + " -07:00")
		}
	}
	return text
}

// here returns the address of the page, to return to.
func (v *visit) here() string {
	if v.r.Method == http.MethodPost {
		return "/"
	}
	q := v.r.URL.Query()
	for _, name := range []string{"done", "request", "was", "due"} { // the outcome of a form is shown once
		q.Del(name)
	}
	return string(link(v.r.URL.Path, pairsOf(q)...))
}

// setZone stores the zone of a form, and goes back to the page of the form.
func (c *Console) setZone(v *visit) error {
	name := strings.TrimSpace(v.r.PostForm.Get("zone"))
	if _, err := calendar.LoadZone(strings.TrimPrefix(name, browserZone)); err != nil {
		return bad(err.Error() + ": write an IANA name, such as Africa/Lagos, or UTC")
	}
	http.SetCookie(v.w, &http.Cookie{
		Name: zoneCookie, Value: name, Path: "/", MaxAge: int(zoneAge / time.Second), Secure: v.r.TLS != nil,
		SameSite: http.SameSiteLaxMode,
	})
	to, err := url.Parse(v.r.PostForm.Get("back"))
	if err != nil || to.Scheme != "" || to.Host != "" || c.pages[to.EscapedPath()].get == nil {
		return v.lead("/")
	}
	return v.lead(link(to.Path, pairsOf(to.Query())...))
}

// pairsOf returns a query as the parameters of link. A list may be in one parameter or in several.
func pairsOf(q url.Values) (pairs []string) {
	for name, values := range q {
		if name != "label" && name != "type" {
			values = values[:1]
		}
		pairs = append(pairs, name, strings.Join(values, ","))
	}
	return pairs
}
