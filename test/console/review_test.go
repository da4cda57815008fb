package console

import (
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Dead letters are a line each. What was reviewed up to is not new: not on the page, not on the overview, and not for a
// resend of all; it can be undone, and shown. With scripts and without.
func TestReviewInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i := range 5 {
		s.refuse("refused-"+strconv.Itoa(i), "x")
	}
	const lines = `[...document.querySelectorAll(".letters > tbody > tr")].map(r => r.cells[1].innerText).sort().join(" ")`
	for _, script := range []bool{true, false} {
		b := s.open()
		if !script {
			b.withoutScript()
		}
		b.reads("/", "Dead letters")
		b.reads("/dead-letters", "refused-0", "refused-4")
		b.page("dead letters", "/dead-letters")
		if script {
			b.look(360, "light")
			b.visit("/dead-letters")
			b.is("the letters come first", `!document.querySelector(".reasons details").open`)
			b.look(1280, "light")
		}
		b.is("each is a line",
			`[...document.querySelectorAll(".letters > tbody > tr")].every(r => r.offsetHeight < 45)`)
		b.shot("review")
		b.do("unfold refused-2", chromedp.Click(chromedp.Search(`//tr[contains(.,"refused-2")]//summary`)))
		b.follow("review up to refused-2",
			chromedp.Click(chromedp.Search(`//tr[contains(.,"refused-2")]//button[.="Reviewed up to here"]`)))
		b.says("Marked as reviewed.")
		b.is("two are new", lines+` === "refused-3 refused-4"`)
		b.reads("/", "New dead letters: 2.")
		b.is("the nav has the count", `/Dead letters\s*2/.test(document.querySelector("nav").innerText)`)
		b.shot("review-overview")

		b.visit("/dead-letters")
		b.click("Resend all new ones…")
		b.says("2 dead letters")
		b.visit("/dead-letters?seen=all")
		b.is("all are there",
			`document.querySelectorAll(".letters > tbody > tr").length === 5 && document.querySelectorAll(".letters > tbody > tr.seen").length === 3`)
		b.visit("/dead-letters")
		b.click("Mark all as reviewed")
		b.says("Marked as reviewed.", "There are no new ones on "+requests)
		b.reads("/", "there are no new dead letters")
		if script { // by keyboard alone
			b.visit("/dead-letters?seen=all&done=reviewed&undo=0%3A0.0")
			b.tabTo(`button[value=undo]`)
			b.follow("undo", chromedp.KeyEvent(kb.Enter))
			b.is("all are new", `document.querySelectorAll(".letters > tbody > tr.seen").length === 0`)
		}
	}
}
