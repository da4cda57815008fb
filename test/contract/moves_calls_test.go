package contract

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/caller"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

const asJSON = "application/json"

// moves is an instance with an API, and its timers.
type moves struct {
	*setup
	*caller.Caller
}

// newMoves starts the instance. By callers' names, their grants count below shop-; without any, everyone may do all.
func newMoves(t *testing.T, callers map[string]access.Role) (m *moves, tokens map[string]string) {
	t.Helper()
	m = &moves{setup: newSetup(t, kafkatest.Shared(t), 4, 2)}
	cfg := m.policy(func(p *config.Policy) { p.Events = true })
	cfg.API = "127.0.0.1:0"
	if len(callers) > 0 {
		grants := make(map[string]access.Grant)
		for name, role := range callers {
			grants[name] = access.Grant{Role: role, Topic: m.Requests, IDPrefix: "shop-"}
		}
		tokens, cfg.APIUsers = rig.Users(t, grants)
	}
	m.Caller = m.serve(cfg, 4).API()
	return m, tokens
}

// path is that of a timer, or of what follows its ID.
func (m *moves) path(id string, more ...string) string {
	return "/v1/topics/" + m.Requests + "/timers/" + url.PathEscape(id) + strings.Join(more, "")
}

// put schedules a timer by further fields of its JSON.
func (m *moves) put(id, fields string) {
	m.Helper()
	m.Call("PUT", m.path(id), `{"value":"v","target":{"topic":"`+m.Target+`"},`+fields+`}`, "Content-Type", asJSON).
		Is(201, "scheduled")
}

func (m *moves) patch(id, body string, headers ...string) caller.Answer {
	m.Helper()
	return m.Call("PATCH", m.path(id), body, append(headers, "Content-Type", asJSON)...)
}

// due is when a pending timer is due.
func (m *moves) due(id string) time.Time {
	m.Helper()
	return dueOf(m, m.Get(m.path(id)).Is(200, "").Body["due"])
}

func dueOf(t testing.TB, text any) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(text))
	if err != nil {
		t.Fatalf("due: %v", err)
	}
	return at
}

// events waits until n events of a timer are known, and returns their types.
func (m *moves) events(id string, n int) (types []string) {
	m.Helper()
	m.until(fmt.Sprint(n, " events of ", id), func() bool {
		types = nil
		for _, e := range m.Get(m.path(id, "/events")).Is(200, "").Items("events") {
			event, _ := e["event"].(map[string]any)
			types = append(types, fmt.Sprint(event["type"]))
		}
		return len(types) >= n
	})
	return types
}

