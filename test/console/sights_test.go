package console

import (
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// longTarget has a name as long as Kafka takes.
var longTarget = strings.Repeat("a.long_target-", 17) + "and-so-on.x"

// fits checks that nothing of a page is beyond an edge of the window, or cut without a title that has all of it.
func (t *tab) fits(name string) {
	t.t.Helper()
	found := eval[string](t, `(() => {
		const width = document.documentElement.clientWidth, bad = [];
		if (document.documentElement.scrollWidth > width) bad.push("the page scrolls sideways");
		for (const e of document.querySelectorAll("body *")) {
			const style = getComputedStyle(e), box = e.getBoundingClientRect();
			if (!box.width || !box.height || !e.checkVisibility() || e.closest(".unseen, .skip, svg")) continue;
			if (getComputedStyle(e.closest("thead, h1") || e).position === "absolute") continue; // for screen readers
			const cut = /hidden|clip/.test(style.overflowX) && !/^(INPUT|TEXTAREA|SELECT)$/.test(e.tagName);
			if (cut && (e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight + 1) &&
				!e.closest("[title]")) bad.push("cut: " + e.outerHTML.slice(0, 200));
			let scrolls = e.parentElement;
			while (scrolls && !/auto|scroll/.test(getComputedStyle(scrolls).overflowX)) scrolls = scrolls.parentElement;
			if (!scrolls && (box.left < -1 || box.right > width + 1))
				bad.push("beyond the edge: " + e.outerHTML.slice(0, 200));
		}
		return bad.slice(0, 5).join("\n");
	})()`)
	if found != "" {
		t.t.Errorf("%s: %s", name, found)
	}
}

// seed300 schedules 300 timers of all kinds, with IDs and targets of any length.
func (s *setup) seed300() {
	s.t.Helper()
	kinds := []struct {
		id, body string
		headers  []string
	}{
		{"order-%d", `{"order": %d, "total": 12345678901234567890.10}`, []string{"Timer-After", "%dm"}},
		{"paused-%d", "paused", []string{"Timer-After", "1%dh"}},
		{"every-%d", "again", []string{"Timer-Every", "1%dm", "Timer-Count", "9"}},
		{"cron-%d", "", []string{"Timer-Cron", "0 9 * * mon-fri", "Timer-Zone", "America/New_York", "Timer-Jitter",
			"30s"}},
		{strings.Repeat("a/long/ID-", 50) + "%d", strings.Repeat("long ", 2000), []string{"Timer-After", "2%dh"}},
		{strings.Repeat("W", 500) + "%d", "an ID without a place to break", []string{"Timer-After", "3%dh"}},
		{"طلب-رقم-%d", "مرحبا", []string{"Timer-After", "%dd"}},
		{"🎉 👩‍👩‍👧 party-%d", "🎂", []string{"Timer-Cron", "@daily"}},
		{"far-%d", "x", []string{"Timer-At", "2030-12-31T23:59:59.999Z", "Timer-Max-Late", "5m"}},
		{"long-target-%d", "x", []string{"Timer-After", "4%dh", "Timer-Target-Topic", longTarget}},
	}
	for i := range 300 {
		k := kinds[i%len(kinds)]
		with := func(s string) string { return strings.Replace(s, "%d", strconv.Itoa(10+i/len(kinds)), 1) }
		headers := make([]string, len(k.headers))
		for n, h := range k.headers {
			headers[n] = with(h)
		}
		id := with(k.id)
		s.put(id, with(k.body), headers...)
		if strings.HasPrefix(k.id, "paused") {
			s.Call(http.MethodPost, s.at(id)+"/pause", "").Is(http.StatusOK, "paused")
		}
	}
}

// A service with 300 timers of all kinds, one with none, and one that does not answer: each page of each fits a
// window and a phone, in both themes.
func TestSightsInABrowser(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	full, empty := start(t), start(t)
	full.seed300()
	full.refuse(strings.Repeat("a long one ", 40), strings.Repeat("W", 3000))
	full.refuse("bad", `{"order": 17}`)
	timerPage := func(id string, more ...string) string {
		return path("/timer", append([]string{"topic", requests, "id", id}, more...)...)
	}
	of := map[string][]string{
		"full": {
			"/", "/?ahead=day", "/timers", "/timers?state=paused", "/timers?state=recurring", "/timers?order=id",
			path("/timers", "q", "طلب"),
			timerPage("order-10"), timerPage("cron-10"), timerPage(strings.Repeat("W", 500) + "10"),
			timerPage("long-target-10"),
			timerPage("طلب-رقم-10"), timerPage("cron-10", "do", "cancel"), path("/bulk", "topic", requests, "q",
				"order-", "do", "pause"),
			path("/schedule", "topic", requests, "id", "cron-10", "edit", "1"), "/topics", "/schedule",
			"/dead-letters", "/activity", "/cluster", "/none",
		},
		"empty": {
			"/", "/timers", "/timers?state=paused", "/timers?state=recurring", "/timers?state=remembered",
			"/timers?state=parked", "/timers?q=x",
			timerPage("none"), "/topics", "/schedule", "/dead-letters", "/activity", "/cluster",
		},
	}
	of["dead"] = of["full"][:len(of["full"])-1]
	source := axe(t)
	for state, s := range map[string]*setup{"full": full, "empty": empty, "dead": full} {
		b := s.open()
		for i, p := range of[state] {
			b.look(1280, "light")
			b.visit(p)
			if state == "dead" {
				b.dies()
			}
			for _, look := range looks()[:4] {
				b.look(look.width, look.theme)
				name := fmt.Sprintf("%s-%02d%s-%s-%d", state, i, strings.Split(strings.ReplaceAll(p, "/", "-"),
					"?")[0], look.theme, look.width)
				b.fits(name)
				b.shot(name)
				eval[any](b, `{ for (const d of document.querySelectorAll("details")) d.open = !d.open } null`)
				b.fits(name + ", unfolded")
				if i == 0 || strings.HasPrefix(p, "/timer?") {
					b.shot(name + "-unfolded")
				}
				eval[any](b, `{ for (const d of document.querySelectorAll("details")) d.open = !d.open } null`)
				if state != "dead" || i > 0 {
					continue
				}
				if eval[any](b, source+"\n;null"); promise(b, runAxe) != "" {
					t.Errorf("%s: %s", name, promise(b, runAxe))
				}
			}
			b.Well("404 (Not Found)")
		}
	}
}

// noAnswers has the page get no more answers.
const noAnswers = `window.fetch = async () => { throw new TypeError("there is no network") }; null`

// dies has the page get no more answers, and be as it is twenty seconds later.
func (t *tab) dies() {
	t.t.Helper()
	eval[any](t, noAnswers+`; { const now = Date.now; Date.now = () => now() + 20_000 } null`)
	t.is("it says that it is old", `!document.getElementById("stale").hidden`)
}

// A page says that it is old within 12 s of the service's end, in sight wherever one has scrolled to, and until
// the service is there again.
func TestServiceThatIsDead(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i := range 40 {
		s.put("order-"+strconv.Itoa(i), "x", "Timer-After", "1h")
	}
	b := s.open()
	b.visit("/timers")
	b.is("nothing is old", `document.getElementById("stale").hidden`)
	eval[any](b, `scrollTo(0, document.documentElement.scrollHeight); null`)
	if err := s.in.Stop(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	const inSight = `(() => { const e = document.getElementById("stale"), box = e.getBoundingClientRect();
		return !e.hidden && scrollY > 0 && box.top >= 0 && box.bottom <= innerHeight && box.height > 20 })()`
	b.within(13*time.Second, "the bar is in sight", inSight)
	if took := time.Since(begun); took < 4*time.Second {
		t.Errorf("it said so after %s: an answer that is late is none that is missing", took)
	}
	b.is("it says why", `document.getElementById("stale").innerText.includes("The service does not answer.")`)
	b.is("figures are grey",
		`["[data-live] td", "footer"].map(e => getComputedStyle(document.querySelector(e)).color).reduce((a, b) => a === b)`)
	age := eval[string](b, `document.getElementById("stale-age").textContent`)
	b.is("the age counts", `document.getElementById("stale-age").textContent !== `+strconv.Quote(age))
	s.serve(strings.TrimPrefix(s.URL, "http://"))
	b.is("the bar is gone", `document.getElementById("stale").hidden && !document.querySelector("[data-stale]")`)
	b.Well("ERR_CONNECTION_REFUSED")

	// A page without figures asks too.
	b.visit("/schedule")
	eval[any](b, noAnswers)
	b.within(13*time.Second, "the form says so too", `!document.getElementById("stale").hidden &&
		!document.querySelector("[data-stale]")`)

	// Of a page of which a part is not known now, the others go on.
	b.visit("/")
	eval[any](b, `{ const real = fetch; window.fetch = async (...to) => {
		const page = await (await real(...to)).text();
		return new Response(window.whole ? page : page.replace('id="live-owners"',
			"").replace("All 2 partitions are live", "Something is wrong"));
	} } null`)
	b.within(13*time.Second, "it says what is wrong",
		`document.getElementById("live-figures").innerText.includes("Something is wrong")`)
	b.is("what is not known is grey", `document.getElementById("live-owners").hasAttribute("data-stale") &&
		document.getElementById("stale").hidden`)
	eval[any](b, `window.whole = true; null`)
	b.within(13*time.Second, "it is known again", `!document.getElementById("live-owners").hasAttribute("data-stale")`)

	// Updates that are switched off are no reason to believe what is shown.
	b.visit("/")
	b.do("switch updates off", chromedp.Click(chromedp.CSS("#live")))
	b.within(13*time.Second, "it says that",
		`document.getElementById("stale").innerText.includes("Updates are switched off.")`)
	b.do("switch them on", chromedp.Click(chromedp.CSS("#stale-again")))
	b.is("it is up to date", `document.getElementById("stale").hidden && document.getElementById("live").checked`)
}

// The list of timers goes on by itself: what is new is offered, what has fired says so, what is ticked stays ticked,
// and the bar with the buttons is in sight.
func TestTimersListIsLive(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i := range 40 {
		s.put("order-"+strconv.Itoa(100+i), "x", "Timer-After", "1h")
	}
	s.put("report", "x", "Timer-Cron", "0 9 * * *")
	s.put("later", "x", "Timer-Every", "10d")
	b := s.open()
	b.visit("/timers?order=due")
	s.put("soon", "x", "Timer-After", "50m")
	b.within(updated, "a new one is offered", `document.querySelector("#news span").innerText === "1 new" &&
		document.querySelector("tbody a").innerText !== "soon"`)
	b.do("show it", chromedp.Click(chromedp.CSS("#news button")))
	b.is("it comes", `document.querySelector("tbody a").innerText === "soon" &&
		document.querySelector("tbody tr").matches(".fresh") && document.querySelectorAll("tr.fresh").length === 1`)
	b.is("the focus is before it", `document.activeElement.id === "news" &&
		document.querySelector("#news button").disabled`)
	left := eval[string](b, `document.querySelector("tbody [data-due]").textContent`)
	b.is("its time counts down", `(left => /^in 4\d min \d+ s$/.test(left) && left !== `+strconv.Quote(left)+`)(
		document.querySelector("tbody [data-due]").textContent)`)
	b.is("none is ticked", `document.getElementById("ticked").textContent === "None ticked" &&
		document.querySelector("button[name=do]").disabled`)
	b.look(360, "light")
	b.is("no button is in the way", `document.querySelector(".ticks").getBoundingClientRect().height < 64 &&
		!document.querySelector("button[name=do]").checkVisibility()`)
	b.look(1280, "light")
	b.do("tick another", chromedp.Click(chromedp.CSS("tbody tr:nth-of-type(3) input")))
	ticked := eval[string](b, `document.querySelector("input:checked[name=pick]").value`)
	b.is("one is ticked", `document.getElementById("ticked").textContent === "1 ticked:" &&
		document.getElementById("all").indeterminate`)
	b.is("the bar is in sight", `(() => { const box = document.querySelector(".ticks").getBoundingClientRect();
		return scrollY < 100 && box.bottom <= innerHeight && box.top > 0 &&
			document.documentElement.scrollHeight > innerHeight * 1.5 })()`)
	s.Call(http.MethodPost, s.at("soon")+"/trigger", "").Is(http.StatusOK, "triggered")
	b.within(updated, "it says so when it has fired", `document.querySelector("tbody a").innerText === "soon" &&
		document.querySelector("tbody tr").matches(".gone") && document.querySelector("#news").innerText.includes("1 gone")`)
	b.is("the other is still ticked", `document.querySelectorAll("input:checked[name=pick]").length === 1 &&
		document.querySelector("input:checked[name=pick]").value === `+strconv.Quote(ticked))
	b.is("it has the focus still", `document.activeElement.value === `+strconv.Quote(ticked))
	b.tabTo("tbody tr:nth-of-type(20) a")
	b.is("the bar does not hide what has the focus",
		`(() => { const box = document.activeElement.getBoundingClientRect();
		return document.activeElement.contains(document.elementFromPoint(box.left + 3, box.top + box.height / 2)) })()`)
	b.do("show the newer list", chromedp.Click(chromedp.CSS("#news button")))
	b.is("it has left", `document.querySelector("tbody a").innerText !== "soon" && !document.querySelector("tr.gone")`)
	eval[any](b, `{ const boxes = document.querySelectorAll("input[name=pick]"), shift = {shiftKey: true, bubbles: true};
		boxes[4].click(); boxes[9].dispatchEvent(new MouseEvent("click", shift)) } null`)
	b.is("a range is ticked", `document.getElementById("ticked").textContent.startsWith(
		[...document.querySelectorAll("input[name=pick]")].slice(4, 10).every(b => b.checked) ? "7 " : "a part")`)
	b.do("tick all", chromedp.Click(chromedp.CSS("#all")))
	b.is("all are ticked", `document.getElementById("ticked").textContent === "42 ticked:" &&
		!document.getElementById("all").indeterminate`)
	b.click("Pause")
	b.says("Pause 42 timers?")
	b.click("Pause 42 timers")
	b.says("Done.")
	b.click("Back to the list")
	b.is("tabs have counts",
		`[...document.querySelectorAll(".tabs a")].slice(0, 4).map(a => a.innerText.replace(/\s+/g, " ")).join() ===
			"all 42,pending 0,paused 42,recurring 2"`)
	b.follow("go to those that recur", chromedp.Click(chromedp.CSS(".tabs li:nth-of-type(4) a")))
	b.says("2 recurring on " + requests)
	b.is("they are shown", `document.querySelectorAll("tbody tr").length === 2 &&
		document.querySelector("tbody [data-due]") === null`)
	b.visit("/timers?state=parked")
	b.says("which is as it should be")
	b.visit("/timers?state=remembered")
	b.says("waterclock schedule --topic "+requests, "--remember 1h", "Copy")
}

// Times are in one zone: UTC, the browser's or another, for each browser as its reader has chosen. A cron timer's
// occurrences are in its own.
func TestZonesInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.put("report", "x", "Timer-Cron", "30 9 * * *", "Timer-Zone", "America/New_York")
	s.put("once", "x", "Timer-At", "2030-07-01T12:00:00Z")
	b := s.open()
	b.do("be in Lagos", command(emulation.SetTimezoneOverride,
		emulation.SetTimezoneOverrideParams{TimezoneID: "Africa/Lagos"}))
	once := path("/timer", "topic", requests, "id", "once")
	b.visit(once)
	b.says("2030-07-01 12:00:00 UTC")
	b.tabTo("details.zone summary")
	b.press("\r")
	b.tabTo("#browser-zone")
	b.follow("choose the browser's", chromedp.KeyEvent("\r"))
	b.says("2030-07-01 13:00:00 Africa/Lagos")
	b.is("UTC is nowhere", `!document.querySelector("main").innerText.includes("UTC")`)
	b.visit(path("/timers", "from", "2030-07-01 12:59", "to", "2030-07-01 13:01"))
	b.says("1 pending", "Due from (Africa/Lagos)", "2030-07-01 13:00:00")
	b.visit(path("/timer", "topic", requests, "id", "report"))
	b.says("in America/New_York, the timer's own zone", "09:30:00")
	// The browser has gone elsewhere, and its pages with it.
	b.do("be in Tokyo", command(emulation.SetTimezoneOverride,
		emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"}))
	b.visit(once)
	b.says("2030-07-01 21:00:00 Asia/Tokyo")
	b.tabTo("details.zone summary")
	b.press("\r")
	b.fill("#other-zone", "Nowhere")
	b.follow("choose one that is none", chromedp.KeyEvent("\r"))
	b.says("Bad Request", "unknown time zone", "write an IANA name")
	b.visit(once)
	b.tabTo("details.zone summary")
	b.press("\r", kb.Escape)
	b.is("Escape closes the menu and returns the focus", `!document.querySelector("details.zone").open &&
		document.activeElement.matches(".zone summary")`)
	b.press("\r")
	b.fill("#other-zone", "Europe/Berlin")
	b.follow("choose another", chromedp.KeyEvent("\r"))
	b.says("2030-07-01 14:00:00 Europe/Berlin")
	b.withoutScript()
	b.visit(once)
	b.says("2030-07-01 14:00:00 Europe/Berlin")
	b.Well("400 (Bad Request)")
}

// A payload is copied as it is, however it is shown, and the command for a shell schedules the same timer again.
func TestCopyInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	const payload = "{\"n\":12345678901234567890.10, \"it's\":[\"\\u00e9\", 1e400]}\r\n"
	s.put("pay 'it'", payload, "Timer-At", "2030-07-01T12:00:00Z", "Waterclock-Pass", "who=it's $me `x`")
	b := s.open()
	one := path("/timer", "topic", requests, "id", "pay 'it'")
	b.visit(one)
	b.says(`"n": 12345678901234567890.10,`, `1e400`)
	eval[any](b, `navigator.clipboard.writeText = async (text) => { window.copied = text }; null`)
	copied := func(selector string) string {
		eval[any](b, `window.copied = null`)
		b.do("copy", chromedp.Click(chromedp.CSS(selector)))
		b.is("it is copied", `window.copied !== null`)
		return eval[string](b, `window.copied`)
	}
	if got := copied("[aria-labelledby=payload] [data-copy]"); got != payload {
		t.Errorf("copied is %q, want %q", got, payload)
	}
	b.do("unfold", chromedp.Click(chromedp.CSS("#again summary")))
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	words := func(program, line string) []string {
		out, err := exec.CommandContext(t.Context(), shell, "-c", program+`() { printf '%s\0' "$@"; }; `+line).Output()
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	}
	curl := words("curl", copied("#again .command:nth-of-type(2) button"))
	if cli := copied("#again .command:nth-of-type(1) button"); !strings.Contains(cli,
		"| base64 -d | waterclock schedule") {
		t.Errorf("a payload with CR LF is typed: %s", cli)
	}
	s.put("pay 'it'", "other", "Timer-After", "1h")
	s.Call(curl[1], strings.TrimPrefix(curl[4], s.URL), curl[6], "Content-Type", "application/json").Is(
		http.StatusOK, "replaced")
	b.visit(one)
	b.says("12345678901234567890.10", "2030-07-01 12:00:00", "it's $me `x`", fmt.Sprint(len(payload), " bytes"))
}
