package kafkatest

import (
	"context"
	"errors"
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
	dir := t.TempDir()
	mine, other := newMachineLock(dir, 2), newMachineLock(dir, 8) // other stands for another process
	mine.setAlone(true)
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
	// The waiters that gave up must not have kept the lock.
	if err := mine.acquire(deadline(t)); err != nil {
		t.Fatalf("acquire again: %v", err)
	}
	mine.release()
}

// A goroutine that is left behind fails the package, although all tests passed.
func TestLeakFreeFindsALeak(t *testing.T) {
	out, err := self("leaky", "-test.run=^$").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "kafkatest.spin") {
		t.Errorf("exit %v:\n%s", err, out)
	}
}

// lockers returns the locks of several processes of one machine.
func lockers(t *testing.T, alone ...bool) (ls []*machineLock) {
	t.Helper()
	dir := t.TempDir()
	for _, alone := range alone {
		l := newMachineLock(dir, 2)
		if !l.setAlone(alone) {
			t.Fatal("a lock that nobody holds")
		}
		ls = append(ls, l)
	}
	return ls
}

func acquire(t *testing.T, ls ...*machineLock) {
	t.Helper()
	for _, l := range ls {
		if err := l.acquire(deadline(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// waits makes l wait for the lock, and checks that it has to.
func waits(t *testing.T, l *machineLock) <-chan error {
	t.Helper()
	got := make(chan error, 1)
	go func() { got <- l.acquire(deadline(t)) }()
	still(t, got)
	return got
}

// still checks that a waiter has not got the lock.
func still(t *testing.T, got <-chan error) {
	t.Helper()
	select {
	case err := <-got:
		t.Fatalf("it does not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
}

func comes(t *testing.T, got <-chan error) {
	t.Helper()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

// On a machine with two cores two processes have the lock. A third one waits for either, and one
// that must be alone waits for both. A later process waits behind that one: it does not overtake.
func TestMachineLockIsForTwoOrOneAlone(t *testing.T) {
	ls := lockers(t, false, false, false, true, false)
	first, second, third, alone, last := ls[0], ls[1], ls[2], ls[3], ls[4]
	acquire(t, first, second)
	got := waits(t, third)
	second.release()
	comes(t, got)
	got = waits(t, alone)
	first.release()
	still(t, got)
	behind := waits(t, last)
	third.release()
	comes(t, got)
	if alone.setAlone(false) {
		t.Error("who is alone is not any more, with the lock in hand")
	}
	still(t, behind)
	alone.release()
	comes(t, behind)
	last.release()
}
