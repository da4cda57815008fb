package console

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node/config"
)

// seed schedules some timers of each kind.
func (s *setup) seed() {
	s.t.Helper()
	for i := range 60 {
		s.put("order-"+strconv.Itoa(1000+i), `{"order":`+strconv.Itoa(i)+`}`, "Timer-After", strconv.Itoa(60+i*i*7)+"s",
			"Timer-Labels", "order="+strconv.Itoa(i)+", team="+string(rune('a'+i%3)))
	}
	s.put("report", `{"kind":"daily"}`, "Timer-Cron", "0 9 * * mon-fri", "Timer-Zone", "Africa/Lagos",
		"Timer-Jitter", "30s",
		"Waterclock-Pass", "content-type=application/json", "Waterclock-Pass", "trace-id=7f3a")
	s.put("heartbeat", "", "Timer-Every", "15m", "Timer-Labels", "team=a")
	s.Call(http.MethodPatch, s.at("heartbeat"), `{"after":"2h"}`, "Content-Type", "application/json").Is(http.StatusOK, "moved")
	s.Call(http.MethodPut, "/v1/calendars/weekend", `{"zone": "Europe/Berlin", "dates": ["2027-05-06"],
		"weekly": ["sat", "sun"], "hours": ["fri 12:00-18:00"]}`).Is(http.StatusCreated, "")
	s.refuse("refused", `{"order":18}`)
	s.refuse(hostile, "\x00\xff<script>alert(5)</script>")
	s.put(hostile, "\x00\xff<script>alert(3)</script>", "Timer-After", "3d", "Waterclock-Pass",
		"<b>=\"><script>alert(4)</script>")
}

// hostile is an ID with a script, a slash, one that is escaped, NUL, a mark that turns the direction of writing, and a
// byte that is no UTF-8.
const hostile = "<script>alert(1)</script>/%2F\x00\u202e\xff"

// pages are all that show something.
func pages() []struct{ name, at string } {
	return []struct{ name, at string }{
		{"overview", "/"},
		{"overview-day", "/?ahead=day"},
		{"timers", "/timers"},
		{"timers-found", path("/timers", "q", "order-", "from", "now", "to", "+3h")},
		{"timers-label", path("/timers", "label", "team=a, order", "target", target)},
		{"timers-none", path("/timers", "q", "no such")},
		{"timer", path("/timer", "topic", requests, "id", "report")},
		{"timer-moved", path("/timer", "topic", requests, "id", "heartbeat")},
		{"timer-hostile", path("/timer", "topic", requests, "id", hostile)},
		{"confirm", path("/timer", "topic", requests, "id", "report", "do", "cancel")},
		{"snooze", path("/timer", "topic", requests, "id", "heartbeat", "do", "move")},
		{"snooze-hostile", path("/timer", "topic", requests, "id", hostile, "do", "move")},
		{"schedule", "/schedule"},
		{"schedule-cron", path("/schedule", "cron", "0 9 * * mon-fri", "zone", "Africa/Lagos")},
		{"schedule-wrong", path("/schedule", "cron", "0 99 * * *")},
		{"timer-watched", path("/timer", "topic", requests, "id", "report", "watch", "1")},
		{"dead-letters", "/dead-letters"},
		// Both lie on one partition, each with a marker behind it.
		{"dead-letter", path("/dead-letter", "topic", requests, "partition", "1", "offset", "0")},
		{"dead-letter-hostile", path("/dead-letter", "topic", requests, "partition", "1", "offset", "2")},
		{"resend", path("/resend", "topic", requests, "reason", "bad-cron")},
		{"topics", "/topics"},
		{"activity", path("/activity", "prefix", "order-", "type", "scheduled,fired")},
		{"edit", path("/schedule", "topic", requests, "id", "report", "edit", "1")},
		{"bulk", path("/bulk", "topic", requests, "q", "order-", "do", "cancel")},
		{"bulk-move", path("/bulk", "topic", requests, "label", "team=a", "do", "move")},
		{"bulk-move-preview", path("/bulk", "topic", requests, "label", "team=a", "do", "move", "by", "-1h")},
		{"cluster", "/cluster"},
		{"jobs", "/jobs"},
		{"calendars", "/calendars"},
		{"calendar-new", "/calendar"},
		{"calendar", path("/calendar", "name", "weekend", "year", "2027")},
	}
}

// looks are how pages are looked at. The first two have both themes and both widths.
func looks() []struct {
	theme string
	width int64
} {
	return []struct {
		theme string
		width int64
	}{{"light", 1280}, {"dark", 360}, {"dark", 1280}, {"light", 360}, {"light", 320}}
}

