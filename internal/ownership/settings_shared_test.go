package ownership

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/kafka/topics"
)

// Partitions that are acquired together ask once. A caller that leaves does not affect the others, an answer
// that is too old for a caller is not used for it, and an error is not kept.
func TestSettingsAreAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		took, fails := 500*time.Millisecond, false
		s := &Settings{read: func(ctx context.Context) (topics.Settings, error) {
			n := asked.Add(1)
			select {
			case <-time.After(took):
			case <-ctx.Done():
				return topics.Settings{}, ctx.Err()
			}
			if fails {
				return topics.Settings{}, errors.New("the broker is away")
			}
			return topics.Settings{Retention: time.Duration(n)}, nil
		}}
		gone, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		callers.Go(func() { // it comes first, and leaves
			if _, err := s.Now(gone); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller who has gone is told %v", err)
			}
		})
		synctest.Wait()
		for range 50 {
			callers.Go(func() {
				if now, err := s.Now(t.Context()); err != nil || now.Retention != 1 {
					t.Errorf("%v, %v; want the first answer", now, err)
				}
			})
		}
		synctest.Wait()
		cancel()
		callers.Wait()
		if n := asked.Load(); n != 1 {
			t.Errorf("the brokers were asked %d times, want once", n)
		}

		time.Sleep(settingsAge)
		took = 3 * settingsAge // a slow broker
		callers.Go(func() {
			if now, err := s.Now(t.Context()); err != nil || now.Retention != 2 {
				t.Errorf("%v, %v; want the second answer", now, err)
			}
		})
		time.Sleep(2 * settingsAge)
		callers.Go(func() { // the second answer is 4 s older than its question
			if now, err := s.Now(t.Context()); err != nil || now.Retention != 3 {
				t.Errorf("%v, %v; want the third answer", now, err)
			}
		})
		callers.Wait()

		time.Sleep(settingsAge)
		took, fails = 0, true
		for range 2 {
			if _, err := s.Now(t.Context()); err == nil {
				t.Error("an answer of nobody")
			}
		}
		if n := asked.Load(); n != 5 {
			t.Errorf("the brokers were asked %d times, want 5", n)
		}
	})
}

// The same holds for other questions about the topics: they are asked once, and an answer to a question that is too old
// for a caller is not used for it.
func TestOtherQuestionsAreAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		s, first := new(Settings), errors.New("the first answer")
		ask := func(context.Context) error {
			time.Sleep(3 * settingsAge) // a slow broker
			if asked.Add(1) == 1 {
				return first
			}
			return nil
		}
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				if err := s.together(t.Context(), ask); !errors.Is(err, first) {
					t.Errorf("%v, want the first answer", err)
				}
			})
		}
		time.Sleep(2 * settingsAge)
		callers.Go(func() {
			if err := s.together(t.Context(), ask); err != nil {
				t.Errorf("%v, want the second answer", err)
			}
		})
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.together(gone, ask); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that has gone is told %v", err)
		}
		callers.Wait()
		if n := asked.Load(); n != 2 {
			t.Errorf("the brokers were asked %d times, want twice", n)
		}
	})
}
