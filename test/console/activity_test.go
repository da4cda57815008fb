package console

import (
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
)

// The page of all that happens: lines appear as it happens, of the filter in its address only, can be held back, and
// are bounded. Without scripts, and where the topic writes no events, the page says what it has.
func TestActivityInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.put("shop-1", "x", "Timer-After", "1h")
	s.put("other", "x", "Timer-After", "1h")
	s.put(strings.Repeat("W", 300), "x", "Timer-After", "1h")
	b := s.open()
	b.reads("/activity", "shop-1", "other", "scheduled")
	b.is("no kind is broken", `[...document.querySelectorAll("td[data-label=What]")].every((e) => {
		const all = document.createRange();
		all.selectNodeContents(e);
		return all.getClientRects().length === 1;
	})`)
	b.page("activity", "/activity")
	b.says("as it happens")
	s.put("other", "x", "Timer-After", "2h")
	b.is("what happens comes first",
		`/^\S+ \S+\s+other\s+replaced/.test(document.querySelector("#told tbody").innerText)`)
	b.is("a line leads to its timer",
		`document.querySelector("#told tbody a").getAttribute("href") === "/timer?id=other&topic=`+requests+`"`)

	b.visit("/activity")
	b.fill("#prefix", "shop-")
	b.do("tick replaced", chromedp.Click(chromedp.CSS("input[value=replaced]")))
	b.click("Show")
	b.says("IDs that begin with shop-")
	b.is("the filter is in the address",
		`/[?&]prefix=shop-(&|$)/.test(location.search) && /[?&]type=replaced(&|$)/.test(location.search)`)
	b.says("as it happens", "No event of "+requests+" is like that.")
	s.put("other", "x", "Timer-After", "2h")  // not of the prefix
	s.put("shop-2", "x", "Timer-After", "2h") // not of the type
	s.put("shop-1", "x", "Timer-After", "2h")
	const rows = `document.querySelectorAll("#told tbody tr").length`
	b.is("one line has come", rows+
		` === 1 && document.querySelector("#told").innerText.includes("shop-1") && !document.querySelector("#nothing")`)

	b.do("pause", chromedp.Click(chromedp.CSS("#pause")))
	for i := range 3 {
		s.put("shop-1", strconv.Itoa(i), "Timer-After", "2h")
	}
	b.says("Paused; 3 held back.")
	b.is("nothing is added", rows+` === 1`)
	b.do("go on", chromedp.Click(chromedp.CSS("#pause")))
	b.is("then all are", rows+` === 4`)
	for i := range 205 {
		s.put("shop-1", strconv.Itoa(i), "Timer-After", "2h")
	}
	b.is("the lines are bounded", rows+` === 200`)
	b.shot("activity")

	b.withoutScript()
	b.reads("/activity", "As of when this page was loaded", "Older")
	b.click("Older")
	b.says("Newest", "Older")

	quiet := with(t)
	quiet.refuse("refused", "x")
	b = quiet.open()
	b.reads("/activity", requests+" writes no events", "bad-cron", "refused")
	b.page("activity without events", "/activity")
}

// Another program may write to the topic of events. Its records are shown as unreadable, and keep no event from being
// shown.
func TestForeignEventsInABrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.open()
	b.visit("/activity")
	b.says("as it happens")
	b.do("pause", chromedp.Click(chromedp.CSS("#pause")))
	for _, value := range []string{"x", "{}", `{"type":["fired"],"at":1}`, `{"type":"fired","at":1e300}`} {
		s.produce(&kgo.Record{Topic: topics.Events(requests), Key: []byte("foreign"), Value: []byte(value)})
	}
	b.says("Paused; 4 held back.")
	s.put("ours", "x", "Timer-After", "1h")
	b.says("Paused; 5 held back.")
	b.do("go on", chromedp.Click(chromedp.CSS("#pause")))
	b.says("ours", "scheduled", "unreadable")
	b.is("all are there", `document.querySelectorAll("#told tbody tr").length === 5`)
	b.is("the button says Pause", `document.querySelector("#pause").textContent === "Pause"`)
}
