package kafkatest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// machineLock lets one process of this machine run clusters at a time; inside
// the process it counts, so that a test may start a cluster beside the shared
// one. Who puts a token into turn may change the count between 0 and 1, which
// takes as long as another process runs its tests; mu guards the fields below
// it and is never held for long.
type machineLock struct {
	path string
	turn chan struct{} // capacity 1

	mu      sync.Mutex
	holders int
	unlock  func() // set while holders > 0
}

// newMachineLock names the lock that all test processes of a machine share.
func newMachineLock() *machineLock {
	return &machineLock{
		path: filepath.Join(os.TempDir(), "waterclock-kafkatest.lock"),
		turn: make(chan struct{}, 1),
	}
}

type fileLock struct {
	unlock func()
	err    error
}

// acquire waits for the lock until ctx ends. A lock that comes later than that
// is given back at once.
func (l *machineLock) acquire(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for this process's lock %s: %w", l.path, ctx.Err())
	}
	if l.join() {
		<-l.turn
		return nil
	}
	locked := make(chan fileLock)
	go l.lockFile(ctx, locked)
	select {
	case got := <-locked:
		defer func() { <-l.turn }()
		if got.err != nil {
			return fmt.Errorf("lock %s: %w", l.path, got.err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.holders, l.unlock = 1, got.unlock
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for another process's lock %s: %w", l.path, ctx.Err())
	}
}

// join counts one holder more if the process has the lock already.
func (l *machineLock) join() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders == 0 {
		return false
	}
	l.holders++
	return true
}

// lockFile blocks on the file. It hands the lock, and with it the turn, to
// acquire; if that has gone, it gives both back.
func (l *machineLock) lockFile(ctx context.Context, locked chan<- fileLock) {
	unlock, err := lockedfile.MutexAt(l.path).Lock()
	select {
	case locked <- fileLock{unlock, err}:
	case <-ctx.Done():
		if err == nil {
			unlock()
		}
		<-l.turn
	}
}

// release undoes one acquire.
func (l *machineLock) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders--; l.holders == 0 {
		l.unlock()
	}
}
