package console

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
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
