package console

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// due returns when a timer is due, in Unix ms.
func (s *setup) due(id string) float64 {
	s.t.Helper()
	due, ok := s.Get(s.at(id)).Is(http.StatusOK, "").Body["dueMillis"].(float64)
	if !ok {
		s.t.Fatalf("%s has no due time", id)
	}
	return due
}

// With the keyboard alone: from a list with a filter by labels to the choices of a row, and back to the list; the move
// is undone there. On its own page the timer is moved to a typed time.
func TestSnoozeByKeyboardInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.put("mine", "x", "Timer-After", "2h", "Timer-Labels", "team=a,order=17")
	s.put("other", "x", "Timer-After", "1h", "Timer-Labels", "team=b")
	was := s.due("mine")
	b := s.open()
	b.visit(path("/timers", "label", "order"))
	b.says("1 pending", "mine", "team=a")
	b.look(390, "light")
	b.is("a phone has the search folded, and names it",
		`(s => !s.open && s.innerText.trim() === "Filter order")(document.querySelector(".search"))`)
	b.look(1280, "light")
	b.is("a wide screen has all of it", `document.querySelector("#label").checkVisibility()`)
	b.tabTo("table a.snooze")
	b.follow("open the choices", chromedp.KeyEvent("\r"))
	b.says("Snooze: mine", "Later by")
	b.tabTo(`button[value="1h"]`)
	b.follow("an hour later", chromedp.KeyEvent("\r"))
	b.says("mine: ", " → ", "1 pending")
	b.is("the filter is there", `document.querySelector("#label").value === "order" && new URLSearchParams(location.search).get("label") === "order"`)
	if got := s.due("mine"); got != was+3_600_000 {
		t.Errorf("moved by %v ms", got-was)
	}
	b.tabTo(".note button")
	b.follow("undo it", chromedp.KeyEvent("\r"))
	b.says("Moved ", " → ")
	if got := s.due("mine"); got != was {
		t.Errorf("undone, it is due %v ms later", got-was)
	}
	b.tabTo("#at")
	b.press("+", "3", "d")
	b.follow("move it", chromedp.KeyEvent("\r"))
	b.says("in 2 d 23 h", "It was moved: before, it was due at", "moved")
	b.reads(path("/activity", "type", "moved", "label", "team=a"), "mine", "occurrence 1 · due ")
	b.visit(path("/timer", "topic", requests, "id", "mine"))
	b.click("order=17")
	b.says("1 pending", "mine")

	// A timer that has changed since its page was made is left alone.
	b.visit(path("/timer", "topic", requests, "id", "other"))
	s.put("other", "x", "Timer-After", "5h")
	b.click("10 min")
	b.says("Not moved", "it has fired, or was changed, since you looked", "Later by")
	b.Well("412 (Precondition Failed)")
	b.press(kb.Escape)
}

// All that match a filter by labels are moved: asked for, looked over and done by a job, with scripts and without.
func TestBulkMoveInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, script := range []bool{true, false} {
		b := s.open()
		if !script {
			b.withoutScript()
		}
		team := "team-" + strconv.FormatBool(script)
		for i := range 5 {
			s.put(team+strconv.Itoa(i), "x", "Timer-After", strconv.Itoa(2+i)+"h", "Timer-Labels", "team="+team)
		}
		s.put("none-"+team, "x", "Timer-After", "2h")
		was, others := s.due(team+"3"), s.due("none-"+team)
		b.visit("/timers")
		b.fill("#label", "team="+team)
		b.click("Search")
		b.says("5 pending")
		b.click("Move all…")
		b.says("Move timers?", "Labels", "team="+team)
		b.fill("#by", "-90m")
		b.click("Preview")
		b.says("Move 5 timers?", team+"0", " → ")
		b.click("Move 5 timers")
		b.says("Job: move on " + requests)
		job := strings.TrimPrefix(eval[string](b, "location.href"), s.URL)
		b.reads(job, "done", "move took effect")
		if got := s.due(team + "3"); got != was-5_400_000 {
			t.Errorf("moved by %v ms", got-was)
		}
		if got := s.due("none-" + team); got != others {
			t.Errorf("a timer without the label was moved by %v ms", got-others)
		}
	}
}

