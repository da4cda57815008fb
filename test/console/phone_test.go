package console

import (
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// phone is a window of 390 by 844 pixels.
func (t *tab) phone() {
	t.t.Helper()
	t.do("be a phone", command(emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 844, DeviceScaleFactor: 1}))
}

// On a phone the menu is folded and names the page, dead letters stay in sight, and a list begins in the upper half.
// The menu works by keyboard, and without scripts.
func TestPhoneInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.seed()
	source := axe(t)
	b := s.open()
	b.phone()
	b.visit("/timers")
	const menu = `document.querySelector(".menu")`
	b.is("the menu is folded and names the page",
		`!`+menu+`.open && /^Menu Timers Dead letters: 2 /.test(`+menu+`.querySelector("summary").textContent)`)
	b.is("eight timers and more are in the first screen", `[...document.querySelectorAll(".timers tbody tr")].filter(
		r => r.getBoundingClientRect().bottom <= innerHeight).length >= 8`)
	b.is("a timer is all there", `["order-10", "order=", "team=", "orders", "Snooze"].every(
		text => document.querySelector(".timers tbody tr").innerText.includes(text))`)
	b.tabTo(".menu > summary")
	b.press("\r")
	b.is("it unfolds", `document.querySelector("#find").checkVisibility()`)
	b.fits("menu")
	b.hits("menu")
	eval[any](b, source+"\n;null")
	if found := promise(b, runAxe); found != "" {
		t.Error(found)
	}
	b.press(kb.Escape)
	b.is("Escape folds it, and returns the focus", `!`+menu+`.open && document.activeElement.matches(".menu > summary")`)
	b.shortcut("/")
	b.is("/ unfolds it", menu+`.open && document.activeElement.id === "find"`)
	b.tabTo(".zone summary")
	b.do("unfold what is for all", chromedp.Click(chromedp.CSS(".head .fold > summary")))
	b.click("Move all…")
	b.says("Move timers?")
	b.visit("/")
	b.is("bad news come first", `document.querySelector(".note.bad").getBoundingClientRect().top < 60`)

	b.withoutScript()
	b.visit("/timers")
	b.is("it is folded without scripts", `!document.querySelector("nav a[href='/jobs']").checkVisibility()`)
	b.do("unfold it", chromedp.Click(chromedp.CSS(".menu > summary")))
	b.follow("go to jobs", chromedp.Click(chromedp.CSS(`nav a[href="/jobs"]`)))
	b.says("There is none.")
	b.is("the menu names it", menu+`.innerText.startsWith("Menu Jobs")`)
	b.look(1280, "light")
	b.is("a wide window has no menu to unfold", `!`+menu+`.open && !document.querySelector(".menu > summary").checkVisibility() &&
		document.querySelector("nav a[href='/jobs']").checkVisibility()`)
}
