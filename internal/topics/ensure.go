package topics

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Options of Ensure and Inspect.
type Options struct {
	// Create lets Ensure create the service's own topics.
	Create bool
	// Grow lets Ensure give them as many partitions as the request topic has. Who
	// sets it moves the pending timers to where their IDs lie then.
	Grow bool
	// Delay is that of a fixed-delay topic; 0: it is a request topic.
	Delay time.Duration
	// Replication of created topics; 0 and below: as many replicas as the
	// request topic has, which is the least that Ensure accepts.
	Replication int16
	// DeadLetters is the name of the topic of dead letters; empty: that of
	// [DeadLetters].
	DeadLetters string
	// Events says that there is a topic of events, and CompactEvents that it is to keep
	// the last one of each timer, instead of all for a time.
	Events, CompactEvents bool
}

const (
	// settleLimit is how long Ensure waits until every broker it asks knows
	// the topics that it has created and their leaders.
	settleLimit = 30 * time.Second
	settlePause = 50 * time.Millisecond
)

// Inspection is what Inspect has found.
type Inspection struct {
	Set    Set     // topics that are missing have a name only
	Checks []Check // in the order request topic, changelog, dead letters, events
}

// Inspect describes and verifies the topics of a request topic, and changes
// nothing. What is wrong is among the checks; an error says that they could not
// be made.
func Inspect(ctx context.Context, adm *kadm.Client, request string, o Options) (Inspection, error) {
	t, err := describe(ctx, adm, request, o)
	if err != nil {
		return Inspection{}, err
	}
	return Inspection{Set: t.set(), Checks: t.verify()}, nil
}

// Ensure creates what is missing, if allowed to, and verifies everything. The
// request topic is never created. Fatal problems come as one *ProblemsError that
// holds them all; the others are returned beside the set. Any number of
// instances may call it at the same time.
func Ensure(ctx context.Context, adm *kadm.Client, request string, o Options) (Set, []Problem, error) {
	t, err := describe(ctx, adm, request, o)
	if err != nil {
		return Set{}, nil, err
	}
	if o.Create && t.creatable() {
		if t, err = createMissing(ctx, adm, t, o); err != nil {
			return Set{}, nil, err
		}
	}
	if o.Grow && t.creatable() {
		if t, err = grow(ctx, adm, t, o); err != nil {
			return Set{}, nil, err
		}
	}
	problems, err := split(t.verify())
	if err != nil {
		return Set{}, problems, err
	}
	return t.set(), problems, nil
}

// Recheck verifies a set that was fine once. stop holds what forbids to go on:
// a topic that is gone or another one, another partition count or cleanup
// policy; alert holds the rest. A broker that has just started may deny topics
// that exist, so stop for good only if a later Recheck says the same.
//
// Dead letters and events are written and never read: with o.Create a topic of theirs
// that is gone is recreated, and that it is another one stops nothing.
func Recheck(ctx context.Context, adm *kadm.Client, before Set, o Options) (stop, alert []Problem, err error) {
	o.DeadLetters, o.Delay, o.Events = before.DeadLetters.Name, before.Delay, before.Events.Name != ""
	t, err := describe(ctx, adm, before.Request.Name, o)
	if err != nil {
		return nil, nil, err
	}
	if o.Create && (t.deadLetters.missing || t.events.missing) && !t.changelog.missing && t.creatable() {
		if t, err = createMissing(ctx, adm, t, o); err != nil {
			return nil, nil, err
		}
	}
	now := Inspection{Set: t.set(), Checks: t.verify()}
	stop, alert = now.since(before)
	return stop, alert, nil
}

