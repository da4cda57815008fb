package child

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

func TestChildrenDieWithTheirParent(t *testing.T) {
	parent := self("parent")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("read the server's address: %v", err)
	}
	addr := strings.TrimSpace(line)
	if !accepts(addr) {
		t.Fatalf("nobody listens on %s", addr)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed
	await.Until(t, time.Minute, "the server ends with its parent", func() bool { return !accepts(addr) })
}

func accepts(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// A paused process once answered a ping on a busy machine: SIGSTOP had not yet reached the threads that serve.
func TestPauseStopsEveryThread(t *testing.T) {
	cmd := self("spinner")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = p.Signal(Kill)
		_ = p.Wait() // killed
	}()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("wait for the spinner: %v", err)
	}
	for range 20 {
		if err := p.Pause(); err != nil {
			t.Fatal(err)
		}
		if states := threadStates(t, p.Pid()); strings.Trim(states, "T") != "" {
			t.Errorf("threads are in states %s, want all T (stopped)", states)
		}
		if err := p.Signal(Continue); err != nil {
			t.Fatal(err)
		}
	}
}

// threadStates has one letter for each thread, see proc_pid_stat(5).
func threadStates(t *testing.T, pid int) string {
	t.Helper()
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(stats) == 0 {
		t.Fatalf("list the threads of %d: %v", pid, err)
	}
	var states strings.Builder
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, behindName, _ := strings.Cut(string(stat), ") ")
		states.WriteByte(behindName[0])
	}
	return states.String()
}