// TestMoveByPatch: every answer that a PATCH may get.
func TestMoveByPatch(t *testing.T) {
	t.Parallel()
	m, _ := newMoves(t, nil)
	at := time.Now().Add(3 * time.Hour).Truncate(time.Second)
	m.put("a", `"after":"1h","labels":{"team":"a"}`)
	first := m.Get(m.path("a")).Is(200, "").Header.Get("ETag")

	moved := m.patch("a", fmt.Sprintf(`{"at":"%s"}`, at.UTC().Format(time.RFC3339))).Is(200, "moved").
		Has(`"team":"a"`)
	if got := m.due("a"); !got.Equal(at) || moved.Header.Get("ETag") == first {
		t.Errorf("moved to %s, ETag %s, want %s and another than %s", got, moved.Header.Get("ETag"), at, first)
	}
	before := time.Now()
	m.patch("a", `{"after":"2h"}`, "If-Match", moved.Header.Get("ETag")).Is(200, "moved")
	if got := m.due("a"); got.Before(before.Add(2*time.Hour-onTime)) || got.After(time.Now().Add(2*time.Hour+onTime)) {
		t.Errorf("moved to %s, want in two hours", got)
	}
	for _, tag := range []string{first, moved.Header.Get("ETag")} {
		m.patch("a", `{"after":"1h"}`, "If-Match", tag).Is(412, "condition-not-met").Has(`"pending"`)
	}
	m.patch("a", `{"after":"1h"}`, "If-Match", "*").Is(200, "moved")
	m.patch("a", fmt.Sprintf(`{"at":"%d"}`, at.UnixMilli())).Is(200, "moved")
	m.patch("none", `{"after":"1h"}`).Is(404, "not-found")
	m.patch("none", `{"after":"1h"}`, "If-Match", "*").Is(412, "condition-not-met")
	m.Call("PATCH", "/v1/topics/other/timers/a", `{"after":"1h"}`, "Content-Type", asJSON).Is(404, "no-such-topic")
	for body, words := range map[string]string{
		``: "", `null`: "object", `[]`: "after", `"1h"`: "after", `{}`: "either after",
		`{"after":"","at":""}`:                  "either after",
		`{"after":"1h","at":"1800000000000"}`:   "either after",
		`{"after":"1h","value":"w"}`:            "no other field",
		`{"after":"1h","target":{"topic":"x"}}`: "no other field",
		`{"after":"1h","labels":{"team":"b"}}`:  "no other field",
		`{"after":"1h","after":"2h"}`:           "",
		`{"after":"1h"}{}`:                      "",
		`{"after":3600}`:                        "",
	} {
		m.patch("a", body).Is(400, "bad-request").Has(words)
	}
	m.patch("a", `{"after":"1 hour"}`).Is(400, "bad-duration")
	m.patch("a", `{"at":"tomorrow"}`).Is(400, "bad-time")
	m.patch("a", `{"at":"1800000000"}`).Is(400, "seconds-not-milliseconds")
	m.Call("PATCH", m.path("a"), `{"after":"1h"}`, "Content-Type", "text/plain").Is(415, "bad-request")
	m.patch("a", `{"after":"1h"}`, "timer-at", "1800000000000").Is(400, "")
	if got := m.due("a"); !got.Equal(at) {
		t.Errorf("refused moves have moved it to %s", got)
	}
	m.Call("PATCH", m.path("a", "?wait=written"), `{"after":"4h"}`, "Content-Type", asJSON).Is(202, "written")
	m.until("it is moved", func() bool { return m.due("a").After(at) })

	m.put("late", `"after":"1h","maxLate":"5s"`)
	m.patch("late", fmt.Sprintf(`{"at":"%d"}`, time.Now().Add(-time.Minute).UnixMilli())).Is(200, "moved")
	if got := m.events("late", 3); !slices.Equal(slices.Sorted(slices.Values(got)),
		[]string{"expired", "moved", "scheduled"}) {
		t.Errorf("late has the events %q", got)
	}
	m.Get(m.path("late")).Is(404, "not-found")
	m.patch("late", `{"after":"1h"}`).Is(404, "not-found")

	m.put("now", `"after":"1h","remember":"1h"`)
	m.patch("now", `{"after":"0s"}`).Is(200, "moved")
	if rs := rig.Emissions(t, m.Out.WaitFor(1, patience)); len(rs["now"]) != 1 {
		t.Errorf("%v have fired, want now alone", rs)
	}
	m.until("now has fired", func() bool { // its ID stays taken, and nothing is pending
		return m.Get(m.path("now")).Status == 404
	})
	m.patch("now", `{"after":"1h"}`).Is(404, "not-found")
	m.dead.Quiet(0)
}

