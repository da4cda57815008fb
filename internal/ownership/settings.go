package ownership

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/delaytopics"
)

// settingsAge is how old an answer of the brokers may be for who asks for settings: all
// partitions of a topic do at once when they are acquired.
const settingsAge = 2 * time.Second

// Settings are what the settings of a topic's set are, for all its partitions: asked for again
// where an argument rests on them. All methods are safe for concurrent use.
type Settings struct {
	read func(context.Context) (delaytopics.Settings, error) // nil: they never change

	mu   sync.Mutex // guards what follows; not held while the brokers are asked
	last delaytopics.Settings
	at   time.Time // when last was asked for; zero: at the start
}

// NewSettings begins with what the set was found with. cl may be nil: nobody is asked then.
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

// Now asks what the settings are, unless that was done a moment ago.
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

// Settings are those of the partition's topics as they were last asked for.
func (l *Life) Settings() delaytopics.Settings { return l.o.Settings.Last() }

// Last are the settings as they were last asked for, for who cannot wait.
func (s *Settings) Last() delaytopics.Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}
