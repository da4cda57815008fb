package console

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// hides has the page believe that its tab is hidden, or shown.
func (t *tab) hides(hidden bool) {
	t.t.Helper()
	eval[any](t, `Object.defineProperty(document, "hidden", {value: `+strconv.FormatBool(hidden)+`, configurable: true});
		document.dispatchEvent(new Event("visibilitychange")); null`)
}

// A reader of the dead letters is in the middle of a page, has unfolded a letter, selected a text and typed into the
// search, when others come: nothing moves, and they are offered. All that are marked as reviewed are those that were
// shown.
func TestPlaceOfAReader(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i := range 30 {
		s.refuse("old-"+strconv.Itoa(100+i), "x")
	}
	b := s.open()
	b.visit("/dead-letters")
	b.is("it says that it is live", `document.querySelector("#news span").innerText.startsWith("Live")`)
	b.fill("#prefix", "typed")
	eval[any](b, `{ const row = document.querySelectorAll("[data-list] > tr")[15], letter = row.querySelector("details");
		letter.open = true;
		letter.querySelector("summary").focus();
		letter.scrollIntoView({block: "center"});
		getSelection().selectAllChildren(letter.querySelector("p.quiet")); } null`)
	const place = `(() => { const e = document.activeElement; return [Math.round(e.getBoundingClientRect().top),
		e.closest("tr")?.dataset.key, e.parentElement.open, getSelection().toString(),
		document.getElementById("prefix").value, document.querySelectorAll("[data-list] > tr").length].join() })()`
	was := eval[string](b, place)
	for i := range 3 {
		s.refuse("new-"+strconv.Itoa(i), "x")
	}
	b.within(updated, "they are offered", `document.querySelector("#news span").innerText === "3 new"`)
	if is := eval[string](b, place); is != was {
		t.Errorf("the reader was at %s, and is at %s", was, is)
	}
	b.is("the offer is in sight", `(() => { const box = document.getElementById("news").getBoundingClientRect();
		return box.top >= 0 && box.bottom < innerHeight })()`)
	b.click("Mark all as reviewed")
	b.says("Marked as reviewed.", "new-0", "new-1", "new-2")
	b.is("those that were not shown are new", `document.querySelectorAll("[data-list] > tr").length === 3`)

	// Others review them elsewhere: the rows stay until the reader asks.
	list := s.Get("/v1/topics/"+requests+"/dead-letters?reviewed=false").Is(http.StatusOK, "")
	shown := list.Body["position"].(string)
	s.Call(http.MethodPost, "/v1/topics/"+requests+"/dead-letters/reviewed?position="+shown, "").Is(http.StatusOK, "")
	b.within(updated, "they are gone", `document.querySelectorAll("tr.gone").length === 3 &&
		document.querySelector("#news span").innerText === "3 gone"`)
	b.do("show the newer list", chromedp.Click(chromedp.CSS("#news button")))
	b.says("There are no new ones")
	b.is("the focus is in the page", `document.activeElement !== document.body`)
}

// A hidden page asks for nothing. When it is shown again it is brought up to date, and so is one whose service was
// away. A page that gets one slow answer does not wait longer for the next one.
func TestHiddenPages(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.put("first", "x", "Timer-After", "1h")
	b := s.open()
	b.visit("/timers")
	eval[any](b, `{ const real = fetch; window.asks = 0; window.late = 4000; window.fetch = async (...to) => {
		asks++;
		await new Promise((done) => setTimeout(done, late)); // ten times that is more than patience
		late = 0;
		return real(...to);
	} } null`)
	b.within(patience, "it asks again after a slow answer", `asks > 1`)
	b.hides(true)
	eval[any](b, `window.asks = 0; null`)
	s.put("second", "x", "Timer-After", "2h")
	eval[any](b, `setTimeout(() => { window.rested = true; }, 7000); null`) // longer than the period of updates
	b.within(patience, "it had the time to ask", `window.rested === true`)
	if n := eval[int](b, `asks`); n != 0 {
		t.Errorf("a hidden page has asked %d times", n)
	}
	b.hides(false)
	b.is("it is up to date", `document.querySelector("#news span").innerText === "1 new"`)
	eval[any](b, noAnswers)
	b.within(20*time.Second, "it says that it is not live",
		`document.querySelector("#news span").innerText === "This list is not live."`)

	// The stream of activity is closed meanwhile, and goes on where it was.
	b.visit("/activity")
	b.says("What happens is added")
	b.hides(true)
	s.put("third", "x", "Timer-After", "3h")
	b.hides(false)
	b.says("third")
	eval[any](b, `document.querySelector("#told a").focus(); null`)
	s.put("fourth", "x", "Timer-After", "4h")
	b.says("1 new")
	b.is("it waits while one reads", `!document.getElementById("told").innerText.includes("fourth")`)
	b.click("Show")
	b.says("fourth")
	if n := eval[int](b, `[...document.querySelectorAll("#told a")].filter(a => a.innerText === "third").length`); n != 1 {
		t.Errorf("an event is shown %d times", n)
	}
}

// The list of jobs, and the page of one, go on by themselves.
func TestJobsInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i := range 30 {
		s.put("order-"+strconv.Itoa(i), "x", "Timer-After", "1h")
	}
	b := s.open()
	b.visit("/jobs")
	b.says("There is none.")
	at := "/v1/topics/" + requests + "/timers/pause?all=true&rate=5"
	job := s.Call(http.MethodPost, at, "").Is(http.StatusAccepted, "").Object("job")["id"].(string)
	b.says("pause on "+requests, "running")
	b.visit(path("/job", "id", job))
	b.says("Stop")
	eval[any](b, `document.querySelector("button.danger").focus(); null`)
	b.within(updated, "it ends", `document.querySelector("main").innerText.includes("Ended")`)
	b.is("the button has gone, and the focus has not", `!document.querySelector("button.danger") &&
		document.activeElement.id === "live-job"`)
	b.click("All jobs")
	b.says("done")
}
