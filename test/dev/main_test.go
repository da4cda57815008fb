// Package dev drives waterclock as a new user would: dev from its first start
// to the second, and what README.md and the documents behind it say, from the files.
package dev

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	root = "../.."
	// patience is far more than anything here takes.
	patience = time.Minute
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// drivesProcesses leaves a test out of runs with the race detector, which has
// nothing to see in other processes.
func drivesProcesses(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: what this test drives are processes of their own")
	}
}

// consumer is a plain read_committed consumer that keeps what it got, by the
// text of the records' keys.
type consumer struct {
	mu       sync.Mutex // guards received
	received []kafkatest.Received
}

func consume(t *testing.T, addr string, topics ...string) *consumer {
	t.Helper()
	cl := client(t, addr, kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.MetadataMaxAge(time.Second))
	c := &consumer{}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			c.add(cl.PollFetches(ctx))
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return c
}

func (c *consumer) add(fetches kgo.Fetches) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	fetches.EachRecord(func(r *kgo.Record) { c.received = append(c.received, kafkatest.Received{Record: r, At: now}) })
}

// all checks what came so far, and returns it by timer ID.
func (c *consumer) all(t *testing.T) map[string][]kafkatest.Received {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	return rig.Emissions(t, c.received)
}

func (c *consumer) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.received)
}

func (c *consumer) has(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.received {
		if r.Header("waterclock-id") == id {
			return true
		}
	}
	return false
}

func client(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl := kafkatest.Client(t, append(opts, kgo.SeedBrokers(addr), kgo.MetadataMinAge(250*time.Millisecond))...)
	return cl
}

// environ is this process's environment without what the program would take for
// settings (the variables of CI begin like them), and with more.
func environ(more ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "WATERCLOCK_") })
	return append(env, more...)
}

// run runs a command to its end, a minute at most, and returns its exit code and what it wrote.
func run(t *testing.T, cmd *exec.Cmd) (int, string) {
	t.Helper()
	if cmd.Env == nil {
		cmd.Env = environ()
	}
	hangs := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
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
