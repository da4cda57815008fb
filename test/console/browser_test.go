package console

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

const (
	// envRequire has tests fail where there is no browser: CI sets it.
	envRequire = "WATERCLOCK_REQUIRE_BROWSER"
	// envShots is a directory that pictures of pages are put into, to be looked at.
	envShots = "WATERCLOCK_SCREENSHOTS"
	// stepTime bounds one step of a test in the browser.
	stepTime = 30 * time.Second
	// truthTime is how long a page may take to be as it should.
	truthTime = 10 * time.Second
)

// browser is the program, or the end of the test.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if at, err := exec.LookPath(name); err == nil {
			return at
		}
	}
	const how = "there is no Chromium on this machine: install it (Debian: apt-get install chromium)"
	if os.Getenv(envRequire) == "1" {
		t.Fatal(how)
	}
	t.Skip(how + "; " + envRequire + "=1 has this test fail without")
	return ""
}

// tab is a page in a browser of its own that notes whatever is not as it should be.
type tab struct {
	t      *testing.T
	ctx    context.Context //nolint:containedctx // that is what chromedp's calls are made with
	origin string

	mu    sync.Mutex // guards wrong
	wrong []string
}

// open starts a browser for the console.
func (s *setup) open() *tab {
	t := s.t
	t.Helper()
	at := browser(t)
	alloc, stop := chromedp.NewExecAllocator(
		context.Background(), append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
			chromedp.ExecPath(at), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()),
			chromedp.WindowSize(1280, 900),
			chromedp.Flag("disable-component-update", true), chromedp.Flag("no-proxy-server", true))...)
	ctx, cancel := chromedp.NewContext(alloc)
	b := &tab{t: t, ctx: ctx, origin: s.URL}
	t.Cleanup(func() {
		b.Well()
		cancel()
		stop()
	})
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	b.do("watch what pages do", command(network.Enable, network.EnableParams{}), command(cdplog.Enable, cdp.Empty{}),
		command(runtime.Enable, cdp.Empty{}))
	return b
}

// note keeps errors, and requests that leave the origin.
func (t *tab) note(event any) {
	var what string
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, t.origin+"/") && !strings.HasPrefix(e.Request.URL, "data:") {
			what = "it asks elsewhere: " + e.Request.URL
		}
	case *runtime.EventExceptionThrown:
		what = "exception: " + e.ExceptionDetails.Text
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.EntryLevelError || e.Entry.Level == cdplog.EntryLevelWarning {
			what = fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventConsoleAPICalled:
		what = "console: " + string(e.Type)
	case *page.EventJavascriptDialogOpening:
		what = "dialog: " + e.Message
	}
	if what != "" {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.wrong = append(t.wrong, what)
	}
}

// Well reports what was noted, but for what the test has caused and so expects.
func (t *tab) Well(expected ...string) {
	t.t.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.wrong {
		if !slices.ContainsFunc(expected, func(e string) bool { return strings.Contains(w, e) }) {
			t.t.Error(w)
		}
	}
	t.wrong = nil
}

// action is a step of a test that has no value.
type action = chromedp.Action[chromedp.Void]

// command is a call of the browser's protocol as a step.
func command[P, R any](c cdp.Command[P, R], params P) action {
	return func(ctx context.Context, to *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, to, c, params)
		return chromedp.Void{}, err
	}
}

// do runs actions, and ends the test if one fails.
func (t *tab) do(what string, actions ...action) {
	t.t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, stepTime)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.t.Fatalf("%s: %v", what, err)
	}
}

// eval is what JavaScript evaluates to.
func eval[T any](b *tab, js string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTime)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](js))
	if err != nil {
		b.t.Fatalf("evaluate %s: %v", js, err)
	}
	return v
}

// promise is the text that a promise of JavaScript comes to.
func promise(b *tab, js string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTime)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[string](js, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("evaluate %s: %v", js, err)
	}
	return v
}

// visit goes to a page and waits until it is there.
func (t *tab) visit(path string) {
	t.t.Helper()
	t.do("visit "+path, chromedp.Navigate(t.origin+path), chromedp.WaitReady(chromedp.CSS("footer")))
}

