// Package docs does what README.md and the documents behind it say, from the files: the blocks of README, TUTORIAL,
// REFERENCE and CONFIGURATION as a new user would, and those of RUNBOOK and OPERATIONS after it has caused what they
// are for. It runs the real binary and Kafka's own tools, and asks a plain Kafka client what became of timers.
package docs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

const (
	root = "../.."
	// patience is far more than anything here takes.
	patience = 5 * time.Minute // for "go install", on a busy machine
	// partitions of the request topics.
	partitions = 4
)

// The documents whose blocks are run, or whose lists are held against the code.
const (
	tutorial      = "docs/TUTORIAL.md"
	reference     = "docs/REFERENCE.md"
	configuration = "docs/CONFIGURATION.md"
	metrics       = "docs/METRICS.md"
	migration     = "docs/MIGRATION.md"
	runbook       = "docs/RUNBOOK.md"
	operations    = "docs/OPERATIONS.md"
)

// section is a heading of a document, and what is below it.
type section struct {
	name, text string // without blocks
	blocks     []block
}

// block is a fenced block of a document with the comment right above it, which may say how it is run, or why not.
type block struct {
	at             string // file:line
	mark, language string
	text           string
}

var (
	headline = regexp.MustCompile(`^##+ (.*)$`)
	comment  = regexp.MustCompile(`^<!-- (.*) -->$`)
)

// read returns what a document has.
func read(t *testing.T, document string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// sections reads a document. The first one is what is above the first heading.
func sections(t *testing.T, document string) []section {
	t.Helper()
	all := []section{{}}
	lines := strings.Split(read(t, document), "\n")
	for i := 0; i < len(lines); i++ {
		now := &all[len(all)-1]
		language, fenced := strings.CutPrefix(lines[i], "```")
		if h := headline.FindStringSubmatch(lines[i]); h != nil {
			all = append(all, section{name: h[1]})
		} else if !fenced {
			now.text += lines[i] + "\n"
		} else {
			b := block{at: fmt.Sprint(document, ":", i+1), language: language}
			if m := comment.FindStringSubmatch(lines[i-1]); m != nil {
				b.mark = m[1]
			}
			for i++; lines[i] != "```"; i++ {
				b.text += lines[i] + "\n"
			}
			now.blocks = append(now.blocks, b)
		}
	}
	return all
}

// find returns a section of a document.
func find(t *testing.T, document, name string) section {
	t.Helper()
	all := sections(t, document)
	i := slices.IndexFunc(all, func(s section) bool { return s.name == name })
	if i < 0 {
		t.Fatalf("%s has no section %q", document, name)
	}
	return all[i]
}

// marked returns the blocks of a document, each of which says how it is run.
func marked(t *testing.T, document string) (blocks []block) {
	t.Helper()
	for _, s := range sections(t, document) {
		for _, b := range s.blocks {
			if b.mark == "" {
				t.Fatalf("%s: no comment above says how the block is run, or why not", b.at)
			}
			blocks = append(blocks, b)
		}
	}
	return blocks
}

// until waits for what gives no signal.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	await.Until(t, patience, what, ok)
}

// fires waits until a timer has come.
func fires(t *testing.T, out *kafkatest.Collector, id string) {
	t.Helper()
	until(t, id+" fires", func() bool {
		is := func(r kafkatest.Received) bool { return r.Header("waterclock-id") == id }
		return slices.ContainsFunc(out.Records(), is)
	})
}

func consume(t *testing.T, addr string, topics ...string) *kafkatest.Collector {
	t.Helper()
	return kafkatest.CollectFrom(t, []string{addr}, topics...)
}

func client(t *testing.T, addr string) *kgo.Client {
	t.Helper()
	return kafkatest.Client(t, kgo.SeedBrokers(addr), kgo.MetadataMinAge(250*time.Millisecond))
}

// request is a record as any client would write it, without our package.
func request(id, value string, headers ...string) *kgo.Record {
	return rig.Request("timers", id, value, headers...)
}

// environ is this process's environment without what the program would take for settings, and with more.
func environ(more ...string) []string { return append(rig.Environ(), more...) }

// run runs a command to its end, a minute at most, and returns its exit code and what it wrote.
func run(t *testing.T, cmd *exec.Cmd) (int, string) {
	t.Helper()
	if cmd.Env == nil {
		cmd.Env = environ()
	}
	hangs := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	out, err := cmd.CombinedOutput()
	if !hangs.Stop() {
		t.Fatalf("%v does not end; it wrote:\n%s", cmd.Args, out)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), string(out)
	}
	if err != nil {
		t.Fatalf("run %v: %v", cmd.Args, err)
	}
	return 0, string(out)
}

// startDev starts dev, and returns when it is ready. It says then where it is.
func startDev(t *testing.T, listen, dir string, more ...string) *rig.Process {
	t.Helper()
	p := rig.Start(t, append([]string{"dev", "--listen", listen, "--data-dir", dir}, more...)...)
	until(t, "commands to try", func() bool { return strings.Contains(p.Output(), ready) })
	return p
}

// ready is what dev says last when it is.
const ready = "Ctrl-C stops."

// server is a process group that runs until it is told to stop.
type server struct {
	cmd *exec.Cmd
	out *rig.Output
}

func startServer(t *testing.T, cmd *exec.Cmd) *server {
	t.Helper()
	p := &server{cmd: cmd, out: &rig.Output{}}
	cmd.Stdout, cmd.Stderr = p.out, p.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // go run has a child
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
		}
		if t.Failed() {
			t.Logf("%v wrote:\n%s", cmd.Args, p.out)
		}
	})
	return p
}

// stop signals all of the group, waits for its end and returns the exit code.
func (se *server) stop(t *testing.T, s syscall.Signal) int {
	t.Helper()
	if err := syscall.Kill(-se.cmd.Process.Pid, s); err != nil {
		t.Errorf("signal %v: %v", se.cmd.Args, err)
	}
	kill := time.AfterFunc(patience, func() { _ = syscall.Kill(-se.cmd.Process.Pid, syscall.SIGKILL) })
	defer kill.Stop()
	_ = se.cmd.Wait() // the exit code says it
	return se.cmd.ProcessState.ExitCode()
}
