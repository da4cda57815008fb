package rig

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// streamTick is how often a stream sends that is not in bursts.
const streamTick = 10 * time.Millisecond

// Stream sends requests at a steady rate.
type Stream struct {
	t      testing.TB
	cl     *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}
	sent   int // the goroutine's until done is closed

	mu  sync.Mutex
	err error // guarded by mu
}

// StartStream sends what next makes, perSecond of it a second, until it is
// stopped or the test ends. perSecond is a multiple of 100; n counts from 0.
func StartStream(t testing.TB, cl *kgo.Client, perSecond int, next func(n int) *kgo.Record) *Stream {
	return StartBursts(t, cl, perSecond*int(streamTick)/int(time.Second), streamTick, next)
}

// StartBursts is StartStream with n at once, one burst each time that every has passed. A
// request and a step cost brokers and instance processor time, what is in them little: so
// this is cheaper for a test that needs timers all the time, but no step at each instant.
func StartBursts(t testing.TB, cl *kgo.Client, n int, every time.Duration, next func(n int) *kgo.Record) *Stream {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Stream{t: t, cl: cl, cancel: cancel, done: make(chan struct{})}
	go s.run(ctx, n, every, next)
	t.Cleanup(func() { cancel(); <-s.done }) // before the client's own
	return s
}

func (s *Stream) run(ctx context.Context, perTick int, every time.Duration, next func(n int) *kgo.Record) {
	defer close(s.done)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for range perTick {
				s.cl.Produce(context.Background(), next(s.sent), s.produced)
				s.sent++
			}
		}
	}
}

func (s *Stream) produced(_ *kgo.Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// Stop ends the stream and returns how many requests it sent. All of them are in
// the log, or the test fails.
func (s *Stream) Stop() int {
	s.t.Helper()
	s.cancel()
	<-s.done
	if err := s.cl.Flush(s.t.Context()); err != nil {
		s.t.Fatalf("flush the stream: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		s.t.Fatalf("send the stream: %v", s.err)
	}
	return s.sent
}
