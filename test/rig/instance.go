package rig

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest/caller"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
)

// missingAfter is the MissingAfter of instances whose test does not set it. It is short, so that tests do not wait 10 s
// for dead letters: on one machine metadata is never old for long.
const missingAfter = time.Second

// Instance is a service in the test's process.
type Instance struct {
	Web
	cancel context.CancelFunc
	done   chan struct{}
	api    chan string // has the API's URL once
	err    error
}

// Config returns settings for an instance of a test: a directory and an HTTP port of its own, every target allowed, a
// group of the request topic's name.
func Config(t testing.TB, seeds []string, requests ...string) *config.Config {
	c := config.Default()
	c.Brokers, c.Requests, c.Targets = seeds, requests, []string{"*"}
	c.Group = "group-of-" + requests[0]
	c.DataDir, c.HTTP = t.TempDir(), "127.0.0.1:0"
	c.Memory = config.MinMemory // not the share of this machine
	return &c
}

// Serve starts an instance and returns once it serves HTTP. It is stopped when the test ends, and its log is shown if
// the test failed.
func Serve(t testing.TB, cfg *config.Config, o node.Options) *Instance {
	t.Helper()
	must(t, cfg.Validate())
	return start(t, cfg, &testLog{t: t}, o)
}

// noAccessCheck is so long an interval that a running instance never checks its rights, unless a test sets another. The
// check sends an EndTxn for a transaction that does not exist, which a Wire that holds or counts EndTxn would see.
const noAccessCheck = 10_000 * time.Hour

// start starts an instance that logs to out. If the instance still runs when the test ends,
// its ledger is checked and it is stopped.
func start(t testing.TB, cfg *config.Config, out io.Writer, o node.Options) *Instance {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	in := &Instance{cancel: cancel, done: make(chan struct{}), api: make(chan string, 1)}
	started := make(chan string, 1)
	if o.MissingAfter == 0 {
		o.MissingAfter = missingAfter
	}
	if o.AccessInterval == 0 {
		o.AccessInterval = noAccessCheck
	}
	o.Started = func(addr string) { started <- addr }
	if o.StartedAPI == nil {
		o.StartedAPI = func(url string) { in.api <- url }
	}
	log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: cfg.LogLevel}))
	go func() {
		defer close(in.done)
		in.err = node.RunWith(ctx, cfg, log, o)
	}()
	t.Cleanup(func() {
		if in.runs() {
			in.atRest()
		}
		if err := in.Stop(); err != nil {
			t.Errorf("rig: instance ended with %v", err)
		}
	})
	select {
	case addr := <-started:
		in.Web = Web{t: t, url: "http://" + addr}
	case <-in.done:
		t.Fatalf("rig: instance did not start: %v", in.err)
	}
	return in
}

// API waits until the instance listens for its API, and returns a caller of it.
func (in *Instance) API() *caller.Caller {
	in.t.Helper()
	select {
	case url := <-in.api:
		in.api <- url
		return caller.New(in.t, url)
	case <-in.done:
		in.t.Fatalf("rig: instance ended before it listened for its API: %v", in.err)
		return nil
	}
}

func (in *Instance) runs() bool {
	select {
	case <-in.done:
		return false
	default:
		return true
	}
}

// Stop stops the instance in order and returns what its Run returned. The end of the test reports an error too.
func (in *Instance) Stop() error {
	in.noteLast()
	in.cancel()
	return in.Wait(time.Minute)
}

// End stops the instance in order, and ends the test if it goes in another way.
func (in *Instance) End() {
	in.t.Helper()
	must(in.t, in.Stop())
}

// Wait waits for the end of the instance.
func (in *Instance) Wait(limit time.Duration) error {
	select {
	case <-in.done:
		return in.err
	case <-time.After(limit):
		return fmt.Errorf("instance still runs after %s", limit)
	}
}

// testLog writes lines to the test's log, as long as the test runs.
type testLog struct {
	t    testing.TB
	once sync.Once
	mu   sync.Mutex // guards over
	over bool
}

func (t *testLog) Write(b []byte) (int, error) {
	t.once.Do(func() {
		t.t.Cleanup(func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.over = true
		})
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.t.Logf("%s", b)
	}
	return len(b), nil
}

// At returns the HTTP pages of the instance at addr. It is for instances that were not started by this package.
func At(t testing.TB, addr string) *Web { return &Web{t: t, url: "http://" + addr} }

// ServeLogged is Serve for an instance whose log the test reads, and whose settings Validate may reject: a test must
// not wait for timeouts that are long for good reasons.
func ServeLogged(t testing.TB, cfg *config.Config, o node.Options) (*Instance, *Log) {
	t.Helper()
	lines := &Log{test: testLog{t: t}}
	return start(t, cfg, lines, o), lines
}

// Log is an instance's log.
type Log struct {
	test testLog
	all  Output
}

func (l *Log) Write(b []byte) (int, error) {
	_, _ = l.all.Write(b) // never fails
	return l.test.Write(b)
}

// Lines returns the lines so far that contain text.
func (l *Log) Lines(text string) (found []string) {
	for line := range strings.Lines(l.all.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}
