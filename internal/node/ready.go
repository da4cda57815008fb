package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/node/ops"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/ownership/membership"
)

// report is the body of /readyz.
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

// readiness says whether the instance is ready, or the phase it is in. It implements ops.Readiness.
type readiness struct {
	partitions *partitions

	mu     sync.Mutex // guards the fields below
	phase  string     // the phase of the start or stop; "" while it runs
	access *access    // nil until there is a client
	member *member    // nil until the instance runs; so are clock and topics
	clock  *clockWatch
	topics *servedTopics
}

var _ ops.Readiness = (*readiness)(nil)

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
	state, ok := report{Phase: r.phase, Topics: make(map[string]map[string]partitionOf)}, false
	if r.phase == "" {
		var wrong bool
		state.Member, state.Group, state.Stopped = r.member.group.Joined(), r.member.problem(), r.topics.stops()
		state.Clock, wrong = r.clock.problem()
		ok = state.Member && state.Group == "" && len(state.Stopped) == 0 && !wrong
	}
	if r.access != nil {
		state.Access = r.access.Problems()
	}
	ok = ok && len(state.Access) == 0
	for at, s := range r.partitions.Status() {
		if state.Topics[at.Topic] == nil {
			state.Topics[at.Topic] = make(map[string]partitionOf)
		}
		po := partitionOf{State: s.State.String(), Reason: s.Reason, Warning: s.Warning, Pending: s.Pending}
		if s.State == ownership.Replaying {
			po.Replayed, po.ReplayEnd = s.Replayed, s.ReplayEnd
		}
		state.Topics[at.Topic][strconv.Itoa(int(at.Partition))] = po
		ok = ok && s.State == ownership.Live
	}
	return ok, state
}

// member is the instance as a member of its group.
type member struct {
	group *membership.Group
	name  string // of the group
	log   *slog.Logger
	ctx   context.Context // of the membership
	leave context.CancelCauseFunc
	gone  chan struct{} // closed once run has left the group
}

// errHandedOver is the cause of a membership's end after a hand-over.
var errHandedOver = errors.New("handed over")

// resigned is the cause of a membership's end because the member resigned.
type resigned struct{ error }

// newMember returns a member whose membership ends with ctx. The caller sets its group before it calls run.
func newMember(ctx context.Context, name string, log *slog.Logger) *member {
	m := &member{name: name, log: log, gone: make(chan struct{})}
	m.ctx, m.leave = context.WithCancelCause(ctx)
	return m
}

// problem returns a sentence that says why the instance is not a member of its group, or may no longer be one; "" if it
// is a member.
func (m *member) problem() string {
	if why := context.Cause(m.ctx); errors.As(why, new(resigned)) {
		return "left the group: " + why.Error() + "; run a version that can read it"
	}
	why := cmp.Or(m.group.Problem(), m.group.Unresponsive())
	if why == "" && !m.group.Joined() {
		why = "joining group " + m.name
	}
	return why
}

// resign leaves the group until a restart. The reason is a changelog that a later version has written: only instances
// of that version can serve it. The process stays up and is not ready, so that an operator notices.
func (m *member) resign(why error) {
	m.group.Resign()
	m.leave(resigned{why})
}

// handOver lets other instances take over all partitions, until ctx ends at the latest. Then it leaves the group,
// whatever on-stop says. It returns when this instance is no longer a member; the instance ends after that. It may be
// called again while it runs; the context that ends first counts.
func (m *member) handOver(ctx context.Context) {
	begun := time.Now()
	m.group.Resign() // first, so that an instance that is stopped during the handover leaves the group, too
	m.group.HandOver(ctx)
	m.leave(errHandedOver)
	<-m.gone
	m.log.Info("left the group", "group", m.name, "duration", time.Since(begun).Round(time.Millisecond))
}

// run keeps the membership until ctx ends or a hand-over is complete. Then it drains the partitions, and leaves
// the group unless on-stop says stay. If the member resigns, run calls aside and waits until ctx ends.
func (m *member) run(ctx context.Context, aside func()) error {
	defer m.leave(nil)
	err := m.group.Run(m.ctx)
	close(m.gone)
	why := context.Cause(m.ctx)
	if err != nil || why == nil || ctx.Err() != nil || errors.Is(why, errHandedOver) {
		return err
	}
	aside()
	for again := true; again; again = beats.Sleep(ctx, stoppedEvery) {
		m.log.Error("left the group until a restart", "group", m.name, "err", why)
	}
	return nil
}
