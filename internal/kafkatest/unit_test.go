package kafkatest

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

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
		l := &machineLock{paths: paths, turn: make(chan struct{}, 1)}
		if !l.setAlone(alone) {
			t.Fatal("a lock that nobody holds")
		}
		return l
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
	if alone.setAlone(false) {
		t.Error("who is alone is not any more, with the lock in hand")
	}
	alone.release()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	first.release()
}
