package console

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// reachable are what the Tab key stops at on a page, in the order of the document.
const reachable = `[...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")].filter(e =>
	e.tabIndex >= 0 && !e.disabled && e.type !== "hidden" && e.checkVisibility({visibilityProperty: true}))`

// Every page, wide and on a phone, with the Tab key alone: it stops at all that one can act on, in the order of the
// document, where one sees that it does, and then leaves the page. On a phone the page does not scroll sideways, and
// what a finger is to hit is large enough.
func TestTabThroughPages(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.seed()
	b := s.open()
	for _, width := range []int64{1280, 390} {
		b.look(width, "light")
		for _, p := range pages() {
			b.visit(p.at)
			name := fmt.Sprintf("%s, %d pixels", p.name, width)
			b.tabThrough(name)
			if width == 390 {
				b.fits(name)
				b.hits(name)
			}
		}
	}
}

// tabThrough presses Tab until the focus has left the page.
func (t *tab) tabThrough(name string) {
	t.t.Helper()
	// Nothing changes meanwhile, so that there is one order.
	eval[any](t, `window.fetch = () => new Promise(() => {}); window.stops = `+reachable+`;
		window.passed = []; window.unseen = [];
		window.stops.splice(0, stops.indexOf(document.activeElement) + 1); // autofocus
		document.addEventListener("focusin", (event) => {
			const e = event.target, style = getComputedStyle(e), box = e.getBoundingClientRect();
			passed.push(e);
			const within = box.width > 0 && box.right > 0 && box.left < innerWidth &&
				box.bottom > 0 && box.top < innerHeight;
			if (style.outlineStyle === "none" || !within && !e.closest(".skip"))
				unseen.push(e.outerHTML.slice(0, 120));
		}); null`)
	limit := eval[int](t, `stops.length`) + 3
	for range limit {
		t.press(kb.Tab)
		if eval[bool](t, `document.activeElement === document.body`) {
			break
		}
	}
	found := eval[string](t, `(() => {
		const bad = unseen.map(e => "the focus is not seen: " + e), rest = stops.filter(e => !passed.includes(e));
		if (rest.length) bad.push("Tab does not stop at " + rest.map(e => e.outerHTML.slice(0, 120)).join(", "));
		const order = passed.map(e => stops.indexOf(e)).filter(i => i >= 0);
		if (order.some((n, i) => i > 0 && n < order[i - 1])) bad.push("the order is " + order.join());
		return bad.slice(0, 5).join("\n");
	})()`)
	if found != "" {
		t.t.Errorf("%s: %s", name, found)
	}
}

// hits reports what is too small for a finger: buttons and fields of less than 44 pixels, and links of less than 24
// that do not stand in a sentence (WCAG 2.5.8).
func (t *tab) hits(name string) {
	t.t.Helper()
	found := eval[string](t, `(() => {
		const bad = [];
		for (const e of `+reachable+`) {
			const box = e.getBoundingClientRect(), control = /^(BUTTON|SELECT|TEXTAREA)$/.test(e.nodeName) ||
				e.matches("input:not([type=checkbox]), .button, nav a");
			const link = e.nodeName === "A" && !e.closest("p, li, dd, small, .skip, span");
			const least = control && !e.matches(".own") ? 44 : control || link || e.matches("[type=checkbox]") ? 24 : 0;
			if (box.height < least - .5 || box.width < Math.min(least, 24) - .5)
				bad.push(Math.round(box.width) + "x" + Math.round(box.height) + " " + e.outerHTML.slice(0, 120));
		}
		return bad.slice(0, 8).join("\n");
	})()`)
	if found != "" {
		t.t.Errorf("%s: too small for a finger:\n%s", name, found)
	}
}
