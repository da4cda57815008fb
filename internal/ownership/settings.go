package ownership

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/delaytopics"
)

// settingsAge is for how long an answer of the brokers serves further callers: all
// partitions of a topic ask at once when they are acquired.
const settingsAge = 2 * time.Second

// Settings reads the settings of a topic's set, for all its partitions. Code whose correctness rests on a
// setting calls Now each time. All methods are safe for concurrent use.
type Settings struct {
	read func(context.Context) (delaytopics.Settings, error) // nil: they never change

	mu   sync.Mutex // guards what follows; not held while the brokers are asked
	last delaytopics.Settings
	at   time.Time // when last was asked for; zero: at the start
}

// NewSettings begins with the settings that the set was opened with. If cl is nil, they never change.
func NewSettings(cl *kgo.Client, set *delaytopics.Set) *Settings {
	s := &Settings{last: set.Settings()}
	if cl != nil {
		adm := kadm.NewClient(cl)
		s.read = func(ctx context.Context) (delaytopics.Settings, error) {
			return delaytopics.ReadSettings(ctx, adm, set)
		}
	}
	return s
}

// Now asks the brokers for the settings, unless it did so within settingsAge.
func (s *Settings) Now(ctx context.Context) (delaytopics.Settings, error) {
	s.mu.Lock()
	last, fresh := s.last, s.read == nil || !s.at.IsZero() && time.Since(s.at) < settingsAge
	s.mu.Unlock()
	if fresh {
		return last, nil
	}
	asked := time.Now()
	now, err := s.read(ctx)
	if err != nil {
		return now, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if asked.After(s.at) {
		s.last, s.at = now, asked
	}
	return now, nil
}

// Settings returns the settings of the partition's topics as last read.
func (l *Life) Settings() delaytopics.Settings { return l.o.Settings.Last() }

// Last returns the settings as last read, for callers that cannot wait.
func (s *Settings) Last() delaytopics.Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}
