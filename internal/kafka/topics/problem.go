package topics

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"
)

// Problem is one setting with a wrong value.
type Problem struct {
	Topic   string
	Setting string // a topic setting by Kafka's name, or topic, name, ID, partitions, replication
	Found   string
	Needed  string
	Fatal   bool // the service must not run
	Certain bool // no broker with an older view of the cluster can say it by mistake
}

// String names the topic, the setting, the value found and the value needed.
func (p Problem) String() string {
	verb := "should be"
	if p.Fatal {
		verb = "must be"
	}
	return fmt.Sprintf("topic %s: %s is %s, %s %s", p.Topic, p.Setting, p.Found, verb, p.Needed)
}

// Gone reports whether the problem is that there is no such topic.
func (p *Problem) Gone() bool { return p.Setting == "topic" }

// ProblemsError is every fatal problem that was found.
type ProblemsError struct{ Problems []Problem }

func (pe *ProblemsError) Error() string {
	lines := make([]string, len(pe.Problems))
	for i, p := range pe.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "; ")
}

// Check is one verified setting.
type Check struct {
	Problem // Found and Needed are set even if all is well
	OK      bool
}

// split returns the problems among checks: the fatal ones as one error, nil if there are none, and the others.
func split(checks []Check) (others []Problem, err error) {
	var fatal []Problem
	for _, c := range checks {
		switch {
		case c.OK:
		case c.Fatal:
			fatal = append(fatal, c.Problem)
		default:
			others = append(others, c.Problem)
		}
	}
	if len(fatal) > 0 {
		return others, &ProblemsError{Problems: fatal}
	}
	return others, nil
}

// FollowAdvice is the advice for a request topic that is no longer the one for which its changelog was written.
const FollowAdvice = "stop every instance and run waterclock topics follow, see \"Topics that change\" in " +
	"docs/OPERATIONS.md"

// LostAdvice is the advice for a changelog that no longer exists.
const LostAdvice = "keep the data directories of all instances, from which waterclock topics follow --restore takes " +
	"the pending timers: see \"Changelog deleted\" in docs/RUNBOOK.md"

// RestartAdvice is the advice for a fixed-delay topic that was recreated or has grown.
const RestartAdvice = "restart every instance: a topic that was recreated is read from its start, further " +
	"partitions are served then"

// LostCheckpointsAdvice is the advice for missing checkpoints of a fixed-delay topic.
const LostCheckpointsAdvice = "restart the instances, once with --accept-lost-changelog: records are passed on from " +
	"the group's committed offset"

// ChangedAdvice is the advice for one of a set's topics that was recreated.
func (s *Set) ChangedAdvice(topic string) string {
	switch {
	case topic != s.Changelog.Name:
		return partitionsAdvice(s.Delay)
	case s.Delay == 0:
		return LostAdvice
	}
	return LostCheckpointsAdvice
}

// partitionsAdvice is the advice for a changed number of partitions of a request topic, or of a fixed-delay topic.
func partitionsAdvice(delay time.Duration) string {
	if delay == 0 {
		return FollowAdvice
	}
	return RestartAdvice
}

// LostTail is the error if the position of a request log is beyond the log's end.
func LostTail(position int64, log fmt.Stringer, end int64) error {
	return fmt.Errorf("position %d of %v lies beyond the log's end %d: the log lost its tail; see \"A request log "+
		"that lost its tail\" in docs/OPERATIONS.md", position, log, end)
}

// TopicID is a topic's UUID as Kafka's own tools write it.
func TopicID(id [16]byte) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// OtherGroup is the error if another group was the last to write to a set's changelog.
func (s *Set) OtherGroup(other, ours string) error {
	what, topics := "changelog ", "request topic would both fire every timer"
	if s.Delay > 0 {
		what, topics = "", "fixed-delay topic would both pass every record on"
	}
	return fmt.Errorf("%s%s was written by group %q and this is group %q: two groups on one %s; "+
		"stop the other one and start once with --accept-group", what, s.Changelog.Name, other, ours, topics)
}
