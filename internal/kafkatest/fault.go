package kafkatest

import (
	"context"
	"fmt"
	"sync"
)

// Every, as the number of a request, means all requests, until Release.
const Every = 0

// way is the direction in which a frame travels.
type way uint8

const (
	toBroker way = iota
	toClient
)

// action is what a fault does to a frame.
type action uint8

const (
	pass action = iota
	hold        // keep it until Release
	cut         // drop it and the connection with it
)

// Fault is one thing that a Wire does to requests or responses of one kind.
type Fault struct {
	action action
	way    way
	key    int16
	nth    int // 1 is the next match, Every means all

	once     sync.Once
	released chan struct{} // closed by Release
	hit      chan struct{} // closed at the first hit

	mu   sync.Mutex // guards the fields below
	seen int        // matches, hit or not
	hits int
}

func newFault(a action, w way, key int16, nth int) *Fault {
	return &Fault{
		action: a, way: w, key: key, nth: nth,
		released: make(chan struct{}), hit: make(chan struct{}),
	}
}

// Wait returns when the fault has hit for the first time: the request or
// response is held, or dropped.
func (f *Fault) Wait(ctx context.Context) error {
	select {
	case <-f.hit:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for a request with API key %d: %w", f.key, ctx.Err())
	}
}

// Hits returns how many requests or responses the fault has held or dropped.
func (f *Fault) Hits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits
}

// Release ends the fault: what it holds continues, in order. Releasing twice is legal.
func (f *Fault) Release() { f.once.Do(func() { close(f.released) }) }

func (f *Fault) over() bool {
	select {
	case <-f.released:
		return true
	default:
		return false
	}
}

// judge counts a frame and returns what this fault does to it.
func (f *Fault) judge(w way, key int16) action {
	if f.way != w || f.key != key || f.over() {
		return pass
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen++
	if f.nth != Every && f.seen != f.nth {
		return pass
	}
	if f.hits++; f.hits == 1 {
		close(f.hit)
	}
	return f.action
}
