package api_test

import "testing"

// A representation that the caller already has is not sent again. Another state of the same
// version has another ETag, but conditions are still about the version.
func TestNotModified(t *testing.T) {
	in := alone(t)
	put := in.put("a", "x").Is(201, "scheduled").Header.Get("ETag")
	got := in.Get(path("a"), "If-None-Match", put)
	if got.Status != 304 || got.Text != "" || got.Header.Get("ETag") != put {
		t.Errorf("%d %q %v", got.Status, got.Text, got.Header)
	}
	for _, has := range []string{"*", `"x", W/` + put} {
		if got := in.Get(path("a"), "If-None-Match", has); got.Status != 304 {
			t.Errorf("%s: %d", has, got.Status)
		}
	}
	in.Get(path("a"), "If-None-Match", `"timers/0/99"`).Is(200, "")
	in.Get(path("none"), "If-None-Match", put).Is(404, "not-found")
	in.Call("POST", path("a")+"/pause", "").Is(200, "paused")
	paused := in.Get(path("a"), "If-None-Match", put).Is(200, "").Header.Get("ETag")
	if got := in.Get(path("a"), "If-None-Match", paused); got.Status != 304 || paused == put {
		t.Errorf("%d, %s and %s", got.Status, put, paused)
	}
	in.Call("PUT", path("a"), "y", in1h, "2h", toOrders, "orders", "If-Match", `"timers/0/99;1;paused"`).Is(412, "condition-not-met")
	in.Call("PUT", path("a"), "y", in1h, "2h", toOrders, "orders", "If-Match", paused).Is(200, "replaced")
}
