package node

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/ownership/membership"
)

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

// resign leaves the group for good. The reason is a changelog that a later version has written: only instances of that
// version can serve it. The process stays up and is not ready, so that somebody notices.
func (m *member) resign(why error) {
	m.group.Resign()
	m.leave(resigned{why})
}

// handOver lets other instances take over all partitions, until ctx ends at the latest. Then it leaves the group,
// whatever on-stop says. It returns when this instance is no longer a member; the instance ends after that. It may be
// called again meanwhile; the context that ends first counts.
func (m *member) handOver(ctx context.Context) {
	begun := time.Now()
	m.group.Resign() // first, so that an instance that is stopped during the handover leaves the group, too
	m.group.HandOver(ctx)
	m.leave(errHandedOver)
	<-m.gone
	m.log.Info("left the group", "group", m.name, "after", time.Since(begun).Round(time.Millisecond))
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
