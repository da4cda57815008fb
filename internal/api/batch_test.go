package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// The same POST with the same key creates the timers only once.
func TestBatch(t *testing.T) {
	in, f := faked(t)
	body := `{"timers":[{"value":"1","after":"1h","target":{"topic":"orders"}},{"id":"mine","after":"1h","target":{"topic":"orders"}},{"after":"never","target":{"topic":"orders"}}]}`
	post := func(key string) (statuses []int, ids []string) {
		a := in.post(body, "Idempotency-Key", key).Is(200, "")
		for _, one := range a.Items("results") {
			statuses = append(statuses, int(one["status"].(float64)))
			ids = append(ids, one["id"].(string))
		}
		return statuses, ids
	}
	first, ids := post("k1")
	again, same := post("k1")
	other, others := post("k2")
	if fmt.Sprint(first, again, other) != "[201 201 400] [200 200 400] [201 200 400]" || ids[0] != same[0] ||
		ids[0] == others[0] {
		t.Error(first, again, other, ids, same, others)
	}
	if n := len(f.all()); n != 3 {
		t.Errorf("%d timers", n)
	}
	in.post(`{"timers":[]}`).Is(400, "bad-request")
}

// A call that is repeated with its key has the same result even after its timers have fired, as long
// as they are remembered, and on whichever instance. A key belongs to one body.
func TestIdempotency(t *testing.T) {
	f := newFake("timers", partitions)
	a, b := start(t, f, "p0", true), start(t, f, "p1", true)
	for p := range int32(partitions) {
		f.move(timer.TopicPartition{Topic: "timers", Partition: p}, []string{"p0", "p1"}[p%2])
	}
	one := func(value string, n int) string {
		return `{"timers":[` + strings.Repeat(`{"value":"`+value+`","after":"1h","target":{"topic":"orders"}},`, n-1) +
			`{"value":"` + value + `","after":"1h","target":{"topic":"orders"}}]}`
	}
	post := func(in *instance, body string, headers ...string) answer {
		return in.Call("POST", allTimers, body,
			append([]string{"Content-Type", "application/json", "Idempotency-Key", "k"}, headers...)...)
	}
	if got := post(a, one("x", 8)).Is(200, ""); strings.Count(got.Text, `"status":201`) != 8 {
		t.Fatal(got.Text)
	}
	for _, when := range []string{"pending", "remembered"} {
		for _, in := range []*instance{a, b} {
			same := post(in, "\n"+strings.ReplaceAll(one("x", 8), `,"target"`, ` , "target"`)).Is(200, "")
			if strings.Count(same.Text, `"outcome":"unchanged"`) != 8 ||
				strings.Count(same.Text, `"state":"`+when+`"`) != 8 {
				t.Errorf("%s, made again: %s", when, same.Text)
			}
			for _, body := range []string{one("y", 8), one("x", 7), one("x", 9)} {
				if p := post(in, body).Is(422, "idempotency-key-reused"); p.Header.Get(
					"Content-Type") != "application/problem+json" {
					t.Errorf("%v", p.Header)
				}
			}
		}
		if when == "pending" {
			id := post(a, one("x", 8)).Items("results")[0]["id"].(string)
			a.Get(path(id)).Is(200, "")
			f.fire()
			a.Get(path(id)).Is(404, "not-found")
			a.Call("DELETE", path("none"), "").Is(404, "not-found")
			a.put(id, "", "If-Match", "*").Is(412, "condition-not-met")
		}
	}
	f.fire() // their memory has ended
	if n := len(f.all()); n != 0 {
		t.Errorf("%d are left", n)
	}
	if got := post(a, one("y", 8), "Idempotency-Window", "0").Is(200, ""); strings.Count(
		got.Text, `"status":201`) != 8 {
		t.Error(got.Text)
	}
	post(a, one("x", 8)).Is(422, "idempotency-key-reused") // while the timer is pending it has the key
	f.fire()
	if n := len(f.all()); n != 0 {
		t.Errorf("%d are remembered for no time", n)
	}
	post(a, one("y", 8), "Idempotency-Window", "604801").Is(400, "bad-request")
	if got := post(a, `{"timers":[{"after":"1h","remember":"1h","target":{"topic":"orders"}}]}`).Is(200, ""); !strings.Contains(got.Text, `"status":400`) {
		t.Error(got.Text)
	}
	// A timer with an ID is remembered if its request asks for that.
	a.put("own", "", "timer-remember", "1h").Is(201, "scheduled")
	f.fire()
	gone := a.put("own", "", "If-None-Match", "*").Is(412, "condition-not-met")
	if gone.Object("pending")["state"] != "remembered" {
		t.Error(gone.Text)
	}
	a.Call("DELETE", path("own"), "").Is(404, "not-found") // and it is forgotten
	a.put("own", "", "If-None-Match", "*").Is(201, "scheduled")
}

// If the API makes the ID of a timer, a condition cannot say that the ID is already there.
func TestNewIDUnderACondition(t *testing.T) {
	in := alone(t)
	a := in.post(`{"timers":[{"after":"1h","if":"present","target":{"topic":"orders"}}]}`).Is(200, "")
	if !strings.Contains(a.Text, `"status":412`) {
		t.Error(a.Text)
	}
}
