// Package console_test has the console in a real browser, before a whole instance.
package console_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	requests = "timers"
	target   = "orders"
	patience = 30 * time.Second
)

func TestMain(m *testing.M) { kafkatest.Main(few{m}) }

// few is an M that runs three tests at a time: that is how many browsers two cores can draw
// for.
type few struct{ *testing.M }

// Run runs the tests and returns the exit code.
func (f few) Run() int {
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	return f.M.Run()
}

// start runs an instance with a console and events, and returns its address.
func start(t *testing.T) string {
	t.Helper()
	browser(t) // or it need not start
	return with(t, func(cfg *config.Config) {
		policy := cfg.PolicyOf(requests)
		policy.Events = true
		cfg.Tenants = map[string]config.Policy{requests: policy}
	})
}

// serve runs an instance whose settings a test may change, and returns its address.
func serve(t *testing.T, seeds []string, changes ...func(*config.Config)) string {
	t.Helper()
	at, _ := instance(t, seeds, "127.0.0.1:0", changes...)
	return at
}

// instance is serve with an instance that a test may stop, at an address of its own.
func instance(t *testing.T, seeds []string, api string, changes ...func(*config.Config)) (string, *rig.Instance) {
	t.Helper()
	cfg := rig.Config(t, seeds, requests)
	cfg.API = api
	for _, change := range changes {
		change(cfg)
	}
	at := make(chan string, 1)
	in := rig.Serve(t, cfg, node.Options{StartedAPI: func(url string) { at <- url }})
	in.Ready(2, patience)
	address := <-at
	brokers.Store(address, seeds)
	return address, in
}

// put schedules a timer over HTTP, with headers in turn.
func put(t *testing.T, at, escapedID, body string, headers ...string) {
	t.Helper()
	if status := send(t, at, escapedID, body, headers...); status >= 300 {
		t.Fatalf("PUT %s: %d", escapedID, status)
	}
}

// refuse sends a request over Kafka that becomes a dead letter, and waits for that. The API would not write it.
func refuse(t *testing.T, at, escapedID, body string) {
	t.Helper()
	if status := send(t, at, escapedID, body, "Timer-Cron", "61 * * * *"); status != http.StatusBadRequest {
		t.Fatalf("PUT %s: %d, want it refused", escapedID, status)
	}
	id, err := url.PathUnescape(escapedID)
	if err != nil {
		t.Fatal(err)
	}
	seeds, _ := brokers.Load(at)
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds.([]string)...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	rig.Send(t, cl, &kgo.Record{Topic: requests, Key: []byte(id), Value: []byte(body), Headers: []kgo.RecordHeader{
		{Key: "timer-cron", Value: []byte("61 * * * *")}, {Key: "timer-target-topic", Value: []byte(target)},
	}})
	await.Until(t, patience, "there is a dead letter", func() bool {
		_, list := call(t, http.MethodGet, at+"/v1/topics/"+requests+"/dead-letters?prefix="+url.QueryEscape(id), "",
			nil)
		return strings.Contains(list, "bad-cron")
	})
}

// brokers has the addresses of the brokers of instances, by the instance's own address.
var brokers sync.Map

