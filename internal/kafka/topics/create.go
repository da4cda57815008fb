package topics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

const (
	// createdLimit is how long Ensure waits until every broker that it asks knows the topics that it has
	// created, and their leaders.
	createdLimit = 30 * time.Second
	createdPause = 50 * time.Millisecond
)

// creatable reports whether the service's own topics may be created: the request topic has no problem that forbids the
// service to run, and each own topic that exists has enough partitions, or will get them (grow).
func (fa *family) creatable(grow bool) bool {
	short := func(f *found) bool { return !f.missing && f.partitions < fa.request.partitions }
	return !fa.request.missing && !fa.request.compacted() &&
		!IsOwn(fa.request.name) && len(fa.request.name) <= MaxRequestName &&
		(grow || !slices.ContainsFunc(fa.own(), short))
}

// complete creates the service's own topics that are missing, if o says so, and adds the partitions that they
// lack, if o says so. If it has changed anything it waits until the brokers know, and describes all topics again.
func (fa *family) complete(ctx context.Context, adm *kadm.Client, o Options) (*family, error) {
	if !fa.creatable(o.Grow) {
		return fa, nil
	}
	if o.Grow {
		if err := fa.unfit(o.Create); err != nil {
			return nil, err // before anything is changed
		}
	}
	changed := false
	for _, f := range fa.own() {
		var err error
		switch {
		case f.missing && o.Create:
			err = fa.create(ctx, adm, f, o.Replication)
		case !f.missing && o.Grow && f.partitions < fa.request.partitions:
			err = fa.grow(ctx, adm, f)
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		changed = true
	}
	if !changed {
		return fa, nil
	}
	ctx, cancel := context.WithTimeout(ctx, createdLimit)
	defer cancel()
	for {
		now, err := describe(ctx, adm, fa.request.name, o)
		if err == nil && now.whole() {
			return now, nil
		}
		if !beats.Sleep(ctx, createdPause) {
			return nil, fmt.Errorf("wait for the topics of %s, which were created: %w", fa.request.name,
				errors.Join(ctx.Err(), err))
		}
	}
}

// unfit returns the fatal problems that neither further partitions nor, with create, further topics mend.
func (fa *family) unfit(create bool) error {
	grown := *fa
	for _, f := range grown.own() {
		f.partitions = max(f.partitions, grown.request.partitions)
	}
	_, err := split(slices.DeleteFunc(grown.verify(), func(c Check) bool { return create && c.Gone() }))
	return err
}

// whole reports whether all topics exist, with all partitions and their leaders.
func (fa *family) whole() bool {
	return !slices.ContainsFunc(
		fa.all(), func(f *found) bool { return f.missing || f.leaderless > 0 || f.partitions < fa.request.partitions })
}

// grow gives a topic as many partitions as the request topic has.
func (fa *family) grow(ctx context.Context, adm *kadm.Client, f *found) error {
	resp, err := adm.UpdatePartitions(ctx, int(fa.request.partitions), f.name)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		return fmt.Errorf("give topic %s %d partitions: %w", f.name, fa.request.partitions, err)
	}
	return nil
}

// create creates a topic. It is no error if another instance was faster. If the broker refuses a setting (kfake
// and some managed services lack a few), only the settings that the verification insists on are tried.
func (fa *family) create(ctx context.Context, adm *kadm.Client, f *found, replication int16) error {
	if replication <= 0 {
		replication = int16(fa.request.replication)
	}
	needed, wanted := fa.settingsOf(f, replication)
	resp, err := adm.CreateTopic(ctx, fa.request.partitions, replication, configs(needed, wanted), f.name)
	if errors.Is(err, kerr.InvalidConfig) || errors.Is(err, kerr.PolicyViolation) {
		resp, err = adm.CreateTopic(ctx, fa.request.partitions, replication, configs(needed), f.name)
	}
	if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
		return nil
	}
	if errors.Is(err, kerr.InvalidReplicationFactor) {
		return fmt.Errorf("create topic %s with %d replicas: %w: %s; choose another number with --replication-factor",
			f.name, replication, err, resp.ErrMessage)
	}
	if resp.ErrMessage != "" {
		return fmt.Errorf("create topic %s: %w: %s", f.name, err, resp.ErrMessage)
	}
	return fmt.Errorf("create topic %s: %w", f.name, err)
}

// configs are settings as kadm takes them.
func configs(settings ...map[string]string) map[string]*string {
	all := make(map[string]*string)
	for _, some := range settings {
		for name, value := range some {
			all[name] = &value
		}
	}
	return all
}

// settingsOf returns what one of the service's own topics is created with: the settings that the verification
// insists on, and those that are better to have.
func (fa *family) settingsOf(f *found, replication int16) (needed, wanted map[string]string) {
	needed = map[string]string{cleanupPolicy: "delete", maxMessageBytes: strconv.FormatInt(
		neededMessageBytes(&fa.request), 10)}
	wanted = map[string]string{uncleanElection: "false"}
	n := fa.request.number(minInSync)
	if replication >= threeCopies {
		n = max(n, 2)
	}
	if n > 0 && n <= int64(replication) {
		wanted[minInSync] = strconv.FormatInt(n, 10)
	}
	switch f {
	case &fa.deadLetters:
		wanted[retention], wanted[retentionBytes] = ms(createdDeadRetention), "-1"
		return needed, wanted
	case &fa.events:
		if fa.compactEvents {
			needed[cleanupPolicy] = "compact"
		}
		needed[maxMessageBytes] = strconv.Itoa(createdSmallMessage)
		wanted[retention], wanted[retentionBytes] = ms(createdEventRetention), "-1"
	case &fa.changelog:
		needed[cleanupPolicy], needed[timestampType] = "compact", logAppendTime
		wanted["segment.ms"], wanted["min.cleanable.dirty.ratio"] = ms(createdSegment), "0.2"
		if fa.delay != 0 {
			needed[maxMessageBytes] = strconv.Itoa(createdSmallMessage)
			wanted["segment.bytes"] = strconv.Itoa(createdCheckpointSegment)
			break
		}
		needed[deleteRetention] = ms(createdDeleteRetention)
		wanted[minCompactionLag], wanted["max.compaction.lag.ms"] = ms(createdMinCompactionLag),
			ms(createdMaxCompactionLag)
		wanted["segment.bytes"] = strconv.Itoa(createdChangelogSegment)
	}
	wanted["compression.type"] = "producer"
	return needed, wanted
}
