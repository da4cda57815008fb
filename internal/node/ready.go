package node

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/waterclock/waterclock/internal/ownership"
)

// report is what /readyz shows.
type report struct {
	Phase  string `json:"phase,omitempty"`
	Member bool   `json:"member"`
	// why it is not a member, or may no longer be one, as a sentence
	Group   string                            `json:"group,omitempty"`
	Access  []string                          `json:"access,omitempty"`  // problems, as sentences
	Stopped map[string]string                 `json:"stopped,omitempty"` // why topics are stopped, by topic
	Clock   string                            `json:"clock,omitempty"`   // why targets refuse the clock, as a sentence
	Topics  map[string]map[string]partitionOf `json:"topics"`
}

type partitionOf struct {
	State     string `json:"state"`
	Reason    string `json:"reason,omitempty"`
	Warning   string `json:"warning,omitempty"`
	Pending   int64  `json:"pending"`
	Replayed  int64  `json:"replayed,omitempty"`
	ReplayEnd int64  `json:"replay_end,omitempty"`
}

// readiness says whether the instance is ready, and what it waits for. It implements ops.Readiness.
type readiness struct {
	partitions *partitions

	mu     sync.Mutex // guards what follows
	phase  string     // what the instance does or waits for; "" while it runs
	access *access    // nil until there is a client
	member *member    // nil until the instance runs; so are clock and topics
	clock  *clockWatch
	topics *servedTopics
}

func (r *readiness) setPhase(p string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase = p
}

func (r *readiness) setAccess(a *access) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.access = a
}

// runs notes that the instance runs.
func (r *readiness) runs(m *member, c *clockWatch, t *servedTopics) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase, r.member, r.clock, r.topics = "", m, c, t
}

// handingOver is the phase of an instance that was told to hand over and leave.
const handingOver = "handing over"

// handOver is the function for ops.Server.OnLeave. From now on the instance is not ready.
func (r *readiness) handOver(ctx context.Context) error {
	r.mu.Lock()
	m := r.member
	if m == nil || r.phase != "" && r.phase != handingOver {
		defer r.mu.Unlock()
		return fmt.Errorf("the instance does not run: %s", r.phase)
	}
	r.phase = handingOver
	r.mu.Unlock()
	m.handOver(ctx)
	return nil
}

// Ready implements ops.Readiness. The instance is ready if all of these hold:
//
//   - It runs, and is not handing over.
//   - A broker has confirmed its membership within the session timeout, and the group has no other problem.
//   - The brokers accept its login and grant all rights, except perhaps those to single targets.
//   - No topic is stopped.
//   - Its clock is not known to be wrong.
//   - Every owned partition is live.
func (r *readiness) Ready() (bool, any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	is, ok := report{Phase: r.phase, Topics: make(map[string]map[string]partitionOf)}, false
	if r.phase == "" {
		var wrong bool
		is.Member, is.Group, is.Stopped = r.member.group.Joined(), r.member.problem(), r.topics.stops()
		is.Clock, wrong = r.clock.problem()
		ok = is.Member && is.Group == "" && len(is.Stopped) == 0 && !wrong
	}
	if r.access != nil {
		is.Access = r.access.Problems()
	}
	ok = ok && len(is.Access) == 0
	for at, s := range r.partitions.Status() {
		if is.Topics[at.Topic] == nil {
			is.Topics[at.Topic] = make(map[string]partitionOf)
		}
		po := partitionOf{State: s.State.String(), Reason: s.Reason, Warning: s.Warning, Pending: s.Pending}
		if s.State == ownership.Replaying {
			po.Replayed, po.ReplayEnd = s.Replayed, s.ReplayEnd
		}
		is.Topics[at.Topic][strconv.Itoa(int(at.Partition))] = po
		ok = ok && s.State == ownership.Live
	}
	return ok, is
}