func (n *Inspection) since(before Set) (stop, alert []Problem) {
	for _, pair := range [][2]Topic{
		{before.Request, n.Set.Request}, {before.Changelog, n.Set.Changelog}, {before.DeadLetters, n.Set.DeadLetters}, {before.Events, n.Set.Events},
	} {
		was, is := pair[0], pair[1]
		if is.Partitions == 0 {
			continue // missing: among the checks
		}
		if was.ID != is.ID && was.Name != before.DeadLetters.Name && was.Name != before.Events.Name {
			stop = append(stop, Problem{was.Name, "ID", TopicID(is.ID), fmt.Sprintf("%s, as before: it was recreated; %s", TopicID(was.ID), before.ChangedAdvice(was.Name)), true})
		}
		if was.Partitions != is.Partitions {
			stop = append(stop, Problem{was.Name, "partitions", fmt.Sprint(is.Partitions), fmt.Sprintf("%d, as before: %s", was.Partitions, before.partitionsAdvice()), true})
		}
	}
	for _, c := range n.Checks {
		switch {
		case c.OK:
		case c.Gone():
			stop = append(stop, goneSince(c.Problem, before))
		case c.Setting == cleanupPolicy && c.Fatal:
			stop = append(stop, c.Problem)
		case c.Setting == "partitions": // said above
		default:
			alert = append(alert, c.Problem)
		}
	}
	return stop, alert
}

// goneSince says of a topic that is gone what to do now, which is not what it was
// at the start.
func goneSince(p Problem, before Set) Problem {
	if before.Delay != 0 {
		p.Needed = "there: create it again, and then " + before.ChangedAdvice(p.Topic)
		return p
	}
	switch p.Topic {
	case before.Request.Name:
		p.Needed = fmt.Sprintf("there: create it with %d partitions; its pending timers are kept in %s; %s", before.Request.Partitions, before.Changelog.Name, FollowAdvice)
	case before.Changelog.Name:
		p.Needed = "there: " + LostAdvice
	}
	return p
}

// creatable reports whether the request topic is such that its own topics may
// be created beside it: nothing that was reported of it forbids to run.
func (t *family) creatable() bool {
	return !t.request.missing && !t.request.compacted() && !IsOwn(t.request.name) && len(t.request.name) <= MaxRequestName
}

// grow gives the service's own topics the partitions that they lack, and describes
// everything again, when it has settled.
func grow(ctx context.Context, adm *kadm.Client, t *family, o Options) (*family, error) {
	grown := false
	for _, f := range t.own() {
		if f.missing || f.partitions >= t.request.partitions {
			continue
		}
		resp, err := adm.UpdatePartitions(ctx, int(t.request.partitions), f.name)
		if err == nil {
			err = resp.Error()
		}
		if err != nil {
			return nil, fmt.Errorf("give topic %s %d partitions: %w", f.name, t.request.partitions, err)
		}
		grown = true
	}
	if !grown {
		return t, nil
	}
	return settle(ctx, adm, t, o)
}

// createMissing creates what is missing and describes everything again, when it
// has settled.
func createMissing(ctx context.Context, adm *kadm.Client, t *family, o Options) (*family, error) {
	replication := o.Replication
	if replication <= 0 {
		replication = int16(t.request.replication)
	}
	created := false
	for _, f := range t.own() {
		if !f.missing {
			continue
		}
		if err := create(ctx, adm, f.name, t.request.partitions, replication, t.settingsOf(f, replication)); err != nil {
			return nil, err
		}
		created = true
	}
	if !created {
		return t, nil
	}
	return settle(ctx, adm, t, o)
}

// settings of a topic to create. Where the broker refuses a setting (kfake and
// some managed services have not all of them), only those that the verification
// insists on are tried.
type settings struct{ needed, wanted map[string]string }

func (s settings) all() map[string]*string {
	all := s.least()
	for name, value := range s.wanted {
		all[name] = kadm.StringPtr(value)
	}
	return all
}

