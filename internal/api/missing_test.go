package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Lists and counts answer for the partitions that can be asked, and name the others with the reason. What needs all
// partitions fails, and does nothing.
func TestListsAndCountsNameWhatIsMissing(t *testing.T) {
	f := newFake("timers", partitions)
	in := start(t, f, "p0", true)
	const timers, list, count = 20, allTimers + "?limit=3", allTimers + "/count"
	gone := place(t, "timers", "id-0", partitions)
	lost := 0
	for i := range timers {
		id := fmt.Sprint("id-", i)
		in.Call(http.MethodPut, path(id), "", in1h, "1h", toOrders, "orders").Is(201, "")
		if place(t, "timers", id, partitions) == gone {
			lost++
		}
	}
	if lost == timers {
		t.Fatal("all timers are on one partition")
	}
	for _, c := range []struct{ name, owner, api, reason, says string }{
		{"its owner has no API", "silent", "", "elsewhere", "start it with --api"},
		{"no owner", "", "", "moving", "no instance owns partition"},
		{"its owner is gone", "dead", "http://127.0.0.1:1", "moving", "127.0.0.1:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f.set(func() { f.urls[c.owner] = c.api })
			f.move(gone, c.owner)
			in := start(t, f, "p0", true) // it reads the owners now
			missing := func(a answer) {
				t.Helper()
				all := a.Items("missing")
				if len(all) != 1 {
					t.Fatalf("missing: %s", a.Text)
				}
				m := all[0]
				if m["partition"] != float64(gone.Partition) || m["reason"] != c.reason ||
					!strings.Contains(m["detail"].(string), c.says) {
					t.Errorf("missing %v, want partition %d, %s, %s", m, gone.Partition, c.reason, c.says)
				}
			}
			n := in.Call(http.MethodGet, count, "").Is(200, "")
			if missing(n); n.Body["count"] != float64(timers-lost) || n.Body["exact"] != false {
				t.Errorf("%s, want %d", n.Text, timers-lost)
			}
			seen := 0
			in.Pages(list, func(page answer) {
				missing(page)
				seen += len(page.Items("timers"))
			})
			if seen != timers-lost {
				t.Errorf("listed %d, want %d", seen, timers-lost)
			}
			status := map[string]int{"elsewhere": 421, "moving": 503}[c.reason]
			in.Call(http.MethodPost, allTimers+"/cancel?dry-run=true", "").Is(status, c.reason)
		})
	}
	f.set(func() { clear(f.owner) })
	for _, all := range []string{list, count} { // nothing can be answered
		in.Call(http.MethodGet, all, "").Is(503, "moving")
	}
}
