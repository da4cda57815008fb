package topics

import (
	"fmt"
	"strings"
)

// Problem is one setting that is not as it should be.
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

// Check is one thing that was verified.
type Check struct {
	Problem // Found and Needed are set even if all is well
	OK      bool
}

// split returns the problems among checks: the fatal ones as one error, nil if
// there are none, and the others.
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