// A caller moves what it may schedule, one by one, and only an administrator moves many.
func TestMovesNeedRights(t *testing.T) {
	t.Parallel()
	m, tokens := newMoves(t, map[string]access.Role{"reader": access.Read, "shop": access.Write, "ops": access.Admin})
	m.Send(m.Timer("shop-1", time.Now().Add(time.Hour)), m.Timer("other", time.Now().Add(time.Hour)))
	m.in.Balanced(2)
	as := func(name, method, path, body string) caller.Answer {
		return m.Call(method, path, body, "Content-Type", asJSON, "Authorization", "Bearer "+tokens[name])
	}
	const in = `{"after":"2h"}`
	as("reader", "PATCH", m.path("shop-1"), in).Is(403, "forbidden")
	as("shop", "PATCH", m.path("other"), in).Is(403, "forbidden")
	as("shop", "PATCH", m.path("other"), `nonsense`).Is(403, "forbidden")
	as("shop", "PATCH", m.path("shop-1"), in).Is(200, "moved")
	many := m.path("move", "?by=1h&prefix=")
	as("reader", "POST", many+"shop-", "").Is(403, "forbidden")
	as("reader", "POST", many+"shop-&dry-run=true", "").Is(200, "").Has(`"count":1`)
	as("shop", "POST", many+"shop-", "").Is(403, "forbidden")
	as("ops", "POST", many+"o", "").Is(403, "forbidden")
	as("ops", "POST", many+"shop-", "").Is(202, "")
}

// dues are the due times and states of all timers, by ID.
func (m *moves) dues() (due map[string]time.Time, state map[string]string) {
	m.Helper()
	due, state = make(map[string]time.Time), make(map[string]string)
	m.Pages("/v1/topics/"+m.Requests+"/timers?order=id&limit=7", func(page caller.Answer) {
		for _, item := range page.Items("timers") {
			id := fmt.Sprint(item["id"])
			due[id], state[id] = dueOf(m, item["due"]), fmt.Sprint(item["state"])
		}
	})
	return due, state
}

// start starts a job that moves timers.
func (m *moves) start(query string) caller.Answer {
	m.Helper()
	return m.Call("POST", m.path("move", "?", query), "").Is(202, "")
}

// ended waits for the end of a job.
func (m *moves) ended(started caller.Answer) (job map[string]any) {
	m.Helper()
	m.until("the job ends", func() bool {
		job = m.Get(started.Header.Get("Location")).Is(200, "").Body
		return job["state"] != "running"
	})
	return job
}

