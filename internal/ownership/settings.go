package ownership

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/singleflight"

	"github.com/waterclock/waterclock/internal/kafka/topics"
)

// settingsAge is how long an answer of the brokers serves further callers. All partitions of a topic ask together when
// they are acquired.
const settingsAge = 2 * time.Second

// settingsTimeout bounds one request, which all callers of the moment share.
const settingsTimeout = 30 * time.Second

// Settings reads the settings of a topic's set, for all its partitions. Code whose correctness rests on a
// setting calls Now each time. All methods are safe for concurrent use.
type Settings struct {
	read func(context.Context) (topics.Settings, error) // nil: they never change

	sharing singleflight.Group // see together
	asking  singleflight.Group // calls during a request to the brokers share its answer

	mu   sync.Mutex // guards the following fields; not held while the brokers are asked
	last topics.Settings
	at   time.Time // when last was asked for; zero: at the start
}

// NewSettings begins with the settings that the set was opened with. If cl is nil, they never change.
func NewSettings(cl *kgo.Client, set *topics.Set) *Settings {
	s := &Settings{last: set.Settings()}
	if cl != nil {
		adm := kadm.NewClient(cl)
		s.read = func(ctx context.Context) (topics.Settings, error) {
			return topics.ReadSettings(ctx, adm, set)
		}
	}
	return s
}

// Now asks the brokers for the settings, unless they were asked within settingsAge before the call. Callers
// share one question, which goes on when the first of them has gone.
func (s *Settings) Now(ctx context.Context) (topics.Settings, error) {
	from := time.Now().Add(-settingsAge)
	for {
		s.mu.Lock()
		last, fresh := s.last, s.read == nil || s.at.After(from)
		s.mu.Unlock()
		if fresh {
			return last, nil
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case r := <-s.asking.DoChan("", s.ask):
			if r.Err != nil {
				return topics.Settings{}, r.Err
			}
		}
	}
}

// ask asks the brokers.
func (s *Settings) ask() (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), settingsTimeout)
	defer cancel()
	asked := time.Now()
	now, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.at = now, asked
	return nil, nil
}

// together asks the brokers something else about the topics. Callers of the moment share one question, unless it was
// asked settingsAge before the call: all partitions of a topic that move are acquired at the same time, and their
// questions would wait for each other on one connection.
func (s *Settings) together(ctx context.Context, ask func(context.Context) error) error {
	from := time.Now().Add(-settingsAge)
	for {
		answer := s.sharing.DoChan("", func() (any, error) {
			ctx, cancel := context.WithTimeout(context.Background(), settingsTimeout)
			defer cancel()
			asked := time.Now()
			return asked, ask(ctx)
		})
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-answer:
			if asked, ok := r.Val.(time.Time); ok && asked.After(from) {
				return r.Err
			}
		}
	}
}

// Last returns the settings as last read, for callers that cannot wait.
func (s *Settings) Last() topics.Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}