// Every page, in both themes, wide and narrow, with scripts and without: nothing is loaded from elsewhere, the browser
// has nothing to complain about, and nothing is cut or scrolls sideways.
func TestPagesInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.seed()
	b := s.open()
	many := 2 // the others are CI's, or somebody's who wants pictures
	if runs.Slow() || os.Getenv(envShots) != "" {
		many = len(looks())
	}
	for _, look := range looks()[:many] {
		b.look(look.width, look.theme)
		for _, p := range pages() {
			b.page(p.name, p.at)
			b.shot(p.name + "-" + look.theme + "-" + strconv.FormatInt(look.width, 10))
		}
	}
	b.withoutScript()
	b.look(360, "light")
	for _, p := range pages() {
		b.page(p.name+" without scripts", p.at)
	}
}

// page visits one and holds it against what all pages promise.
func (t *tab) page(name, at string) {
	t.t.Helper()
	t.visit(at)
	t.fits(name)
	t.is(name+" has one heading, a title and a language",
		`document.querySelectorAll("h1").length === 1 && document.title !== "" && document.documentElement.lang === "en"`)
	t.is(name+" has a label for each field",
		`[...document.querySelectorAll("main input:not([type=hidden]), main select, main textarea, header input:not([type=hidden])")].every(e => e.labels.length > 0 || e.ariaLabel)`)
	t.is(name+" has no ID twice",
		`new Set([...document.querySelectorAll("[id]")].map(e => e.id)).size === document.querySelectorAll("[id]").length`)
}

// A timer is scheduled, found, paused, resumed, fired and cancelled, with scripts and without.
func TestLifeOfATimerInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, c := range []struct {
		name   string
		script bool
	}{{"script", true}, {"noscript", false}} {
		t.Run(c.name, func(t *testing.T) {
			b := s.open()
			if !c.script {
				b.withoutScript()
			}
			flow(b, c.name+" & <b>1/2</b>")
		})
	}
}

func flow(b *tab, id string) {
	b.t.Helper()
	b.visit("/schedule")
	b.fill("#id", id)
	b.fill("#to", target)
	b.fill("#after", "2h")
	b.fill("#body", `{"order":17}`)
	b.click("Schedule")
	b.says("Scheduled.", "Request "+requests+"/", id, `"order": 17`, "12 bytes", "in 1 h 59 min")

	b.visit("/timers")
	b.fill("#q", id[:5])
	b.click("Search")
	b.says("1 pending", id)
	b.click(id)
	b.says("pending", target)

	for _, step := range []struct{ label, done, state string }{
		{"Pause", "Paused.", "paused"},
		{"Resume", "Resumed.", "pending"},
	} {
		b.click(step.label)
		b.says(step.label + ": " + id)
		b.click(step.label)
		b.says(step.done, step.state)
	}
	b.click("Fire now")
	b.click("Fire now")
	b.says("It fires now.")
	b.reads(path("/timer", "topic", requests, "id", id), "Fired", " ms late, to "+target,
		"No timer of this ID is pending")
	b.is("it is no alarm", `document.querySelector("main [role=alert]") === null`)

	b.visit("/schedule")
	b.fill("#id", id)
	b.fill("#to", target)
	b.fill("#every", "15m")
	b.click("Schedule")
	b.says("Scheduled.", "every 15m")
	b.click("Cancel timer")
	b.click("Cancel timer")
	b.says("Cancelled.", "No timer of this ID is pending")
	b.Well("404 (Not Found)")
}

// The navigation leads to the calendars, and one shows its year: the days that it excludes, and those of which a part
// is.
func TestCalendarInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.seed()
	b := s.open()
	b.look(360, "light")
	b.visit("/")
	b.do("unfold the menu", chromedp.Click(chromedp.CSS(".menu > summary")))
	b.follow("the navigation", chromedp.Click(chromedp.CSS(`nav a[href="/calendars"]`)))
	b.says("weekend")
	b.visit(path("/calendar", "name", "weekend", "year", "2027"))
	b.fits("calendar")
	b.says("January", "December")
	may := `[...document.querySelectorAll(".months table")][4]`
	b.is("days are marked", may+`.querySelectorAll(".off").length === 11 && `+may+`.querySelectorAll("em").length === 4`)
	b.is("months are not stretched", may+`.offsetWidth <= innerWidth && `+may+`.rows[1].cells.length === 7`)
	b.tabTo(`[popovertarget="why-2027-05-06"]`)
	b.press("\r")
	b.is("it says why", `document.getElementById("why-2027-05-06").innerText === "2027-05-06 is excluded: dates 2027-05-06"
		&& document.getElementById("why-2027-05-06").checkVisibility()`)
	b.press(kb.Escape)
	b.is("it is closed, and the day has the focus", `!document.querySelector(":popover-open") &&
		document.activeElement.matches("[popovertarget]")`)
	b.click("Year after")
	b.says("2028")

	// A calendar that is deleted while timers name it.
	s.put("named", "x", "Timer-Every", "15m", "Timer-Not-On", "weekend")
	b.click("Delete")
	b.click("Delete")
	b.says("The calendar is deleted.")
	b.reads("/calendars", "weekend: 1 timer of "+requests)
	b.fits("calendars")
	b.reads("/", "weekend: 1 timer of "+requests)
	b.follow("put it again", chromedp.Click(chromedp.CSS(`a[href="/calendar?calendar=weekend"]`)))
	b.fill("#rules", `{"weekly": ["sat"]}`)
	b.click("Put")
	b.says("The calendar is created.")
	b.until(patience, "it is missing no more", func() bool {
		b.visit("/calendars")
		return !b.has([]string{"do not exist"})
	})
}

