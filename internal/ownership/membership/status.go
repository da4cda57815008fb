package membership

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/internal/kit/span"
)

// Status is the state of a membership, for readiness, metrics and error messages. It is safe for concurrent use.
type Status struct {
	o          *Options
	joined     atomic.Bool
	problem    atomic.Pointer[string] // nil: none
	foreign    atomic.Bool
	heartbeats atomic.Pointer[heartbeats] // of the client of the last session; nil before the first
}

// Joined reports whether the process is a member with an assignment, perhaps an empty one.
func (s *Status) Joined() bool { return s.joined.Load() }

// Problem returns a sentence about what keeps the process from being a member, if only an operator can change that;
// otherwise "".
func (s *Status) Problem() string {
	if p := s.problem.Load(); p != nil {
		return *p
	}
	return ""
}

// Foreign reports whether programs that are not instances of this version use the group. Either they keep this process
// out, or this process leads the group and gives them nothing. The next assignment ends both.
func (s *Status) Foreign() bool { return s.foreign.Load() }

// led records the members without our user data that this process found as the leader; none if another member leads.
func (s *Status) led(strangers []string) {
	if was := s.foreign.Swap(len(strangers) > 0); len(strangers) > 0 && !was {
		s.o.Logger.Error("members of the group are no instances of waterclock and get no partitions: stop them",
			"group", s.o.Group, "members", strangers)
	}
}

// Unresponsive returns a sentence if the brokers have not answered for longer than the group waits for this member;
// otherwise "". In that case other members may have its partitions, or nobody.
func (s *Status) Unresponsive() string {
	p := s.heartbeats.Load()
	if p == nil {
		return "" // no client yet
	}
	d, asked := p.silence()
	limit := s.o.SessionTimeout
	if asked {
		limit += s.o.RebalanceTimeout
	}
	if d <= limit {
		return ""
	}
	return fmt.Sprintf("no broker has answered for group %s for %s, longer than the session timeout (%s): the "+
		"brokers are down or cut off from here, or this process stood still; it goes on by itself when one answers",
		s.o.Group, span.String(d.Round(time.Second)), span.String(s.o.SessionTimeout))
}