// TestMoveMany: jobs that move timers by so much each or to one time, whichever filter chooses them, those that recur
// and paused ones among them. One that is stopped is continued by another one.
func TestMoveMany(t *testing.T) {
	t.Parallel()
	m, _ := newMoves(t, nil)
	const n = 12 // of each kind
	first := time.Now().Add(10 * time.Hour).Truncate(time.Second)
	at := func(i int) string { return fmt.Sprint(first.Add(time.Duration(i) * time.Minute).UnixMilli()) }
	for i := range n {
		id := func(kind string) string { return fmt.Sprintf("%s-%02d", kind, i) }
		to := []string{"timer-target-topic", m.Target}
		m.Send(m.Request(id("plain"), "v", append(to, "timer-at", at(i), "timer-labels", fmt.Sprint("team=", i%2))...),
			m.Request(id("every"), "v", append(to, "timer-at", at(i), "timer-every", "1h")...),
			m.Request(id("paused"), "v", append(to, "timer-at", at(i))...),
			m.Request(id("paused"), "", "timer-pause", "true"))
	}
	m.in.Balanced(3 * n)
	want, states := m.dues()
	for _, wrong := range []string{"", "by=1h&to=" + at(0), "by=0s", "by=+", "by=1h&rate=0", "by=1h&at=" + at(0)} {
		m.Call("POST", m.path("move", "?all=true&", wrong), "").Is(400, "bad-request")
	}
	m.Call("POST", m.path("move", "?by=1h"), "").Is(400, "bad-request").Has("all=true")
	m.Call("POST", m.path("move", "?all=true&to=9999-01-01T00:00:00Z"), "").Is(400, "beyond-horizon")

	inDue := "&due-after=" + at(2) + "&due-before=" + at(4)
	for _, job := range []struct {
		filter string
		chosen func(id string) bool
	}{
		{"prefix=every-", func(id string) bool { return strings.HasPrefix(id, "every-") }},
		{"label=team%3D1", func(id string) bool {
			return strings.HasPrefix(id, "plain-") && id[len(id)-1]%2 == 1
		}},
		{"state=paused", func(id string) bool { return strings.HasPrefix(id, "paused-") }},
		{"target=" + m.Target + "&prefix=plain-00", func(id string) bool { return id == "plain-00" }},
		{"target=elsewhere", func(string) bool { return false }},
		{"prefix=plain-0" + inDue, func(id string) bool {
			return strings.HasPrefix(id, "plain-0") && !want[id].Before(first.Add(2*time.Minute)) &&
				want[id].Before(first.Add(4*time.Minute))
		}},
		{"all=true", func(string) bool { return true }},
	} {
		for _, by := range []time.Duration{time.Hour, -90 * time.Minute} {
			chosen := 0
			for id := range want {
				if job.chosen(id) {
					chosen++
				}
			}
			m.Call("POST", m.path("move", "?dry-run=true&by=1h&", job.filter), "").Is(200, "").
				Has(fmt.Sprintf(`"count":%d`, chosen))
			for id := range want {
				if job.chosen(id) {
					want[id] = want[id].Add(by)
				}
			}
			got := m.ended(m.start("rate=2000&" + job.filter + "&by=" + by.String()))
			if got["state"] != "done" || got["changed"] != float64(chosen) || got["spared"] != 0.0 ||
				got["failed"] != 0.0 {
				t.Errorf("%s by %s: %v, want %d changed", job.filter, by, got, chosen)
			}
			m.are(want, states, job.filter)
		}
	}

	// The query of a job that is stopped, with its position, moves exactly the rest. Those that the first job has moved
	// leave the range of due times.
	odd := "label=team%3D1&due-before=" + fmt.Sprint(first.Add(30*time.Minute).UnixMilli())
	for _, filter := range []string{odd + "&rate=1", "all=true&rate=10"} {
		chosen := func(id string) bool {
			return filter[:3] == "all" || strings.HasPrefix(id, "plain-") && id[len(id)-1]%2 == 1
		}
		all := 0.0
		for id := range want {
			if chosen(id) {
				want[id] = want[id].Add(time.Hour)
				all++
			}
		}
		started := m.start("by=1h&" + filter)
		m.until("some are moved", func() bool {
			return m.Get(started.Header.Get("Location")).Body["changed"] != 0.0
		})
		m.Call("DELETE", started.Header.Get("Location"), "").Is(200, "")
		stopped := m.ended(started)
		done, _ := stopped["changed"].(float64)
		if done == all {
			t.Error("the job was over when it was stopped: nothing is shown")
		}
		rest := fmt.Sprint(stopped["query"], "&unchanged-since=", stopped["position"])
		got := m.ended(m.start(rest))
		if stopped["state"] != "stopped" || got["changed"] != all-done || got["failed"] != 0.0 {
			t.Errorf("stopped: %v, continued: %v", stopped, got)
		}
		m.are(want, states, "continued with "+rest)
		if got := m.ended(m.start(rest)); got["changed"] != 0.0 || got["query"] != stopped["query"] {
			t.Errorf("continued once more: %v", got)
		}
	}

	for id := range want {
		want[id] = first.Add(24 * time.Hour)
	}
	m.ended(m.start("all=true&to=" + fmt.Sprint(first.Add(24*time.Hour).UnixMilli())))
	m.are(want, states, "to one time")
	m.ended(m.start("prefix=plain-&by=-100h"))
	rig.Once(t, m.Out.WaitFor(n, patience)) // at once
	m.dead.Quiet(0)
}

// are checks what all timers are due, and their states.
func (m *moves) are(want map[string]time.Time, states map[string]string, after string) {
	m.Helper()
	due, state := m.dues()
	for id := range want {
		if !due[id].Equal(want[id]) || state[id] != states[id] {
			m.Errorf("%s: %s is %s, due %s, want %s, %s", after, id, state[id], due[id], states[id], want[id])
		}
	}
}