func (s settings) least() map[string]*string {
	least := make(map[string]*string)
	for name, value := range s.needed {
		least[name] = kadm.StringPtr(value)
	}
	return least
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// settingsOf are those that one of the service's own topics is created with.
func (t *family) settingsOf(f *found, replication int16) settings {
	switch f {
	case &t.changelog:
		return t.changelogSettings(replication)
	case &t.events:
		return t.eventSettings(replication)
	}
	return deadLetterSettings(&t.request, replication)
}

func (t *family) changelogSettings(replication int16) settings {
	request := &t.request
	if t.delay != 0 {
		return checkpointSettings(request, replication)
	}
	return settings{
		needed: map[string]string{
			cleanupPolicy:   "compact",
			timestampType:   "LogAppendTime",
			deleteRetention: ms(createdDeleteRetention),
			maxMessageBytes: strconv.FormatInt(neededMessageBytes(request), 10),
		},
		wanted: withInSync(request, replication, map[string]string{
			minCompactionLag:            ms(createdMinCompactionLag),
			"max.compaction.lag.ms":     ms(createdMaxCompactionLag),
			"segment.ms":                ms(createdSegment),
			"segment.bytes":             strconv.Itoa(256 << 20),
			"min.cleanable.dirty.ratio": "0.2",
			"compression.type":          "producer",
			uncleanElection:             "false",
		}),
	}
}

func checkpointSettings(delayed *found, replication int16) settings {
	return settings{
		needed: map[string]string{
			cleanupPolicy:   "compact",
			timestampType:   "LogAppendTime",
			maxMessageBytes: strconv.Itoa(createdSmallMessage),
		},
		wanted: withInSync(delayed, replication, map[string]string{
			"segment.ms":                ms(createdSegment),
			"segment.bytes":             strconv.Itoa(createdCheckpointSegment),
			"min.cleanable.dirty.ratio": "0.2",
			"compression.type":          "producer",
			uncleanElection:             "false",
		}),
	}
}

func deadLetterSettings(request *found, replication int16) settings {
	return settings{
		needed: map[string]string{
			cleanupPolicy:   "delete",
			maxMessageBytes: strconv.FormatInt(neededMessageBytes(request), 10),
		},
		wanted: withInSync(request, replication, map[string]string{
			retention:       ms(createdDeadRetention),
			retentionBytes:  "-1",
			uncleanElection: "false",
		}),
	}
}

func (t *family) eventSettings(replication int16) settings {
	policy := "delete"
	if t.compactEvents {
		policy = "compact"
	}
	return settings{
		needed: map[string]string{
			cleanupPolicy:   policy,
			maxMessageBytes: strconv.Itoa(createdSmallMessage),
		},
		wanted: withInSync(&t.request, replication, map[string]string{
			retention:          ms(createdEventRetention),
			retentionBytes:     "-1",
			"compression.type": "producer",
			uncleanElection:    "false",
		}),
	}
}

// withInSync gives an own topic the min.insync.replicas of the request topic.
func withInSync(request *found, replication int16, s map[string]string) map[string]string {
	if n := request.number(minInSync); n > 0 && n <= int64(replication) {
		s[minInSync] = strconv.FormatInt(n, 10)
	}
	return s
}

// create creates one topic; that another instance was faster is fine.
func create(ctx context.Context, adm *kadm.Client, name string, partitions int32, replication int16, s settings) error {
	resp, err := adm.CreateTopic(ctx, partitions, replication, s.all(), name)
	if errors.Is(err, kerr.InvalidConfig) || errors.Is(err, kerr.PolicyViolation) {
		resp, err = adm.CreateTopic(ctx, partitions, replication, s.least(), name)
	}
	if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
		return nil
	}
	if errors.Is(err, kerr.InvalidReplicationFactor) {
		return fmt.Errorf("create topic %s with %d replicas: %w: %s; choose another number with --replication-factor", name, replication, err, resp.ErrMessage)
	}
	if resp.ErrMessage != "" {
		return fmt.Errorf("create topic %s: %w: %s", name, err, resp.ErrMessage)
	}
	return fmt.Errorf("create topic %s: %w", name, err)
}

// settle describes the topics until all are there and have leaders.
func settle(ctx context.Context, adm *kadm.Client, of *family, o Options) (*family, error) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for {
		t, err := describe(ctx, adm, of.request.name, o)
		if err == nil && t.settled() {
			return t, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the topics of %s, which were created: %w", of.request.name, errors.Join(ctx.Err(), err))
		case <-time.After(settlePause):
		}
	}
}

func (t *family) settled() bool {
	for _, f := range t.all() {
		if f.missing || f.leaderless > 0 || f.partitions < t.request.partitions {
			return false
		}
	}
	return true
}
