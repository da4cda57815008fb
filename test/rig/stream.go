package rig

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

// streamTick is how often a stream sends, unless it sends in bursts.
const streamTick = 10 * time.Millisecond

// Stream sends requests at a steady rate.
type Stream struct {
	t      testing.TB
	cl     *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}
	sent   int // belongs to the goroutine until done is closed

	mu  sync.Mutex
	err error // guarded by mu
}

// StartStream sends perSecond requests made by next per second, until it is stopped or the test ends. perSecond is a
// multiple of 100; n counts from 0.
func StartStream(t testing.TB, cl *kgo.Client, perSecond int, next func(n int) *kgo.Record) *Stream {
	return StartBursts(t, cl, perSecond*int(streamTick)/int(time.Second), streamTick, next)
}

// StartBursts is StartStream with n requests at once, in a burst after each interval every. A request and a step cost
// processor time of brokers and instance, whatever is in them. So this is cheaper for a test that needs timers all the
// time, but not a step at each instant.
func StartBursts(t testing.TB, cl *kgo.Client, n int, every time.Duration, next func(n int) *kgo.Record) *Stream {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Stream{t: t, cl: cl, cancel: cancel, done: make(chan struct{})}
	go s.run(ctx, n, every, next)
	t.Cleanup(func() { cancel(); <-s.done }) // runs before the client's own cleanup
	return s
}

func (s *Stream) run(ctx context.Context, perTick int, every time.Duration, next func(n int) *kgo.Record) {
	defer close(s.done)
	beats.Every(ctx, every, func() {
		for range perTick {
			s.cl.Produce(context.Background(), next(s.sent), s.produced)
			s.sent++
		}
	})
}

func (s *Stream) produced(_ *kgo.Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// Stop ends the stream and returns how many requests it sent. If not all of them are in the log, the test fails.
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