// Timers that wait for the rate of their target: how many, and until when.
func TestDeferredInABrowser(t *testing.T) {
	t.Parallel()
	browser(t)
	s := with(t, func(cfg *config.Config) {
		cfg.TargetRates = []config.TargetRate{{Glob: target, N: 1, Unit: "m", Burst: 1}}
	})
	b := s.open()
	for i := range 3 {
		s.put("sms-"+strconv.Itoa(i), "x", "Timer-After", "0s")
	}
	b.reads("/", "about 3 timers wait for its rate of 1 a minute", "through at about")
	b.fits("overview")
	b.click(target)
	b.says("3 deferred on " + requests)
	b.click("sms-0")
	b.says("It is not late: it waits for the rate of its target, 1 a minute.")
	b.look(360, "light")
	b.visit("/cluster")
	b.says("Deferred by rates")
	b.fits("cluster")
}

// Without a mouse: the skip link, the search by its key, the way to a button and through it.
func TestKeyboardInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.put("by-key", "hello", "Timer-After", "1h")
	b := s.open()
	b.visit("/")
	b.press(kb.Tab)
	b.is("the skip link comes first", `document.activeElement?.matches(".skip") === true`)
	b.press("\r")
	b.is("it skips", `document.activeElement?.id === "content" || location.hash === "#content"`)
	b.shortcut("/")
	b.is("/ leads to the search", `document.activeElement?.id === "find" && document.activeElement.value === ""`)
	b.press("b", "y", "-")
	b.follow("search", chromedp.KeyEvent("\r"))
	b.says("1 pending", "by-key")
	b.tabTo("table a")
	b.follow("open the timer", chromedp.KeyEvent("\r"))
	b.says("hello")
	b.tabTo("a.button.danger")
	b.follow("cancel", chromedp.KeyEvent("\r"))
	b.is("the button has the focus", `document.activeElement?.matches("main button") === true`)
	b.follow("confirm", chromedp.KeyEvent("\r"))
	b.says("Cancelled.")
}

// With scripts a cron expression is explained while one types, and pages show what is new.
func TestLiveInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.open()
	b.visit("/schedule")
	b.fill("#cron", "*/5 * * * *")
	b.says("Next, in UTC:")
	b.fill("#zone", "Mars/Olympus")
	b.says("needs the IANA name of a time zone")

	b.visit("/")
	b.is("nothing is pending", `document.querySelector(".figures dd").textContent === "0"`)
	s.put("new", "x", "Timer-After", "1h")
	b.within(updated, "one is", `document.querySelector(".figures dd").textContent === "1"`)
}

// Timers are ticked and paused, all that match are cancelled by a job, and one is edited, with scripts and without.
func TestChangesOfManyTimersInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, script := range []bool{true, false} {
		b := s.open()
		if !script {
			b.withoutScript()
		}
		id := fmt.Sprintf("many-%v-", script)
		for i := range 3 {
			s.put(id+strconv.Itoa(i), "line 1\nline 2", "Timer-Cron", "0 9 * * mon-fri", "Waterclock-Pass", "x=1")
		}
		list := path("/timers", "q", id)
		b.visit(list)
		b.says("3 pending", "At 09:00, on Monday to Friday.")
		for i := range 2 {
			b.do("tick one",
				chromedp.Click(chromedp.CSS(fmt.Sprintf("tbody tr:nth-of-type(%d) input[type=checkbox]", i+1))))
		}
		b.click("Pause")
		b.says("Pause 2 timers?", id+"0", id+"1")
		b.click("Pause 2 timers")
		b.says("Done.", "Paused.")
		b.visit(path("/timers", "q", id, "state", "paused"))
		b.says("2 paused")

		b.visit(path("/timer", "topic", requests, "id", id+"2"))
		b.click("Edit")
		b.says("Edit: "+id+"2", "What is pending is filled in")
		b.do("empty the field", chromedp.Clear(chromedp.CSS("#cron")))
		b.fill("#cron", "30 10 * * *")
		b.click("Schedule")
		b.says("Scheduled again", "30 10 * * *", "line 1\nline 2", "13 bytes")

		b.visit(list)
		b.click("Cancel all…")
		b.says("3 pending timers of "+requests, "ID begins with", id, "They are:", id+"2")
		b.click("Cancel 3 timers")
		b.says("Job: cancel on " + requests)
		b.reads(strings.TrimPrefix(eval[string](b, "location.href"), s.URL), "done")
		b.visit(list)
		b.says("No pending timer is like that")
	}
	b := s.open()
	b.visit("/no-such-page")
	b.says("Not Found", "there is no page at this address")
	b.Well("404 (Not Found)")
}