// follow does what leads to another page, and waits for that.
func (t *tab) follow(what string, step action) {
	t.t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, stepTime)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, step); err != nil {
		t.t.Fatalf("%s: %v\n%s", what, err, t.text())
	}
}

// click clicks on a link or button that has a text, and waits for the page behind it.
func (t *tab) click(label string) {
	t.t.Helper()
	quoted := `"` + label + `"` // XPath knows no escapes
	t.follow("click on "+label,
		chromedp.Click(chromedp.Search(
			fmt.Sprintf(`//main//*[self::a or self::button or self::summary][normalize-space()=%s]`, quoted))))
}

// fill types into a field.
func (t *tab) fill(selector, text string) {
	t.t.Helper()
	t.do("fill "+selector, chromedp.SendKeys(chromedp.CSS(selector), text))
}

// text is what is to be read in the page.
func (t *tab) text() string {
	t.t.Helper()
	return eval[string](t, `document.querySelector("main")?.innerText ?? ""`)
}

// says waits until the page says something.
func (t *tab) says(texts ...string) {
	t.t.Helper()
	t.until(stepTime, fmt.Sprintf("the page says %q", texts), func() bool { return t.has(texts) })
}

func (t *tab) has(texts []string) bool {
	t.t.Helper()
	got := t.text()
	return !slices.ContainsFunc(texts, func(want string) bool { return !strings.Contains(got, want) })
}

// reads visits a page until it says something: what was just committed may take a moment to be
// read.
func (t *tab) reads(at string, texts ...string) {
	t.t.Helper()
	t.until(patience, fmt.Sprintf("%s says %q", at, texts), func() bool {
		t.visit(at)
		return t.has(texts)
	})
}

// is waits until JavaScript evaluates to true: some of a page's state, such as where the focus
// is, comes a moment after the page.
func (t *tab) is(what, js string) {
	t.t.Helper()
	t.within(truthTime, what, js)
}

// within waits like the method is, with a limit of its own.
func (t *tab) within(limit time.Duration, what, js string) {
	t.t.Helper()
	t.until(limit, what+" ("+js+")", func() bool { return eval[bool](t, js) })
}

func (t *tab) until(limit time.Duration, what string, ok func() bool) {
	t.t.Helper()
	if _, came := await.Within(limit, ok); !came {
		t.t.Fatalf("not so within %s: %s\n%s", limit, what, t.text())
	}
}

// press types keys as on a keyboard.
func (t *tab) press(keys ...string) {
	t.t.Helper()
	for _, k := range keys {
		t.do("press a key", chromedp.KeyEvent(k))
	}
}

// shortcut presses a key that types a character unless the page prevents that.
func (t *tab) shortcut(key string) {
	t.t.Helper()
	for _, kind := range []input.DispatchKeyEventType{"keyDown", "keyUp"} {
		t.do("press "+key,
			command(input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: key, Text: key}))
	}
}

// tabTo goes on by the Tab key until an element has the focus.
func (t *tab) tabTo(selector string) {
	t.t.Helper()
	for range 60 {
		t.press(kb.Tab)
		if eval[bool](t, fmt.Sprintf(`document.activeElement?.matches(%q) === true`, selector)) {
			t.is("the focus is seen at "+selector,
				`getComputedStyle(document.activeElement).outlineStyle !== "none" || getComputedStyle(document.activeElement).position === "absolute"`)
			return
		}
	}
	t.t.Fatalf("60 times Tab do not lead to %s", selector)
}

// look sets width and theme.
func (t *tab) look(width int64, theme string) {
	t.t.Helper()
	t.do("set width and theme",
		command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900,
			DeviceScaleFactor: 1}),
		command(emulation.SetEmulatedMedia,
			emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme",
				Value: theme}}}))
}

// withoutScript has pages run no script.
func (t *tab) withoutScript() {
	t.t.Helper()
	t.do("switch scripts off",
		command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
}

// shot keeps a picture of the page where somebody wants to look at it.
func (t *tab) shot(name string) {
	t.t.Helper()
	dir := os.Getenv(envShots)
	if dir == "" {
		return
	}
	png, err := chromedp.Run(t.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.t.Fatalf("take a picture: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600); err != nil {
		t.t.Fatal(err)
	}
}

// path is an address with a query.
func path(at string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return at + "?" + q.Encode()
}