// A job that moves timers is stopped. Its page says which timers it is about, and leads to the preview of another one
// with the same filter and the same change: that moves exactly the rest.
func TestContinuedMoveInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	const n = 8
	was := make(map[string]float64)
	for i := range n {
		id := "order-" + strconv.Itoa(i)
		s.put(id, "x", "Timer-After", "2h", "Timer-Labels", "team=a,order=17")
		was[id] = s.due(id)
	}
	others := map[string][]string{
		"order-late":   {"Timer-After", "5h", "Timer-Labels", "team=a"},
		"none":         {"Timer-After", "2h", "Timer-Labels", "team=a"},
		"order-b":      {"Timer-After", "2h", "Timer-Labels", "team=b"},
		"order-else":   {"Timer-After", "2h", "Timer-Labels", "team=a", "Timer-Target-Topic", longTarget},
		"order-paused": {"Timer-After", "2h", "Timer-Labels", "team=a"},
	}
	for id, headers := range others {
		s.put(id, "x", headers...)
		was[id] = s.due(id)
	}
	s.Call(http.MethodPost, s.at("order-paused")+"/pause", "").Is(http.StatusOK, "paused")
	before := time.Now().Add(150 * time.Minute).UTC().Format(time.RFC3339)
	job := s.Call(http.MethodPost, path("/v1/topics/"+requests+"/timers/move", "prefix", "order-", "label", "team=a",
		"target", target, "state", "pending", "due-before", before, "by", "1h", "rate", "1"), "").
		Is(http.StatusAccepted, "").Object("job")["id"].(string)
	moved := func() int { return int(s.Get("/v1/jobs/" + job).Body["changed"].(float64)) }
	await.Until(t, patience, "some are moved", func() bool { return moved() > 0 })
	b := s.open()
	b.visit(path("/job", "id", job))
	b.click("Stop")
	b.says("stopped", "Each by", "1h", "ID begins with", "order-", "team=a", "Target topic", "Due before")
	done := moved()
	if done == n {
		t.Fatal("the job was over when it was stopped")
	}
	b.click("Move the others…")
	rest := "Move " + strconv.Itoa(n-done) + " timer"
	if done < n-1 {
		rest += "s"
	}
	b.says(rest+"?", "This continues a job", "team=a", target, "pending", "Due before")
	b.click(rest)
	b.says("Job: move on " + requests)
	b.reads(strings.TrimPrefix(eval[string](b, "location.href"), s.URL), "done", "move took effect")
	for id, due := range was {
		want := due
		if others[id] == nil {
			want += 3_600_000
		}
		if got := s.due(id); got != want {
			t.Errorf("%s is due %v ms later", id, got-due)
		}
	}
}

// Ticked timers are moved after a preview, each from its own due time; one that was scheduled again meanwhile is left
// alone and named. On a phone, by script and without.
func TestMoveOfTickedInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, script := range []bool{true, false} {
		b := s.open()
		b.phone()
		if !script {
			b.withoutScript()
		}
		id := "ticked-" + strconv.FormatBool(script) + "-"
		was := make([]float64, 4)
		for i := range was {
			s.put(id+strconv.Itoa(i), "x", "Timer-After", strconv.Itoa(2+i)+"h")
			was[i] = s.due(id + strconv.Itoa(i))
		}
		b.visit(path("/timers", "q", id))
		for i := range 3 {
			b.do("tick one",
				chromedp.Click(chromedp.CSS("tbody tr:nth-of-type("+strconv.Itoa(i+1)+") [type=checkbox]")))
		}
		b.click("Move")
		b.says("Move 3 timers?", id+"0", id+"2", "Each by")
		b.fill("#by", "90m")
		b.click("Preview")
		b.says("Move 3 timers?", " → ")
		b.fits("preview")
		b.hits("preview")
		s.put(id+"1", "x", "Timer-After", "9h")
		was[1] = s.due(id + "1")
		b.click("Move 3 timers")
		b.says("1 timer was left alone", "Moved.", "Not moved", "it has fired, or was changed, since you looked")
		for i, by := range []float64{5_400_000, 0, 5_400_000, 0} {
			if got := s.due(id + strconv.Itoa(i)); got != was[i]+by {
				t.Errorf("%s%d was moved by %v ms, want %v", id, i, got-was[i], by)
			}
		}
		b.click("Back to the list")
		b.says("4 pending")
	}
}