// A dead letter is corrected in the browser, looked over and sent, with scripts and without.
func TestCorrectionInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, c := range []struct {
		id     string
		script bool
	}{{"by-script", true}, {"by-form", false}} {
		s.refuse(c.id, "line 1\r\nline 2")
		b := s.open()
		if !c.script {
			b.withoutScript()
		}
		b.reads("/dead-letters", c.id)
		const letter = "td details.letter > summary"
		b.do("unfold it", chromedp.Click(chromedp.CSS(letter)))
		b.says("timer-cron", "61 * * * *")
		b.do("unfold the button", chromedp.Click(chromedp.CSS("td details details summary")))
		b.click("Resend " + c.id)
		b.says("Bad Request", "bad-cron")
		b.Well("400 (Bad Request)")
		b.reads("/dead-letters", c.id)
		b.do("unfold it", chromedp.Click(chromedp.CSS(letter)))
		b.click("Correct and resend")
		b.says("bad-cron", "Dead letter "+c.id)
		b.page("the form", strings.TrimPrefix(eval[string](b, "location.href"), s.URL))
		const field = `[aria-label="Value of header 0"]` // timer-cron
		b.do("empty the field", chromedp.Clear(chromedp.CSS(field)))
		b.fill(field, "0 9 * * *")
		b.click("Look over and resend")
		b.says("Resend this?", "0 9 * * *", "as it was")
		b.click("Resend")
		b.says("Scheduled.", "0 9 * * * in UTC", "14 bytes")
	}
}

// A timer's page tells what has happened to it, without scripts too; with them it goes on with what happens.
func TestEventsInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.put("watched", "x", "Timer-After", "1h")
	s.put("watched", "x", "Timer-After", "3h")
	s.put("other", "x", "Timer-After", "2h")
	b := s.open()
	page := path("/timer", "topic", requests, "id", "watched")
	b.reads(page, "scheduled", "replaced")
	b.is("the newest comes first", `/replaced[^]*scheduled/.test(document.querySelector("#told tbody").innerText)`)
	b.is("it tells of no other", `document.querySelectorAll("#told tbody tr").length === 2`)
	b.says("The topic's events begin at")

	b.click("Watch what happens from now on")
	b.says("as it happens")
	s.put("watched", "x", "Timer-After", "2h")
	s.put("other", "x", "Timer-After", "2h")
	b.is("what happens comes first",
		`document.querySelectorAll("#told tbody tr").length === 3 && /replaced[^]*replaced[^]*scheduled/.test(document.querySelector("#told tbody").innerText)`)
	b.says("to " + target + " · request " + requests + "/")

	b.withoutScript()
	for range 20 { // more than one page has
		s.put("watched", "x", "Timer-After", "2h")
	}
	b.reads(page, "Older")
	b.click("Older")
	b.says("scheduled", "Newest")
}

// Hostile IDs, headers and payloads are text, and their pages can be used.
func TestHostileInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.seed()
	b := s.open()
	b.visit("/timers")
	b.visit(path("/timers", "q", "<script>"))
	b.says(`<script>alert(1)</script>/%2F\x00\u202e\xff`)
	b.follow("open it", chromedp.Click(chromedp.CSS("table a")))
	b.says(`<script>alert(1)</script>/%2F\x00\u202e\xff`, "00 ff 3c 73", `"><script>alert(4)</script>`)
	b.click("Cancel timer")
	b.click("Cancel timer")
	b.says("Cancelled.")
	b.is("no script has come from it",
		`document.querySelectorAll("script").length === 1 && document.querySelectorAll("main b").length === 0`)
	b.visit(path("/timer", "topic", requests, "id", "..", "do", "cancel"))
	b.says("No timer of this ID is pending")
	b.Well("404 (Not Found)")
}
