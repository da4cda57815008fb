package topics

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
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
// started may not know topics that exist, so stop for good only if a problem is Certain, or a later Recheck says the
// same.
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
		was, is := pair[0], pair[1]
		if is.Partitions == 0 {
			continue // missing: among the checks
		}
		if was.ID != is.ID && was.Name != before.DeadLetters.Name && was.Name != before.Events.Name {
			stop = append(stop, Problem{
				Topic: was.Name, Setting: "ID", Found: TopicID(is.ID), Fatal: true,
				Needed: fmt.Sprintf("%s, as before: it was recreated; %s",
					TopicID(was.ID), before.ChangedAdvice(was.Name)),
			})
		}
		if was.Partitions != is.Partitions {
			stop = append(stop, Problem{
				Topic: was.Name, Setting: "partitions", Found: fmt.Sprint(is.Partitions), Fatal: true,
				Needed:  fmt.Sprintf("%d, as before: %s", was.Partitions, partitionsAdvice(before.Delay)),
				Certain: was.ID == is.ID && is.Partitions > was.Partitions, // no topic shrinks
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
		case c.Setting == "partitions": // said above
		default:
			alert = append(alert, c.Problem)
		}
	}
	return stop, alert
}

// goneSince says what to do about a topic that is gone. At the start the advice is another one.
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
