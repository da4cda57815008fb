package kafkatest

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// machineLock lets as many processes of this machine run clusters at a time as it has places.
// Each has the file of one place locked; a process that must be alone has all files locked.
// Within the process it counts, so that a test may start a cluster in addition to the shared
// one. The goroutine that puts a token into turn may change the count between 0 and 1, which
// takes as long as another process runs its tests. mu guards the fields below it and is never
// held for long. A process that waits for files holds the file queue. So no process waits
// forever, and a process that must be alone is not overtaken by later ones.
type machineLock struct {
	queue string
	paths []string      // of all places
	open  int           // how many of them this machine uses
	turn  chan struct{} // capacity 1

	mu      sync.Mutex
	alone   bool // how the next one locks, changed while holders is 0
	holders int
	unlock  func() // set while holders > 0
}

// maxPlaces is how many processes have clusters at a time on the largest machine.
const maxPlaces = 4

// placesOn returns how many processes have clusters at a time on a machine with this many
// cores. A process leaves most of two cores idle, because its tests mostly wait.
func placesOn(cores int) int { return min(max(2, cores*3/4), maxPlaces) }

// newMachineLock names the lock that all test processes of a machine share.
func newMachineLock(dir string, cores int) *machineLock {
	at := func(what any) string {
		return filepath.Join(dir, fmt.Sprintf("waterclock-kafkatest-%v.lock", what))
	}
	l := &machineLock{queue: at("gate"), open: placesOn(cores), turn: make(chan struct{}, 1)}
	for i := range maxPlaces {
		l.paths = append(l.paths, at(i))
	}
	return l
}

type fileLock struct {
	unlock func()
	err    error
}

// acquire waits for the lock until ctx ends. A lock that is granted later is given back at
// once.
func (m *machineLock) acquire(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for this process's lock %s: %w", m.paths, ctx.Err())
	}
	if m.join() {
		<-m.turn
		return nil
	}
	locked := make(chan fileLock)
	go m.lockFiles(ctx, locked)
	select {
	case got := <-locked:
		defer func() { <-m.turn }()
		if got.err != nil {
			return fmt.Errorf("lock %s: %w", m.paths, got.err)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.holders, m.unlock = 1, got.unlock
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for another process's lock %s: %w", m.paths, ctx.Err())
	}
}

// setAlone sets how the lock is acquired from now on. It returns false while the lock is held.
func (m *machineLock) setAlone(alone bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.holders > 0 {
		return false
	}
	m.alone = alone
	return true
}

// join counts one more holder if the process already has the lock.
func (m *machineLock) join() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.holders == 0 {
		return false
	}
	m.holders++
	return true
}

// lockFiles blocks on the files. It hands the lock, and with it the turn, to acquire; if acquire has given up, it gives
// both back.
func (m *machineLock) lockFiles(ctx context.Context, locked chan<- fileLock) {
	m.mu.Lock()
	paths, count := m.paths[:m.open], 1
	if m.alone {
		paths, count = m.paths, len(m.paths)
	}
	m.mu.Unlock()
	got := lockSome(m.queue, paths, count)
	select {
	case locked <- got:
	case <-ctx.Done():
		if got.err == nil {
			got.unlock()
		}
		<-m.turn
	}
}

// lockSome waits its turn in the queue, and locks the given number of files, first those that are free. Further files
// that are locked later are unlocked immediately.
func lockSome(queue string, paths []string, count int) fileLock {
	pass, err := lockedfile.MutexAt(queue).Lock()
	if err != nil {
		return fileLock{err: err}
	}
	defer pass()
	free, done := make(chan fileLock), make(chan struct{})
	defer close(done)
	for _, path := range paths {
		go lockOne(path, free, done)
	}
	var held []func()
	all := fileLock{unlock: func() {
		for _, unlock := range held {
			unlock()
		}
	}}
	for range count {
		got := <-free
		if got.err != nil {
			all.unlock()
			return got
		}
		held = append(held, got.unlock)
	}
	return all
}

func lockOne(path string, free chan<- fileLock, done <-chan struct{}) {
	unlock, err := lockedfile.MutexAt(path).Lock()
	select {
	case free <- fileLock{unlock, err}:
	case <-done:
		if err == nil {
			unlock()
		}
	}
}

// release undoes one acquire.
func (m *machineLock) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.holders--; m.holders == 0 {
		m.unlock()
	}
}
