package api_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// A list merges all partitions. Its cursors lose and repeat nothing, even if timers of several
// partitions have the same place.
func TestLists(t *testing.T) {
	in := alone(t)
	r := rand.New(rand.NewPCG(1, 2))
	const timers = 120
	for i := range timers {
		due := time.Now().Add(time.Hour).Truncate(time.Hour).UnixMilli() + int64(r.IntN(5))
		in.Call("PUT", path(fmt.Sprintf("id-%03d", i)), "", "timer-at", fmt.Sprint(due), toOrders,
			fmt.Sprint("t", i%2)).Is(201, "")
	}
	for _, order := range []string{"due", "id"} {
		for _, filter := range []string{"", "&target=t1", "&prefix=id-1"} {
			for _, limit := range []int{3, 7, 1000} {
				seen, last := map[string]bool{}, ""
				list := fmt.Sprintf(allTimers+"?order=%s&limit=%d%s", order, limit, filter)
				in.Pages(list, func(page answer) {
					if n := len(page.Items("timers")); n > limit {
						t.Fatalf("%d timers, limit %d", n, limit)
					}
					for _, one := range page.Items("timers") {
						id := one["id"].(string)
						if seen[id] {
							t.Fatalf("%s twice", id)
						}
						seen[id] = true
						key := id
						if order == "due" {
							key = fmt.Sprintf("%020.0f", one["dueMillis"].(float64))
						}
						if key < last {
							t.Fatalf("%s behind %s", key, last)
						}
						last = key
					}
				})
				want := map[string]int{"": timers, "&target=t1": timers / 2, "&prefix=id-1": 20}[filter]
				if len(seen) != want {
					t.Errorf("%s%s limit %d: %d timers, want %d", order, filter, limit, len(seen), want)
				}
			}
		}
	}
	a := in.Get(allTimers + "?limit=1")
	in.Get(allTimers+"?limit=1&target=t1&cursor="+a.Body["cursor"].(string)).Is(400, "bad-request")
}

// Labels choose timers in lists, counts and jobs: all conditions must hold.
func TestLabels(t *testing.T) {
	in, f := faked(t)
	for i := range 60 {
		labels := fmt.Sprintf("n=%d,even=%t", i, i%2 == 0)
		if i%3 == 0 {
			labels += ",third="
		}
		in.Call("PUT", path(fmt.Sprintf("id-%02d", i)), "", in1h, "1h", toOrders, "orders", "timer-labels", labels).
			Is(201, "scheduled")
	}
	in.put("plain", "").Is(201, "")
	if got := in.Get(path("id-03")).Object("labels"); got["n"] != "3" || got["even"] != "false" || got["third"] != "" ||
		len(got) != 3 {
		t.Errorf("labels %v", got)
	}
	for q, want := range map[string]int{
		"label=even=true": 30, "label=third": 20, "label=even=true&label=third": 10, "label=even=true,third": 10,
		"label=even!=true": 31, "label=third!=": 41, "label=n!=7&label=even=false": 29,
		"label=even!=true&label=even": 30,
		"label=none":                  0, "label=third%3D&prefix=id-0": 4,
	} {
		n := 0
		in.Pages(allTimers+"?order=id&limit=7&"+q, func(page answer) { n += len(page.Items("timers")) })
		count := in.Get(allTimers+"/count?"+q).Is(200, "").Body["count"]
		if n != want || count != float64(want) {
			t.Errorf("%s: %d listed and %v counted, want %d", q, n, count, want)
		}
	}
	for _, q := range []string{"label==a", "label=!a", "label=a,", "label=" + strings.Repeat("a,", 16) + "a"} {
		in.Get(allTimers+"?"+q).Is(400, "bad-request")
		in.Call("POST", allTimers+"/cancel?"+q, "").Is(400, "bad-request")
	}
	a := in.Get(allTimers + "?limit=1&label=third")
	in.Get(allTimers+"?limit=1&cursor="+a.Body["cursor"].(string)).Is(400, "bad-request")
	j := ended(t, in, in.Call("POST", allTimers+"/cancel?label=even=true&label=third", "").Is(202, ""))
	if j["changed"] != 10.0 || len(f.all()) != 51 {
		t.Errorf("%v, %d are left", j, len(f.all()))
	}
	for _, body := range []string{`{"a,b":"1"}`, `{"":"1"}`, `{"a":"1,b=2"}`} {
		in.Call("PUT", path("x"), `{"after":"1h","target":{"topic":"orders"},"labels":`+body+"}", "Content-Type",
			"application/json").Is(400, "bad-labels")
	}
}

