package kafkatest

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestJavaMajor(t *testing.T) {
	for _, tc := range []struct {
		name, out string
		want      int
	}{
		{"seventeen", `openjdk version "17.0.15" 2025-04-15`, 17},
		{"early access", `openjdk version "26-ea" 2026-03-17`, 26},
		{"eight", `java version "1.8.0_392"`, 8},
		{"none", "command not found", 0},
		{"absurd", `version "99999999999999999999"`, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := javaMajor(tc.out); got != tc.want {
				t.Errorf("javaMajor = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestProperties(t *testing.T) {
	const group, rf, isr = "group.min.session.timeout.ms", "offsets.topic.replication.factor", "min.insync.replicas"
	one, three := []string{"127.0.0.1:1"}, []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}
	for _, tc := range []struct {
		name    string
		opts    []Option
		brokers []string
		want    map[string]string // "" means not there
	}{
		{"quick", nil, one, map[string]string{group: "1000", rf: "1", isr: "", "node.id": "0"}},
		{"apache", []Option{ApacheDefaults()}, one, map[string]string{group: "", "group.initial.rebalance.delay.ms": ""}},
		{"apache, but", []Option{WithProperty(group, "7"), ApacheDefaults()}, one, map[string]string{group: "7"}},
		{"three", nil, three, map[string]string{rf: "3", isr: "2", "transaction.state.log.min.isr": "2"}},
		{"override", []Option{WithProperty(isr, "1")}, three, map[string]string{isr: "1", rf: "3"}},
		{"listener", []Option{WithListener("SECURE", "SASL_SSL")}, one, map[string]string{
			"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
			"advertised.listeners":           "PLAINTEXT://" + one[0] + ",SECURE://127.0.0.1:7",
		}},
		{"own", []Option{WithProperty("node.id", "9")}, one, map[string]string{"node.id": "0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := newSettings(tc.opts).properties(0, tc.brokers, tc.brokers, []string{"127.0.0.1:7"}, "data")
			for k, want := range tc.want {
				if got[k] != want {
					t.Errorf("%s=%s, want %q", k, got[k], want)
				}
			}
			if again := parseProperties(string(formatProperties(got))); !maps.Equal(again, got) {
				t.Errorf("written and read again: %v, want %v", again, got)
			}
		})
	}
}

func TestTopicIsValidAndUnique(t *testing.T) {
	valid := regexp.MustCompile(`^[a-zA-Z0-9._-]{1,220}$`)
	for _, name := range []string{"short", "späce and/slash", strings.Repeat("long", 100)} {
		t.Run(name, func(t *testing.T) {
			a, b := Topic(t), Topic(t)
			if !valid.MatchString(a) {
				t.Errorf("%q is not a valid topic name with room for suffixes", a)
			}
			if a == b {
				t.Errorf("%q twice", a)
			}
		})
	}
}

func TestMachineLock(t *testing.T) {
	paths := []string{filepath.Join(t.TempDir(), "lock")}
	newLock := func() *machineLock { return &machineLock{paths: paths, turn: make(chan struct{}, 1)} }
	mine, other := newLock(), newLock() // other stands for another process
	for range 2 {
		if err := mine.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wait := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		return other.acquire(ctx)
	}
	if err := wait(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("acquire of a held lock: %v, want a time-out", err)
	}
	mine.release()
	if err := wait(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("acquire after one of two releases: %v, want a time-out", err)
	}
	mine.release()
	if err := other.acquire(deadline(t)); err != nil {
		t.Fatalf("acquire of a free lock: %v", err)
	}
	other.release()
	// The waiters that gave up must not have kept it.
	if err := mine.acquire(deadline(t)); err != nil {
		t.Fatalf("acquire again: %v", err)
	}
	mine.release()
}

// A goroutine that is left fails the package, whose tests all passed.
func TestLeakFreeFindsALeak(t *testing.T) {
	out, err := self("leaky", "-test.run=^$").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "kafkatest.spin") {
		t.Errorf("exit %v:\n%s", err, out)
	}
}

// Two processes have the lock, a third one waits for either, and one that must be
// alone for both.
func TestMachineLockIsForTwoOrOneAlone(t *testing.T) {
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "0"), filepath.Join(dir, "1")}
	process := func(alone bool) *machineLock {
		return &machineLock{paths: paths, alone: alone, turn: make(chan struct{}, 1)}
	}
	acquire := func(l *machineLock) {
		t.Helper()
		if err := l.acquire(deadline(t)); err != nil {
			t.Fatal(err)
		}
	}
	waits := func(l *machineLock) <-chan error {
		t.Helper()
		got := make(chan error, 1)
		go func() { got <- l.acquire(deadline(t)) }()
		select {
		case err := <-got:
			t.Fatalf("it does not wait: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		return got
	}
	first, second, third, alone := process(false), process(false), process(false), process(true)
	acquire(first)
	acquire(second)
	got := waits(third)
	second.release()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	got = waits(alone)
	first.release()
	select {
	case err := <-got:
		t.Fatalf("alone beside another one: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	third.release()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	got = waits(first)
	alone.release()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	first.release()
}

func TestBrokerLogShown(t *testing.T) {
	b := &broker{dir: t.TempDir()}
	const before, info = "[2026-11-21] WARN of the test before\n", "[2026-11-21] INFO all is well (kafka.Log)\n"
	const wrong = "[2026-11-21] ERROR no disk (kafka.Log)\njava.io.IOException: INFO \n\tat Log.write\n"
	if err := os.WriteFile(b.logPath(), []byte(before+info+wrong+info), 0o600); err != nil {
		t.Fatal(err)
	}
	for all, want := range map[bool]string{true: info + wrong + info, false: wrong} {
		if got := string(b.log(int64(len(before)), all)); got != want {
			t.Errorf("all %v: %q, want %q", all, got, want)
		}
	}
}
