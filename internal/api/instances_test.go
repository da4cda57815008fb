package api_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// Whichever instance is asked, the owner answers.
func TestOneHop(t *testing.T) {
	f := newFake("timers", partitions)
	a, b := start(t, f, "p0", true), start(t, f, "p1", true)
	stranger := start(t, f, "p2", false)
	at := place(t, "timers", "x", partitions)
	f.move(at, "p1")
	a.put("x", "payload").Is(201, "scheduled")
	for _, in := range []*instance{a, b} {
		in.Get(path("x")).Is(200, "").Has("payload")
		if got := in.Get(allTimers+"/count").Is(200, ""); got.Body["count"] != 1.0 {
			t.Error(got.Text)
		}
	}
	// An instance that does not ask others says which instance to ask.
	if got := stranger.Get(path("x")).Is(421, "elsewhere"); got.Body["owner"] != b.URL {
		t.Error(got.Text)
	}
	f.move(at, "older") // it has no API
	// The owners are not read again at once.
	until := func(status int) {
		await.Within(20*time.Second, func() bool { return a.Get(path("x")).Status == status })
	}
	until(421)
	a.Get(path("x")).Is(421, "elsewhere").Has("--api")
	f.set(func() { f.urls["older"] = "http://127.0.0.1:1" }) // it is gone
	until(503)
	a.Get(path("x")).Is(503, "moving")
	a.Call("DELETE", path("x"), "").Is(503, "moving")
	f.move(at, "p0") // immediately: an instance asks no other about its own partitions
	a.Call("DELETE", path("x"), "").Is(200, "cancelled")
	c := a.Get("/v1/cluster").Is(200, "")
	if n := len(c.Body["partitions"].([]any)); n != partitions || c.Body["asked"] != "p0" {
		t.Error(c.Text)
	}
}

// What two instances report about one target, or one missing calendar, is added up.
func TestReportsAreMerged(t *testing.T) {
	f := newFake("timers", partitions)
	a := start(t, f, "p0", true)
	start(t, f, "p1", true)
	f.move(place(t, "timers", "x", partitions), "p1")
	f.set(func() {
		f.deferred = []route.DeferredTarget{{Target: "sms", Timers: 3}}
		f.missing = []route.MissingCalendar{{Calendar: "gone", Topic: "timers", Timers: 4},
			{Calendar: "gone", Topic: "others", Timers: 1}}
	})
	c := a.Get("/v1/cluster").Is(200, "")
	c.Has(`"missingCalendars":[{"calendar":"gone","topic":"others","timers":2},` +
		`{"calendar":"gone","topic":"timers","timers":8}]`)
	c.Has(`"deferred":6`)
	if strings.Count(c.Text, `"missingCalendars"`) != 1 {
		t.Errorf("instances have them too: %s", c.Text)
	}
}

// A request that is sent between instances keeps null apart from empty.
func TestRequestOnItsWay(t *testing.T) {
	for _, want := range []route.Request{{ID: []byte("a")}, {ID: []byte("a"), Value: []byte{}},
		{ID: []byte{0xff}, Value: []byte{0}}} {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got route.Request
		if err := json.Unmarshal(text, &got); err != nil || !bytes.Equal(got.Value, want.Value) ||
			(got.Value == nil) != (want.Value == nil) || !bytes.Equal(got.ID, want.ID) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}
