package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/kafka/calendars"
)

// kept are calendars without a log.
type kept struct {
	*calendars.Table
	fails  error // of Write
	writes int
}

var _ api.Calendars = (*kept)(nil)

func (k *kept) Write(_ context.Context, name string, text []byte) error {
	if k.fails != nil {
		return k.fails
	}
	k.writes++
	return k.Change(name, text, int64(k.writes))
}

func withCalendars(t *testing.T) (*instance, *kept, *fake) {
	t.Helper()
	table, err := calendars.Of(nil)
	if err != nil {
		t.Fatal(err)
	}
	k, f := &kept{Table: table}, newFake("timers", partitions)
	return start(t, f, "p0", false, func(o *api.Options) { o.Calendars = k }), k, f
}

func TestCalendars(t *testing.T) {
	in, k, _ := withCalendars(t)
	const one, rules = "/v1/calendars/days", " {\"weekly\": [\"sat\"]}\n"
	in.Get(one).Is(404, "not-found")
	in.Call("DELETE", one, "").Is(404, "not-found")
	if a := in.Call("PUT", one, rules).Is(201, ""); a.Body["result"] != "created" {
		t.Error(a.Text)
	}
	got := in.Get(one).Is(200, "")
	if got.Text != rules || !strings.HasPrefix(got.Header.Get("Content-Type"), "application/json") {
		t.Errorf("%q, %v", got.Text, got.Header)
	}
	if a := in.Get(one, "If-None-Match", got.Header.Get("ETag")); a.Status != 304 || a.Text != "" {
		t.Errorf("%d %q", a.Status, a.Text)
	}
	// Equal rules are written again: the log may have lost them.
	if a := in.Call("PUT", one, rules).Is(200, ""); a.Body["result"] != "replaced" || k.writes != 2 {
		t.Error(a.Text)
	}
	if a := in.Call("PUT", one, `{}`, "Content-Type", "application/json").Is(200, ""); a.Body["result"] != "replaced" {
		t.Error(a.Text)
	}
	if a := in.Get("/v1/calendars").Is(200, ""); !strings.Contains(fmt.Sprint(a.Body["calendars"]), "name:days") {
		t.Error(a.Text)
	}
	if a := in.Call("DELETE", one, "").Is(200, ""); a.Body["result"] != "deleted" {
		t.Error(a.Text)
	}
	in.Get(one).Is(404, "not-found")
}

func TestBadCalendars(t *testing.T) {
	in, k, _ := withCalendars(t)
	for _, bad := range []string{"no json", `{"weekly":["x"]}`, `{"dates":["2026-02-30"]}`, `{"more":[]}`, `[]`,
		`{"weekly":["sat"],"weekly":["sun"]}`, `{"zone":"Europe/Berlinn"}`} {
		in.Call("PUT", "/v1/calendars/c", bad).Is(400, "bad-calendar")
	}
	for _, name := range []string{"a%20b", strings.Repeat("n", 65), "%C3%A9", "a%2Fb"} {
		in.Call("PUT", "/v1/calendars/"+name, `{}`).Is(400, "bad-calendar")
	}
	in.Call("PUT", "/v1/calendars/c", strings.Repeat(" ", 257<<10)).Is(413, "too-large")
	in.Call("PUT", "/v1/calendars/c", `{}`, "If-None-Match", "*").Is(400, "bad-request")
	in.Call("DELETE", "/v1/calendars/c", "", "If-Match", `"x"`).Is(400, "bad-request")
	if k.writes != 0 {
		t.Error("something was written")
	}
	k.fails = errors.New("refused")
	in.Call("PUT", "/v1/calendars/c", `{}`).Is(503, "not-written")
	k.fails = calendars.ErrUnknown
	in.Call("PUT", "/v1/calendars/c", `{}`).Is(503, "unknown-outcome")
}

// A calendar is shown, and may be changed, by rights of its own.
func TestRightsToCalendars(t *testing.T) {
	in, _, f := withCalendars(t)
	for _, name := range []string{"de.a", "de.b", "fr"} {
		in.Call("PUT", "/v1/calendars/"+name, `{}`).Is(201, "")
	}
	f.set(func() {
		f.may = func(_ context.Context, role access.Role, topic, _ string) error {
			g := access.Grant{Role: access.Admin, Topic: "calendar:de.*"}
			if g.Covers(topic) || role == access.Read && topic == access.CalendarTopic("fr") {
				return nil
			}
			return errors.New("no right")
		}
	})
	in.Call("PUT", "/v1/calendars/de.c", `{}`).Is(201, "")
	in.Call("PUT", "/v1/calendars/fr", `{}`).Is(403, "forbidden")
	in.Call("DELETE", "/v1/calendars/fr", "").Is(403, "forbidden")
	in.Get("/v1/calendars/fr").Is(200, "")
	in.Get("/v1/calendars/it").Is(403, "forbidden")
	if a := in.Get("/v1/calendars").Is(200, ""); strings.Count(a.Text, `"mayChange":true`) != 3 ||
		strings.Count(a.Text, `"name"`) != 4 {
		t.Error(a.Text)
	}
}
