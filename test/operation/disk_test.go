package operation

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// A full disk: the process leaves the group and exits 1 naming the path, at once,
// also while writes are blocked; with space it goes on and nothing is lost.
func TestFullDiskEndsTheProcess(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := kafkatest.Shared(t)
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=8m", "none", dir).CombinedOutput(); err != nil {
		t.Skipf("a small disk needs root: %v: %s; statestore's TestFullDisk has the store's share", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	requests := c.CreateTopic(t, 2, nil)
	target := c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-out")
	out := kafkatest.Collect(t, c, target)
	// What is due later than half a minute from now goes to the disk once there is some of it.
	args := rig.Arguments(c.Seeds(), requests, dir, "--session-timeout", "40s", "--memory", "256MiB")
	p := rig.Start(t, args...)
	p.Ready(2, time.Minute)
	const n = 600
	due := time.Now().Add(40 * time.Second)
	recs := timers(requests, target, "id-", n, due, time.Second, incompressible(60_000))
	rig.Send(t, c.Client(t), recs...)
	if code := p.Exit(time.Minute); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	// The log says it, and the last line of the process.
	if said := p.Output(); strings.Count(said, "no space left on device") > 2 {
		t.Errorf("a full disk is said more than once:\n%s", said)
	}
	if said := p.Output(); !strings.Contains(said, dir) || !strings.Contains(said, "no space left on device") {
		t.Error("it does not say which disk is full")
	}
	ended := time.Now()
	if o, err := exec.Command("mount", "-o", "remount,size=256m", dir).CombinedOutput(); err != nil {
		t.Fatalf("remount: %v: %s", err, o)
	}
	p = rig.Start(t, args...)
	p.Ready(2, time.Minute)
	if took := time.Since(ended); took > 30*time.Second {
		t.Errorf("ready %s after the end, about a session: it did not leave the group", took)
	} else {
		t.Logf("ready %s after the end", took)
	}
	out.WaitFor(n, 2*time.Minute)
	out.Quiet(time.Second)
	rig.Exactly(t, out.Records(), n)
	p.Balanced(0)
}

// incompressible bytes take as much on disk as in memory.
func incompressible(n int) []byte {
	b, x := make([]byte, n), uint64(88172645463325252)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x >> 24)
	}
	return b
}