func send(t *testing.T, at, escapedID, body string, headers ...string) (status int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, at+"/v1/topics/"+requests+"/timers/"+escapedID,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	if r.Header.Get("Timer-Target-Topic") == "" {
		r.Header.Set("Timer-Target-Topic", target)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// seed schedules some timers of each kind.
func seed(t *testing.T, at string) {
	t.Helper()
	for i := range 60 {
		put(t, at, "order-"+strconv.Itoa(1000+i), `{"order":`+strconv.Itoa(i)+`}`, "Timer-After",
			strconv.Itoa(60+i*i*7)+"s")
	}
	put(t, at, "report", `{"kind":"daily"}`, "Timer-Cron", "0 9 * * mon-fri", "Timer-Zone", "Africa/Lagos",
		"Timer-Jitter", "30s",
		"Waterclock-Pass", "content-type=application/json", "Waterclock-Pass", "trace-id=7f3a")
	put(t, at, "heartbeat", "", "Timer-Every", "15m")
	refuse(t, at, "refused", `{"order":18}`)
	refuse(t, at, hostileEscaped, "\x00\xff<script>alert(5)</script>")
	put(t, at, hostileEscaped, "\x00\xff<script>alert(3)</script>", "Timer-After", "3d", "Waterclock-Pass",
		"<b>=\"><script>alert(4)</script>")
}

// The ID is <script>alert(1)</script>, a slash, one that is escaped twice, NUL, a mark that
// turns the direction of writing, and a byte that is no UTF-8.
const (
	hostileEscaped = "%3Cscript%3Ealert(1)%3C%2Fscript%3E%2F%252F%00%E2%80%AE%FF"
	hostile        = "<script>alert(1)</script>/%2F\x00\u202e\xff"
)

// pages are all that show something.
func pages() []struct{ name, at string } {
	return []struct{ name, at string }{
		{"overview", "/"},
		{"overview-day", "/?ahead=day"},
		{"timers", "/timers"},
		{"timers-found", path("/timers", "q", "order-", "from", "now", "to", "+3h")},
		{"timers-none", path("/timers", "q", "no such")},
		{"timer", path("/timer", "topic", requests, "id", "report")},
		{"timer-hostile", path("/timer", "topic", requests, "id", hostile)},
		{"confirm", path("/timer", "topic", requests, "id", "report", "do", "cancel")},
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
		{"cluster", "/cluster"},
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

// Every page, in both themes, wide and narrow, with scripts and without: nothing is loaded
// from elsewhere, the browser has nothing to complain about, and nothing is cut or scrolls sideways.
func TestPagesInABrowser(t *testing.T) {
	t.Parallel()
	at := start(t)
	seed(t, at)
	b := open(t, at)
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
func TestFlowInABrowser(t *testing.T) {
	t.Parallel()
	at := start(t)
	for _, c := range []struct {
		name   string
		script bool
	}{{"script", true}, {"noscript", false}} {
		t.Run(c.name, func(t *testing.T) {
			b := open(t, at)
			if !c.script {
				b.withoutScript()
			}
			flow(b, c.name+" & <b>1/2</b>")
		})
	}
}

// The same on a real broker.
func TestFlowOnARealBroker(t *testing.T) {
	t.Parallel()
	browser(t)
	cluster := kafkatest.Start(t, 1)
	for _, name := range []string{requests, target} {
		cluster.CreateTopic(t, 2, nil, name)
	}
	flow(open(t, serve(t, cluster.Seeds())), "a real broker")
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
	b.visit(path("/timer", "topic", requests, "id", id))
	b.says("No timer of this ID is pending")

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

// What is refused is said in the words of the API, and what was typed is still there.
func TestRefusalInABrowser(t *testing.T) {
	t.Parallel()
	b := open(t, start(t))
	b.visit("/schedule")
	b.fill("#id", "both")
	b.fill("#to", target)
	b.fill("#after", "1h")
	b.fill("#at", "yesterday")
	b.click("Schedule")
	b.says("Bad Request", "timer-a")
	b.is("what was typed is still there",
		`document.getElementById("at").value === "yesterday" && document.getElementById("id").value === "both"`)
	b.Well("400 (Bad Request)")
}

// Without a mouse: the skip link, the search by its key, the way to a button and through it.
func TestKeyboardInABrowser(t *testing.T) {
	t.Parallel()
	at := start(t)
	put(t, at, "by-key", "hello", "Timer-After", "1h")
	b := open(t, at)
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
	at := start(t)
	b := open(t, at)
	b.visit("/schedule")
	b.fill("#cron", "*/5 * * * *")
	b.says("Next, in UTC:")
	b.fill("#zone", "Mars/Olympus")
	b.says("needs the IANA name of a time zone")

	b.visit("/")
	b.is("nothing is pending", `document.querySelector(".figures dd").textContent === "0"`)
	put(t, at, "new", "x", "Timer-After", "1h")
	for end := time.Now().Add(patience); ; {
		b.do("wait", chromedp.Sleep(200*time.Millisecond))
		n := eval[string](b, `document.querySelector(".figures dd").textContent`)
		if n == "1" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("pending stays at %q", n)
		}
	}
}

// How late firings are by the service's own doing is seen, in the overview and of each instance, once something has
// fired.
func TestLatenessInABrowser(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	at := start(t)
	b := open(t, at)
	b.visit("/")
	b.says("Lateness", "nothing fired")
	cluster := func() (c api.Cluster) {
		_, text := call(t, http.MethodGet, at+"/v1/cluster", "", nil)
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err, text)
		}
		return c
	}
	if l := cluster().Instances[0].Lateness; l != nil {
		t.Errorf("before anything has fired: %+v", l)
	}
	put(t, at, "late", "x", "Timer-At", strconv.FormatInt(time.Now().Add(-time.Hour).UnixMilli(), 10))
	put(t, at, "in-time", "x", "Timer-After", "1s")
	await.Until(t, patience, "a firing counts", func() bool { return cluster().Instances[0].Lateness != nil })
	// That a request came an hour after the due time is not the service's doing.
	if l := cluster().Instances[0].Lateness; l.Firings < 1 || l.P99Seconds > 60 || l.OverSeconds > 300 ||
		l.OverSeconds <= 0 {
		t.Errorf("one that was requested an hour late: %+v", l)
	}
	await.Until(t, patience, "the figures move by themselves",
		func() bool { return !strings.Contains(b.text(), "nothing fired") })
}

// A request that was refused is a dead letter, which is seen, and can be sent again.
func TestDeadLettersInABrowser(t *testing.T) {
	t.Parallel()
	at := start(t)
	refuse(t, at, "refused", "<i>17</i>")
	b := open(t, at)
	b.reads("/dead-letters", "refused")
	b.says("refused", "bad-cron")
	b.do("unfold it", chromedp.Click(chromedp.CSS("td details.letter > summary")))
	b.says("timer-cron", "61 * * * *", "<i>17</i>")
	b.do("unfold the button", chromedp.Click(chromedp.CSS("td details details summary")))
	b.click("Resend refused")
	b.says("Bad Request", "bad-cron")
	b.is("nothing was written", `!document.body.innerText.includes("The request is in the log")`)
	b.Well("400 (Bad Request)")
}

// All dead letters of a reason are sent again from its page: counted, asked about, and done by a job
// whose page tells how far it is, with scripts and without.
func TestResendAllInABrowser(t *testing.T) {
	t.Parallel()
	at := start(t)
	for i := range 3 {
		refuse(t, at, "refused-"+strconv.Itoa(i), "x")
	}
	for _, script := range []bool{true, false} {
		b := open(t, at)
		if !script {
			b.withoutScript()
		}
		b.reads("/dead-letters", "bad-cron", "refused-2")
		b.is("the nav has the count", `/Dead letters\s*\d/.test(document.querySelector("nav").innerText)`)
		b.click("bad-cron")
		b.click("Resend all new ones that match…")
		b.page("the preview", strings.TrimPrefix(eval[string](b, "location.href"), at))
		b.says("dead letters of "+requests, "bad-cron")
		b.click("Resend dead letters")
		b.says("Job: resend on " + requests)
		b.reads(strings.TrimPrefix(eval[string](b, "location.href"), at), "done", "bad-cron: ")
	}
	b := open(t, at)
	b.visit("/")
	b.says("Dead letters of the last hour")
}

// Timers are ticked and paused, all that match are cancelled by a job, and one is edited, with scripts
// and without.
func TestManyInABrowser(t *testing.T) {
	t.Parallel()
	at := start(t)
	for _, script := range []bool{true, false} {
		b := open(t, at)
		if !script {
			b.withoutScript()
		}
		id := fmt.Sprintf("many-%v-", script)
		for i := range 3 {
			put(t, at, id+strconv.Itoa(i), "line 1\nline 2", "Timer-Cron", "0 9 * * mon-fri", "Waterclock-Pass", "x=1")
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
		b.reads(strings.TrimPrefix(eval[string](b, "location.href"), at), "done")
		b.visit(list)
		b.says("No pending timer is like that")
	}
	b := open(t, at)
	b.visit("/no-such-page")
	b.says("Not Found", "there is no page at this address")
	b.Well("404 (Not Found)")
}

// That a timer has fired is said in words on its page, and no alarm.
func TestFiredInABrowser(t *testing.T) {
	t.Parallel()
	at := start(t)
	b := open(t, at)
	put(t, at, "over", "x", "Timer-After", "1ms")
	b.reads(path("/timer", "topic", requests, "id", "over"), "Fired", " ms late, to "+target,
		"No timer of this ID is pending")
	b.is("it is no alarm", `document.querySelector("main [role=alert]") === null`)
	b.Well("404 (Not Found)")
}

// A dead letter is corrected in the browser, looked over and sent, with scripts and without.
func TestCorrectionInABrowser(t *testing.T) {
	t.Parallel()
	at := start(t)
	for _, c := range []struct {
		id     string
		script bool
	}{{"by-script", true}, {"by-form", false}} {
		refuse(t, at, c.id, "line 1\r\nline 2")
		b := open(t, at)
		if !c.script {
			b.withoutScript()
		}
		b.reads("/dead-letters", c.id)
		b.do("unfold it", chromedp.Click(chromedp.CSS("td details.letter > summary")))
		b.click("Correct and resend")
		b.says("bad-cron", "Dead letter "+c.id)
		b.page("the form", strings.TrimPrefix(eval[string](b, "location.href"), at))
		const field = `[aria-label="Value of header 0"]` // timer-cron
		b.do("empty the field", chromedp.Clear(chromedp.CSS(field)))
		b.fill(field, "0 9 * * *")
		b.click("Look over and resend")
		b.says("Resend this?", "0 9 * * *", "as it was")
		b.click("Resend")
		b.says("Scheduled.", "0 9 * * * in UTC", "14 bytes")
	}
}

// A timer's page tells what has happened to it, without scripts too; with them it goes on with
// what happens.
func TestEventsInABrowser(t *testing.T) {
	t.Parallel()
	at := start(t)
	put(t, at, "watched", "x", "Timer-After", "1h")
	put(t, at, "watched", "x", "Timer-After", "3h")
	put(t, at, "other", "x", "Timer-After", "2h")
	b := open(t, at)
	page := path("/timer", "topic", requests, "id", "watched")
	b.reads(page, "scheduled", "replaced")
	b.is("the newest comes first", `/replaced[^]*scheduled/.test(document.querySelector("#told tbody").innerText)`)
	b.is("it tells of no other", `document.querySelectorAll("#told tbody tr").length === 2`)
	b.says("The topic's events begin at")

	b.click("Watch what happens from now on")
	b.says("as it happens")
	put(t, at, "watched", "x", "Timer-After", "2h")
	put(t, at, "other", "x", "Timer-After", "2h")
	b.is("what happens comes first",
		`document.querySelectorAll("#told tbody tr").length === 3 && /replaced[^]*replaced[^]*scheduled/.test(document.querySelector("#told tbody").innerText)`)
	b.says("to " + target + " · request " + requests + "/")

	b.withoutScript()
	for range 20 { // more than one page has
		put(t, at, "watched", "x", "Timer-After", "2h")
	}
	b.reads(page, "Older")
	b.click("Older")
	b.says("scheduled", "Newest")
}

// reads visits a page until it says something: what was just committed may take a moment to be
// read.
func (t *tab) reads(at string, texts ...string) {
	t.t.Helper()
	for end := time.Now().Add(patience); ; {
		t.visit(at)
		got := t.text()
		if !slices.ContainsFunc(texts, func(want string) bool { return !strings.Contains(got, want) }) {
			return
		}
		if time.Now().After(end) {
			t.t.Fatalf("%s does not come to say %q:\n%s", at, texts, got)
		}
	}
}

// Hostile IDs, headers and payloads are text, and their pages can be used.
func TestHostileInABrowser(t *testing.T) {
	t.Parallel()
	at := start(t)
	seed(t, at)
	b := open(t, at)
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
