package rig

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kit/child"
	"github.com/waterclock/waterclock/internal/kit/memory"
	"github.com/waterclock/waterclock/internal/node/config"
)

// Process is a run of the real binary.
type Process struct {
	Web
	cmd   *exec.Cmd
	child *child.Process
	out   *Output
}

// build builds cmd/waterclock. go run keeps what it links in Go's cache, but go build links each time: four seconds of
// processor time for each package of tests.
var build = sync.OnceValues(func() (path string, err error) {
	_, file, _, _ := runtime.Caller(0)
	dir, err := os.MkdirTemp("", "waterclock-test-")
	if err != nil {
		return "", err
	}
	kafkatest.AtEnd(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "waterclock")
	cmd := exec.Command("go", "run", "-exec", "cp", "./cmd/waterclock", path)
	cmd.Dir = filepath.Join(filepath.Dir(file), "..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the binary: %w: %s", err, out)
	}
	return path, nil
})

// Binary builds cmd/waterclock, once per test process, and returns its path.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := build()
	must(t, err)
	return path
}

// FreeAddr returns a loopback address that nobody listens on. The system gives it to no client
// for an outgoing connection before it is used.
func FreeAddr(t testing.TB) string { return kafkatest.FreeAddr(t) }

// Arguments returns the arguments of serve for a request topic, with a group of its own.
func Arguments(seeds []string, requests, dir string, more ...string) []string {
	return append([]string{
		"serve", "--brokers", strings.Join(seeds, ","), "--requests", requests, "--targets", "*",
		"--group", "group-of-" + requests, "--data-dir", dir,
	}, more...)
}

// Start runs the binary with args, and with an address of its own for --http, and for --api of
// dev. If the process still runs when the test ends, its ledger is checked and it is killed. What
// it wrote is shown if the test failed.
func Start(t testing.TB, args ...string) *Process {
	t.Helper()
	return StartFile(t, Binary(t), args...)
}

// StartFile is Start with another binary.
func StartFile(t testing.TB, path string, args ...string) *Process {
	t.Helper()
	addr := FreeAddr(t)
	if args[0] == "dev" {
		args = append(args, "--api", FreeAddr(t))
	}
	p := ExecFile(t, path, nil, append(args, "--http", addr)...)
	p.url = "http://" + addr
	return p
}

// Exec is Start with args unchanged, and with further environment variables, given as NAME=VALUE.
func Exec(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	return ExecFile(t, Binary(t), env, args...)
}

// ExecFile is Exec with another binary.
func ExecFile(t testing.TB, path string, env []string, args ...string) *Process {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = append(Environ(), env...)
	return run(t, cmd)
}

// run starts a command and keeps what it writes. A Stdout that the caller has set stays the caller's.
func run(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Web: Web{t: t}, cmd: cmd, out: &Output{}}
	if cmd.Stderr = p.out; cmd.Stdout == nil {
		cmd.Stdout = p.out
	}
	var err error
	if p.child, err = child.Start(cmd); err != nil {
		t.Fatalf("rig: start %v: %v", cmd.Args, err)
	}
	t.Cleanup(func() {
		p.noteLast()
		if p.child.Alive() {
			p.atRest()
		}
		p.Kill()
		if t.Failed() {
			t.Logf("process %v wrote:\n%s", cmd.Args[1:], tail(p.out.String()))
		}
	})
	return p
}

const shown = 20_000

func tail(s string) string {
	if len(s) > shown {
		return "… " + s[len(s)-shown:]
	}
	return s
}

// Output returns what the process has written so far.
func (p *Process) Output() string { return p.out.String() }

// Kill ends the process at once (SIGKILL) and waits until it is gone.
func (p *Process) Kill() {
	_ = p.child.Signal(child.Kill)
	<-p.child.Exited()
}

// Term asks the process to stop (SIGTERM).
func (p *Process) Term() { p.signal(syscall.SIGTERM) }

// End stops the process in order (SIGTERM), and fails the test if it goes in another way.
func (p *Process) End() {
	p.t.Helper()
	p.Term()
	if code := p.Exit(Patience); code != 0 {
		p.t.Errorf("rig: exit %d on SIGTERM", code)
	}
}

// Pause stops the process where it stands (SIGSTOP).
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Continue lets a paused process continue.
func (p *Process) Continue() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Signal(s); err != nil {
		p.t.Errorf("rig: signal %v: %v", s, err)
	}
}

// Signal sends a signal to the process, which may have ended by itself.
func (p *Process) Signal(s syscall.Signal) error { return p.child.Signal(s) }

// Ended is closed when the process is gone.
func (p *Process) Ended() <-chan struct{} { return p.child.Exited() }

// Exit waits for the end of the process and returns its exit code.
func (p *Process) Exit(limit time.Duration) int {
	p.t.Helper()
	select {
	case <-p.child.Exited():
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		p.t.Fatalf("rig: process still runs after %s", limit)
		return -1
	}
}

// Pid returns the process's ID.
func (p *Process) Pid() int { return p.child.Pid() }

// Output is a buffer that may be read while it is written to. mu guards b.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends b, and never fails.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

// String returns everything written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Environ returns this process's environment without the variables that control tests and CI: they look like settings,
// and the program refuses settings that it does not know.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, config.EnvPrefix) })
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("rig: %v", err)
	}
}

// Queues returns the shares of the minimum memory, but with queues of this many bytes.
func Queues(bytes int64) *memory.Shares {
	s := memory.Divide(memory.Minimum)
	s.Requests, s.Firings = bytes, bytes
	return &s
}

// Memory reads the process's resident size and its peak since the start (VmRSS and VmHWM), in bytes. It
// works only on Linux.
func (p *Process) Memory() (now, peak int64) {
	p.t.Helper()
	proc, err := procfs.NewProc(p.Pid())
	if err != nil {
		p.t.Fatalf("rig: memory of the process: %v", err)
	}
	status, err := proc.NewStatus()
	if err != nil || status.VmRSS == 0 || status.VmHWM == 0 {
		p.t.Fatalf("rig: memory of the process: %+v, %v", status, err)
	}
	return int64(status.VmRSS), int64(status.VmHWM)
}

// Peak returns the largest resident size of a process that has ended, in bytes. It works only on Linux,
// which counts in KiB.
func (p *Process) Peak() int64 {
	p.t.Helper()
	usage, ok := p.cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		p.t.Fatalf("rig: no usage of the process")
	}
	return usage.Maxrss << 10
}
