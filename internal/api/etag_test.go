package api_test

import "testing"

// A representation that the caller already has is not sent again. Another state of the same
// version has another ETag, but conditions are still about the version.
func TestNotModified(t *testing.T) {
	in := start(t, newFake("timers", partitions), "p0", false)
	put := in.call(t, "PUT", path("a"), "x", in1h, "1h", toOrders, "orders").is(t, 201, "scheduled").header.Get("ETag")
	got := in.call(t, "GET", path("a"), "", "If-None-Match", put)
	if got.status != 304 || got.text != "" || got.header.Get("ETag") != put {
		t.Errorf("%d %q %v", got.status, got.text, got.header)
	}
	for _, has := range []string{"*", `"x", W/` + put} {
		if got := in.call(t, "GET", path("a"), "", "If-None-Match", has); got.status != 304 {
			t.Errorf("%s: %d", has, got.status)
		}
	}
	in.call(t, "GET", path("a"), "", "If-None-Match", `"timers/0/99"`).is(t, 200, "")
	in.call(t, "GET", path("none"), "", "If-None-Match", put).is(t, 404, "not-found")
	in.call(t, "POST", path("a")+"/pause", "").is(t, 200, "paused")
	paused := in.call(t, "GET", path("a"), "", "If-None-Match", put).is(t, 200, "").header.Get("ETag")
	if got := in.call(t, "GET", path("a"), "", "If-None-Match", paused); got.status != 304 || paused == put {
		t.Errorf("%d, %s and %s", got.status, put, paused)
	}
	in.call(t, "PUT", path("a"), "y", in1h, "2h", toOrders, "orders", "If-Match", `"timers/0/99;1;paused"`).is(
		t, 412, "condition-not-met")
	in.call(t, "PUT", path("a"), "y", in1h, "2h", toOrders, "orders", "If-Match", paused).is(t, 200, "replaced")
}
