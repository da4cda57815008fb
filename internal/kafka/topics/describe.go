package topics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// describe describes the topics of a request topic, or of a fixed-delay topic, and their settings.
func describe(ctx context.Context, adm *kadm.Client, request string, o Options) (*family, error) {
	t := &family{
		request:       found{name: request},
		changelog:     found{name: Changelog(request)},
		deadLetters:   found{name: cmp.Or(o.DeadLetters, DeadLetters(request))},
		delay:         o.Delay,
		compactEvents: o.CompactEvents,
	}
	if o.Delay != 0 {
		t.changelog.name = Checkpoints(request)
	}
	if o.Events {
		t.events.name = Events(request)
	}
	if err := describeAll(ctx, adm, t.all(), request); err != nil {
		return nil, err
	}
	return t, nil
}

// describeAll describes topics by their names. of is the one that they belong to, for errors.
func describeAll(ctx context.Context, adm *kadm.Client, topics []*found, of string) error {
	names := make([]string, len(topics))
	for i, f := range topics {
		names[i] = f.name
	}
	// If authorised operations are requested, kadm does not answer from its cache.
	details, err := adm.ListTopics(kadm.WithAuthorizedOps(ctx), names...)
	if err != nil {
		return fmt.Errorf("describe the topics of %s: %w", of, err)
	}
	var there []string
	for _, f := range topics {
		if err := f.layout(details); err != nil {
			return fmt.Errorf("describe topic %s: %w", f.name, err)
		}
		if !f.missing {
			there = append(there, f.name)
		}
	}
	configs, err := adm.DescribeTopicConfigs(ctx, there...)
	if err != nil {
		return fmt.Errorf("describe the settings of the topics of %s: %w", of, err)
	}
	for _, f := range topics {
		if f.missing {
			continue
		}
		if err := f.configs(configs); err != nil {
			return fmt.Errorf("describe the settings of topic %s: %w", f.name, err)
		}
	}
	return nil
}

// layout takes ID, partitions and replicas.
func (f *found) layout(details kadm.TopicDetails) error {
	d, there := details[f.name]
	switch {
	case !there, errors.Is(d.Err, kerr.UnknownTopicOrPartition), errors.Is(d.Err, kerr.InvalidTopicException):
		f.missing = true
		return nil
	case d.Err != nil && len(d.Partitions) == 0:
		return d.Err
	}
	f.id = d.ID
	f.partitions = int32(len(d.Partitions))
	f.replication = math.MaxInt
	for _, p := range d.Partitions {
		f.replication = min(f.replication, len(p.Replicas))
		if p.Leader < 0 {
			f.leaderless++
		}
	}
	return nil
}

// configs takes the settings.
func (f *found) configs(all kadm.ResourceConfigs) error {
	rc, err := all.On(f.name, nil)
	if err != nil {
		return err
	}
	if errors.Is(rc.Err, kerr.UnknownTopicOrPartition) {
		// It was created or deleted just now, and another broker knows.
		*f = found{name: f.name, missing: true}
		return nil
	}
	if rc.Err != nil {
		return rc.Err
	}
	f.settings = make(map[string]string, len(rc.Configs))
	for _, c := range rc.Configs {
		f.settings[c.Key] = c.MaybeValue()
	}
	return nil
}

// Settings are the settings of a set's topics on which correctness depends while an instance runs. They can change at
// any time, so a value only holds for the moment when it was read.
type Settings struct {
	// Retention is how long the request topic keeps a record (retention.ms); negative: forever. Requests are lost if
	// the lag exceeds it.
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
			err = fmt.Errorf("topic does not exist")
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
