package topics

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Settings are the settings of a set's topics on which correctness depends while an instance runs. They can be changed
// at any time, so a value is only true for the moment when it was read.
type Settings struct {
	// Retention is how long the request topic keeps a record (retention.ms); negative: forever. If the lag gets near
	// it, requests will be lost.
	Retention time.Duration
	// DeleteRetention is how long the changelog keeps a deletion after it was first compacted (delete.retention.ms);
	// negative: forever.
	DeleteRetention time.Duration
	// Timestamps is the changelog's message.timestamp.type; empty: not known.
	Timestamps string
}

// Settings returns the settings that the set was found with.
func (s *Set) Settings() Settings {
	return Settings{Retention: s.Request.Retention, DeleteRetention: s.Changelog.DeleteRetention}
}

// ReadSettings reads the settings of a set's topics as they are now.
func ReadSettings(ctx context.Context, adm *kadm.Client, s *Set) (Settings, error) {
	request, changelog := found{name: s.Request.Name}, found{name: s.Changelog.Name}
	all, err := adm.DescribeTopicConfigs(ctx, request.name, changelog.name)
	if err != nil {
		return Settings{}, fmt.Errorf("read the settings of the topics of %s: %w", request.name, err)
	}
	for _, f := range []*found{&request, &changelog} {
		err := f.configs(all)
		if err == nil && f.missing {
			err = fmt.Errorf("there is no such topic")
		}
		if err != nil {
			return Settings{}, fmt.Errorf("read the settings of topic %s: %w", f.name, err)
		}
	}
	return Settings{
		Retention: request.duration(retention), DeleteRetention: changelog.duration(deleteRetention),
		Timestamps: changelog.settings[timestampType],
	}, nil
}

// MaxAbsence is half of DeleteRetention. A local view of the changelog that was last in sync longer ago must not be
// continued, because deletions may be gone.
func (s Settings) MaxAbsence() time.Duration { return s.Keeps() / 2 }

// Keeps is DeleteRetention, with the largest duration for forever.
func (s Settings) Keeps() time.Duration {
	if s.DeleteRetention < 0 {
		return math.MaxInt64
	}
	return s.DeleteRetention
}

// Unusable returns an error if no view of the changelog can be built or trusted with these settings.
func (s Settings) Unusable(changelog string) error {
	switch {
	case s.Keeps() < MinDeleteRetention:
		return fmt.Errorf("topic %s: %s is %d, needed: at least %d", changelog, deleteRetention,
			s.DeleteRetention.Milliseconds(), MinDeleteRetention.Milliseconds())
	case s.Timestamps != "" && s.Timestamps != logAppendTime:
		return fmt.Errorf("topic %s: %s is %s, needed: %s", changelog, timestampType, s.Timestamps, logAppendTime)
	}
	return nil
}
