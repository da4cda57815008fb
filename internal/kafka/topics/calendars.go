package topics

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

const calendarsSuffix = ".waterclock.calendars"

// Calendars returns the name of the topic with the calendars of a group. A group may have any name, a topic may not:
// each byte that a topic cannot have becomes _ and two hexadecimal digits, and a hash stands for the rest of a name
// that is too long.
func Calendars(group string) string {
	var b strings.Builder
	for _, c := range []byte(group) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("._-", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	stem := b.String()
	if most := maxTopicName - len(calendarsSuffix); len(stem) > most {
		sum := sha256.Sum256([]byte(group))
		end := "_" + hex.EncodeToString(sum[:8])
		stem = stem[:most-len(end)] + end
	}
	return stem + calendarsSuffix
}

// calendars is the topic of a group's calendars as it was found, with the demands of the request topics of the group.
type calendars struct {
	found
	replicas int   // of the request topic with the most
	inSync   int64 // min.insync.replicas of the request topic with the most
}

// describeCalendars describes the topic, and the request topics.
func describeCalendars(ctx context.Context, adm *kadm.Client, group string, requests []string) (*calendars, error) {
	c := &calendars{found: found{name: Calendars(group)}}
	all := []*found{&c.found}
	for _, r := range requests {
		all = append(all, &found{name: r})
	}
	if err := describeAll(ctx, adm, all, c.name); err != nil {
		return nil, err
	}
	for _, r := range all[1:] {
		if !r.missing {
			c.replicas, c.inSync = max(c.replicas, r.replication), max(c.inSync, r.number(minInSync))
		}
	}
	return c, nil
}

// InspectCalendars describes and verifies the topic of a group's calendars, and changes nothing. That the topic is
// missing is no fatal problem: the group has no calendars then.
func InspectCalendars(ctx context.Context, adm *kadm.Client, group string, requests []string) ([]Check, error) {
	c, err := describeCalendars(ctx, adm, group, requests)
	if err != nil {
		return nil, err
	}
	return c.verify(), nil
}

// EnsureCalendars creates the topic of a group's calendars if it is missing and o.Create allows that, and verifies it.
// All fatal problems are returned as one *ProblemsError. Any number of instances may call it at the same time.
func EnsureCalendars(ctx context.Context, adm *kadm.Client, group string, requests []string,
	o Options) ([]Problem, error) {
	c, err := describeCalendars(ctx, adm, group, requests)
	if err == nil && c.missing && o.Create {
		c, err = c.make(ctx, adm, group, requests, o.Replication)
	}
	if err != nil {
		return nil, err
	}
	return split(c.verify())
}

// make creates the topic, and waits until the brokers know it.
func (c *calendars) make(ctx context.Context, adm *kadm.Client, group string, requests []string,
	replication int16) (*calendars, error) {
	if replication <= 0 {
		replication = int16(max(1, c.replicas))
	}
	needed, wanted := c.settings(replication)
	if err := createTopic(ctx, adm, c.name, 1, replication, needed, wanted); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, createdLimit)
	defer cancel()
	for {
		now, err := describeCalendars(ctx, adm, group, requests)
		if err == nil && !now.missing && now.leaderless == 0 && now.partitions > 0 {
			return now, nil
		}
		if !beats.Sleep(ctx, createdPause) {
			return nil, fmt.Errorf("wait for topic %s, which was created: %w", c.name, errors.Join(ctx.Err(), err))
		}
	}
}

// settings are those that the topic is created with.
func (c *calendars) settings(replication int16) (needed, wanted map[string]string) {
	needed = map[string]string{
		cleanupPolicy: "compact", timestampType: logAppendTime, deleteRetention: ms(createdDeleteRetention),
		maxMessageBytes: strconv.Itoa(createdSmallMessage),
	}
	wanted = map[string]string{
		uncleanElection: "false", "compression.type": "producer", "segment.ms": ms(createdSegment),
		"segment.bytes": strconv.Itoa(createdCheckpointSegment), "min.cleanable.dirty.ratio": "0.2",
	}
	if n := inSyncOf(c.inSync, replication); n > 0 {
		wanted[minInSync] = strconv.FormatInt(n, 10)
	}
	return needed, wanted
}

func (c *calendars) verify() []Check {
	v := verifier{topic: &c.found}
	if c.missing {
		v.check(false, false, "topic", "missing",
			"there: let the service create it (--create-topics); without it there are no calendars")
		return v.checks
	}
	v.check(c.partitions == 1, true, "partitions", fmt.Sprint(c.partitions), "1")
	v.check(c.replication >= c.replicas, false, "replication", fmt.Sprint(c.replication),
		fmt.Sprintf("at least %d, as of the request topics", c.replicas))
	v.atLeast(maxMessageBytes, true, calendar.MaxRulesBytes+MessageRoom)
	v.atLeast(minInSync, false, c.inSync)
	v.setting(uncleanElection, false, "false", func(value string) bool { return value != "true" })
	v.setting(cleanupPolicy, true, "compact", func(string) bool {
		return slices.Equal(c.policies(), []string{"compact"})
	})
	v.setting(timestampType, true, logAppendTime, func(value string) bool { return value == logAppendTime })
	v.atLeast(deleteRetention, true, MinDeleteRetention.Milliseconds())
	return v.checks
}

// createTopic creates a topic. It is no error if another instance was faster. If the broker rejects a setting (kfake
// and some managed services lack a few), only the needed ones are tried.
func createTopic(ctx context.Context, adm *kadm.Client, name string, partitions int32, replication int16,
	needed, wanted map[string]string) error {
	resp, err := adm.CreateTopic(ctx, partitions, replication, configs(needed, wanted), name)
	if errors.Is(err, kerr.InvalidConfig) || errors.Is(err, kerr.PolicyViolation) {
		resp, err = adm.CreateTopic(ctx, partitions, replication, configs(needed), name)
	}
	if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
		return nil
	}
	if errors.Is(err, kerr.InvalidReplicationFactor) {
		return fmt.Errorf("create topic %s with %d replicas: %w: %s; choose another number with --replication-factor",
			name, replication, err, resp.ErrMessage)
	}
	if resp.ErrMessage != "" {
		return fmt.Errorf("create topic %s: %w: %s", name, err, resp.ErrMessage)
	}
	return fmt.Errorf("create topic %s: %w", name, err)
}

// inSyncOf returns min.insync.replicas of a topic that is created with some replicas, if request topics have n; 0: the
// brokers' default.
func inSyncOf(n int64, replication int16) int64 {
	if replication >= threeCopies {
		n = max(n, 2)
	}
	if n > int64(replication) {
		return 0
	}
	return n
}
