package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/waterclock/waterclock/test/rig"
)

// learner does what the tutorial says, in an empty directory, with a broker of its own.
type learner struct {
	dir, broker string
	env         []string
	dev, worker *server
	said        string // by the last command that has ended
	again       func() // runs the last command once more, if it may have come too soon; else nil
}

// TestTutorial does every step of the tutorial in its order, and sees what the tutorial shows.
func TestTutorial(t *testing.T) {
	t.Parallel()
	l := newLearner(t)
	steps := map[string]func(*testing.T, block){
		"run": l.run(0), "run: fails": l.run(1), "run: until shown": l.runAgain,
		"run: dev": l.startDev, "run: worker": l.startWorker,
		"kill": l.kill, "shows": l.shows, "dev shows": l.devShows, "worker shows": l.workerShows,
	}
	seen := make(map[string]bool)
	for _, b := range marked(t, tutorial) {
		if name, ok := strings.CutPrefix(b.mark, "file: "); ok {
			l.save(t, name, b.text)
			continue
		}
		do := steps[b.mark]
		if do == nil {
			t.Fatalf("%s: the comment %q is none that this test knows", b.at, b.mark)
		}
		if do(t, b); t.Failed() {
			t.FailNow() // the steps that follow build on this one
		}
		seen[b.mark] = true
	}
	if len(seen) < len(steps) {
		t.Errorf("the tutorial has steps of the kinds %v only", seen)
	}
	for _, order := range []string{"18", "19"} {
		if n := strings.Count(l.worker.out.String(), "order "+order+" "); n != 1 {
			t.Errorf("the worker has seen order %s %d times", order, n)
		}
	}
	if strings.Contains(l.worker.out.String(), "order 17 ") {
		t.Error("the worker has seen order 17, which was paid")
	}
	out := consume(t, l.broker, "payments.overdue") // whose data has outlived the crash
	fires(t, out, "unpaid-18")
	fires(t, out, "unpaid-19")
	rig.Once(t, out.Records())
}

func newLearner(t *testing.T) *learner {
	t.Helper()
	bin, api := t.TempDir(), rig.FreeAddr(t)
	if err := os.Symlink(rig.Binary(t), filepath.Join(bin, "waterclock")); err != nil {
		t.Fatal(err)
	}
	l := &learner{dir: t.TempDir(), broker: rig.FreeAddr(t)}
	path := []string{bin, filepath.Dir(rig.Python(t, rig.Confluent)), os.Getenv("PATH")}
	l.env = environ("PATH="+strings.Join(path, string(os.PathListSeparator)),
		"WATERCLOCK_BROKERS="+l.broker, "WATERCLOCK_LISTEN="+l.broker, "WATERCLOCK_HTTP="+rig.FreeAddr(t),
		"WATERCLOCK_API="+api, "WATERCLOCK_URL=http://"+api)
	return l
}

func (l *learner) save(t *testing.T, name, text string) {
	t.Helper()
	text = strings.ReplaceAll(text, readmeAddr, l.broker)
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (l *learner) shell(b block) *exec.Cmd {
	cmd := exec.Command("bash", "-e", "-c", b.text)
	cmd.Dir, cmd.Env = l.dir, l.env
	return cmd
}

// run returns a step that ends with this exit code.
func (l *learner) run(want int) func(*testing.T, block) {
	return func(t *testing.T, b block) {
		t.Helper()
		code, out := run(t, l.shell(b))
		if l.said, l.again = out, nil; code != want {
			t.Errorf("%s: exit %d, want %d:\n%s", b.at, code, want, out)
		}
	}
}

// runAgain is for a command whose answer takes a moment to be as shown.
func (l *learner) runAgain(t *testing.T, b block) {
	t.Helper()
	once := l.run(0)
	once(t, b)
	l.again = func() { once(t, b) }
}

// startDev starts dev. One that still runs is stopped before, as the tutorial says.
func (l *learner) startDev(t *testing.T, b block) {
	t.Helper()
	if l.dev != nil && l.dev.cmd.ProcessState == nil {
		l.dev.stop(t, syscall.SIGINT)
	}
	l.dev = startServer(t, l.shell(b))
	until(t, "dev is ready",
		func() bool { return strings.Contains(l.dev.out.String(), ready) })
}

func (l *learner) startWorker(t *testing.T, b block) { l.worker = startServer(t, l.shell(b)) }

// kill ends this test's dev only. What the tutorial says would end those of others, too.
func (l *learner) kill(t *testing.T, _ block) { l.dev.stop(t, syscall.SIGKILL) }

func (l *learner) shows(t *testing.T, b block) {
	t.Helper()
	want := asShown(b)
	if again := l.again; again != nil {
		until(t, b.at+" is shown", func() bool { again(); return want.MatchString(l.said) })
	}
	if !want.MatchString(l.said) {
		t.Errorf("%s: the tutorial shows\n%sThe command has written\n%s", b.at, b.text, l.said)
	}
}

func (l *learner) devShows(t *testing.T, b block)    { l.eventually(t, b, l.dev) }
func (l *learner) workerShows(t *testing.T, b block) { l.eventually(t, b, l.worker) }

func (l *learner) eventually(t *testing.T, b block, p *server) {
	t.Helper()
	want := asShown(b)
	until(t, b.at+" is shown", func() bool { return want.MatchString(p.out.String()) })
}

// varies is what differs from run to run: instants, durations, positions, and the spaces that align columns.
var varies = strings.NewReplacer("INSTANT", `\S+Z`, "LENGTH", `[0-9.]+m?s`, "PLACE", `[0-9]+/[0-9]+`, "SPACE", ` +`)

// asShown returns an expression for the lines of a block, wherever they stand.
func asShown(b block) *regexp.Regexp {
	text := strings.TrimSpace(b.text)
	for _, v := range []struct{ from, to string }{
		{`\d{4}-\d\d-\d\dT[0-9:.]+Z`, "INSTANT"},
		{`\b\d+m?s\b`, "LENGTH"},
		{`\b\d+/\d+\b`, "PLACE"},
		{` +`, "SPACE"},
	} {
		text = regexp.MustCompile(v.from).ReplaceAllString(text, v.to)
	}
	return regexp.MustCompile(`(?m)^` + varies.Replace(regexp.QuoteMeta(text)) + ` *$`)
}
