package topics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

// Inspection is the result of Inspect.
type Inspection struct {
	Set    Set     // topics that are missing have a name only
	Checks []Check // in the order request topic, changelog, dead letters, events
}

// Inspect describes and verifies the topics of a request topic, and changes nothing. Problems are among the checks. An
// error says that the topics could not be checked.
func Inspect(ctx context.Context, adm *kadm.Client, request string, o Options) (Inspection, error) {
	t, err := describe(ctx, adm, request, o)
	if err != nil {
		return Inspection{}, err
	}
	return Inspection{Set: t.set(), Checks: t.verify()}, nil
}

// Ensure creates topics that are missing, if o allows that, and verifies everything. It never creates the request
// topic. All fatal problems are returned as one *ProblemsError, the others beside the set. Any number of instances may
// call it at the same time.
func Ensure(ctx context.Context, adm *kadm.Client, request string, o Options) (Set, []Problem, error) {
	t, err := describe(ctx, adm, request, o)
	if err != nil {
		return Set{}, nil, err
	}
	if t, err = t.complete(ctx, adm, o); err != nil {
		return Set{}, nil, err
	}
	problems, err := split(t.verify())
	if err != nil {
		return Set{}, problems, err
	}
	return t.set(), problems, nil
}

// Recheck verifies a set that had no fatal problem before. stop has the problems that forbid to go on: a topic that is
// gone or was recreated, or another partition count or cleanup policy. alert has the rest. A broker that has just
// started may not know existing topics, so stop permanently only if a problem is Certain, or a later Recheck agrees.
//
// Dead letters and events are written and never read. With o.Create their topics are created again if they are gone,
// and it is no problem if they were recreated.
func Recheck(ctx context.Context, adm *kadm.Client, before Set, o Options) (stop, alert []Problem, err error) {
	o.DeadLetters, o.Delay, o.Events = before.DeadLetters.Name, before.Delay, before.Events.Name != ""
	t, err := describe(ctx, adm, before.Request.Name, o)
	if err != nil {
		return nil, nil, err
	}
	if o.Grow = false; !t.changelog.missing {
		if t, err = t.complete(ctx, adm, o); err != nil {
			return nil, nil, err
		}
	}
	now := Inspection{Set: t.set(), Checks: t.verify()}
	stop, alert = now.since(before)
	return stop, alert, nil
}

func (i *Inspection) since(before Set) (stop, alert []Problem) {
	for _, pair := range [][2]Topic{
		{before.Request, i.Set.Request}, {before.Changelog, i.Set.Changelog},
		{before.DeadLetters, i.Set.DeadLetters}, {before.Events, i.Set.Events},
	} {
		old, current := pair[0], pair[1]
		if current.Partitions == 0 {
			continue // missing: among the checks
		}
		if old.ID != current.ID && old.Name != before.DeadLetters.Name && old.Name != before.Events.Name {
			stop = append(stop, Problem{
				Topic: old.Name, Setting: "ID", Found: TopicID(current.ID), Fatal: true,
				Needed: fmt.Sprintf("%s, as before: it was recreated; %s",
					TopicID(old.ID), before.ChangedAdvice(old.Name)),
			})
		}
		if old.Partitions != current.Partitions {
			stop = append(stop, Problem{
				Topic: old.Name, Setting: "partitions", Found: fmt.Sprint(current.Partitions), Fatal: true,
				Needed:  fmt.Sprintf("%d, as before: %s", old.Partitions, partitionsAdvice(before.Delay)),
				Certain: old.ID == current.ID && current.Partitions > old.Partitions, // no topic shrinks
			})
		}
	}
	for _, c := range i.Checks {
		switch {
		case c.OK:
		case c.Gone():
			stop = append(stop, goneSince(c.Problem, before))
		case c.Setting == cleanupPolicy && c.Fatal:
			stop = append(stop, c.Problem)
		case c.Setting == "partitions": // handled above
		default:
			alert = append(alert, c.Problem)
		}
	}
	return stop, alert
}

// goneSince changes the advice for a topic that existed at the start and is gone now.
func goneSince(p Problem, before Set) Problem {
	if before.Delay != 0 {
		p.Needed = "there: create it again, and then " + before.ChangedAdvice(p.Topic)
		return p
	}
	switch p.Topic {
	case before.Request.Name:
		p.Needed = fmt.Sprintf("there: create it with %d partitions; its pending timers are kept in %s; %s",
			before.Request.Partitions, before.Changelog.Name, FollowAdvice)
	case before.Changelog.Name:
		p.Needed = "there: " + LostAdvice
	}
	return p
}

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

// complete creates the service's own missing topics and adds missing partitions, each if o allows it. After a change it
// waits until the brokers know, and describes all topics again.
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

// unfit returns the fatal problems that neither more partitions nor, with create, more topics solve.
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

// create creates one of the service's own topics.
func (fa *family) create(ctx context.Context, adm *kadm.Client, f *found, replication int16) error {
	if replication <= 0 {
		replication = int16(fa.request.replication)
	}
	needed, wanted := fa.settingsOf(f, replication)
	return createTopic(ctx, adm, f.name, fa.request.partitions, replication, needed, wanted)
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

// settingsOf returns the settings with which one of the service's own topics is created: those that the verification
// insists on, and those that are better to have.
func (fa *family) settingsOf(f *found, replication int16) (needed, wanted map[string]string) {
	needed = map[string]string{cleanupPolicy: "delete",
		maxMessageBytes: strconv.FormatInt(neededMessageBytes(&fa.request), 10)}
	wanted = map[string]string{uncleanElection: "false"}
	if n := inSyncOf(fa.request.number(minInSync), replication); n > 0 {
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
