package topics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

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
	topics := t.all()
	names := make([]string, len(topics))
	for i, f := range topics {
		names[i] = f.name
	}
	// If authorised operations are requested, kadm does not answer from its cache.
	details, err := adm.ListTopics(kadm.WithAuthorizedOps(ctx), names...)
	if err != nil {
		return nil, fmt.Errorf("describe the topics of %s: %w", request, err)
	}
	var there []string
	for _, f := range topics {
		if err := f.layout(details); err != nil {
			return nil, fmt.Errorf("describe topic %s: %w", f.name, err)
		}
		if !f.missing {
			there = append(there, f.name)
		}
	}
	configs, err := adm.DescribeTopicConfigs(ctx, there...)
	if err != nil {
		return nil, fmt.Errorf("describe the settings of the topics of %s: %w", request, err)
	}
	for _, f := range topics {
		if f.missing {
			continue
		}
		if err := f.configs(configs); err != nil {
			return nil, fmt.Errorf("describe the settings of topic %s: %w", f.name, err)
		}
	}
	return t, nil
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
		// It was created or deleted just now, and another broker knows better.
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
