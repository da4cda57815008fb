package questions

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

// maxRest is how long a slot rests at most.
const maxRest = 10 * time.Millisecond

// A Slot lets its holder scan; few exist at a time. When a slot is given back it rests for as long as it was used. So
// scans take half of a slot's processor at most, however many callers there are and however often they ask, and due
// timers find a processor free.
type Slot struct {
	of    *semaphore.Weighted // nil: there is no limit
	since time.Time
}

// NewSlot returns a Slot that is not taken yet. of counts the slots that are taken; if it is nil, there is no limit.
func NewSlot(of *semaphore.Weighted) *Slot { return &Slot{of: of} }

// Take waits for a slot that is free.
func (s *Slot) Take(ctx context.Context) error {
	if s.of != nil {
		if err := s.of.Acquire(ctx, 1); err != nil {
			return err
		}
	}
	s.since = time.Now()
	return ctx.Err()
}

// Give gives the slot back. It may be called repeatedly, or without a Take.
func (s *Slot) Give() {
	if s.of != nil && !s.since.IsZero() {
		of := s.of
		time.AfterFunc(min(maxRest, time.Since(s.since)), func() { of.Release(1) })
	}
	s.since = time.Time{}
}

// Rest gives the slot back and takes one again.
func (s *Slot) Rest(ctx context.Context) error {
	s.Give()
	return s.Take(ctx)
}
