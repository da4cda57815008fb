package ownership

import (
	"sync"
	"sync/atomic"
)

// failure is why a partition cannot go on. err ends one acquisition: reset clears it, and the partition is acquired
// again. A refusal is final.
type failure struct {
	refusal atomic.Pointer[error]

	mu     sync.Mutex // guards what follows
	err    error
	failed chan struct{} // closed when err is set
}

func newFailure() *failure { return &failure{failed: make(chan struct{})} }

// giveUp notes why the acquisition must end. The first reason counts.
func (f *failure) giveUp(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
		close(f.failed)
	}
}

func (f *failure) why() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *failure) done() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

func (f *failure) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.failed = nil, make(chan struct{})
}

func (f *failure) refuse(why error) {
	err := error(&Fatal{why})
	if f.refusal.CompareAndSwap(nil, &err) {
		f.giveUp(err)
	}
}

// refused is the error of refuse, nil if it was not called.
func (f *failure) refused() error {
	if err := f.refusal.Load(); err != nil {
		return *err
	}
	return nil
}