// One call counts the timers of all partitions that fire before each of many instants.
func TestCountUntil(t *testing.T) {
	in, f := faked(t)
	at := func(h int) string { return time.Date(2030, 1, 1, h, 0, 0, 0, time.UTC).Format(time.RFC3339) }
	for i := range 12 {
		in.Call("PUT", path(fmt.Sprintf("%c-%d", 'a'+rune(i%2), i)), "", "timer-at", at(i), toOrders, "orders").Is(
			201, "")
	}
	in.Call("POST", path("a-0")+"/pause", "").Is(200, "paused")
	const count = allTimers + "/count?until="
	got := in.Get(count+at(3)+","+at(3)+","+at(7)+",1893542400000").Is(200, "")
	if got.Body["count"] != 11.0 || fmt.Sprint(got.Body["until"]) != "["+
		"map[at:2030-01-01T03:00:00Z count:2 exact:true] map[at:2030-01-01T03:00:00Z count:2 exact:true] "+
		"map[at:2030-01-01T07:00:00Z count:6 exact:true] map[at:2030-01-02T00:00:00Z count:11 exact:true]]" {
		t.Error(got.Text)
	}
	if got := in.Get(count+at(7)+"&prefix=b-").Is(200, ""); got.Body["count"] != 3.0 {
		t.Error(got.Text)
	}
	for _, bad := range []string{at(7) + "," + at(3), "soon", at(1) + ",", strings.Repeat(at(1)+",", 100) + at(1)} {
		in.Get(count+bad).Is(400, "bad-request")
	}
	f.move(timer.TopicPartition{Topic: "timers", Partition: 1}, "")
	got = in.Get(count+at(7)).Is(200, "")
	if got.Body["exact"] != false || !strings.Contains(got.Text, `"missing":[{"partition":1,"reason":"moving"`) {
		t.Error(got.Text)
	}
}

// A list of a state has also the timers that recur, whatever their state, and a count with a limit says that it is not
// exact.
func TestRecurringTimersAndBoundedCounts(t *testing.T) {
	in := alone(t)
	for i := range 12 {
		in.put(fmt.Sprint("once-", i), "").Is(201, "")
	}
	for _, id := range []string{"every", "paused"} {
		in.Call("PUT", path(id), "", "timer-every", "1h", toOrders, "orders").Is(201, "")
	}
	in.Call("POST", path("paused")+"/pause", "").Is(200, "paused")
	const all = allTimers
	if got := in.Get(all+"?state=recurring").Is(200, ""); strings.Count(got.Text, `"id"`) != 2 {
		t.Error(got.Text)
	}
	for query, want := range map[string]string{
		"?state=recurring":       "map[count:2 exact:true]",
		"?prefix=once&limit=100": "map[count:12 exact:true]",
		"?state=paused":          "map[count:1 exact:true]",
	} {
		if got := in.Get(all+"/count"+query).Is(200, ""); fmt.Sprint(got.Body) != want {
			t.Errorf("%s: %s, want %s", query, got.Text, want)
		}
	}
	if got := in.Get(all+"/count?limit=1").Is(200, ""); got.Body["exact"] != false ||
		got.Body["count"].(float64) > partitions {
		t.Error(got.Text)
	}
	in.Get(all+"/count?limit=0").Is(400, "bad-request")
	// A job for those that recur spares the others.
	got := in.Call("POST", all+"/cancel?state=recurring&dry-run=true", "").Is(200, "")
	if !strings.Contains(got.Text, `"count":2`) {
		t.Error(got.Text)
	}
}
