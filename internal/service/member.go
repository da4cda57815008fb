package service

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/waterclock/waterclock/internal/membership"
)

// member is the instance as a member of its group.
type member struct {
	group *membership.Group
	name  string // of the group
	log   *slog.Logger
	ctx   context.Context // of the membership
	leave context.CancelCauseFunc
	gone  chan struct{} // closed when run has left the group
}

// errHandedOver is why a membership ends that was told to hand over.
var errHandedOver = errors.New("handed over")

// newMember returns a member whose membership ends with ctx. Its group is set before it runs.
func newMember(ctx context.Context, name string, log *slog.Logger) *member {
	m := &member{name: name, log: log, gone: make(chan struct{})}
	m.ctx, m.leave = context.WithCancelCause(ctx)
	return m
}

// problem says in a sentence why the instance is no member of its group, or may be none; "" if it is one.
func (m *member) problem() string {
	why := cmp.Or(m.group.Problem(), m.group.Unresponsive())
	if why == "" && !m.group.Joined() {
		why = "joining group " + m.name
	}
	return why
}

// resign leaves the group for good: a changelog was written by a later version, and only
// instances of that version can serve it. The process stays up, not ready, so that it is seen.
func (m *member) resign(why error) {
	m.group.Resign()
	m.leave(why)
}

// handOver has other instances take over all partitions, until ctx ends, and leaves the group, whatever on-stop says. Then
// the instance ends. It returns when this one is no member any more.
func (m *member) handOver(ctx context.Context) {
	begun := time.Now()
	m.group.HandOver(ctx)
	m.group.Resign()
	m.leave(errHandedOver)
	<-m.gone
	m.log.Info("left the group", "group", m.name, "after", time.Since(begun).Round(time.Millisecond))
}

// run is a member until ctx ends, and then drains and leaves; or until it has handed over. Once the member has resigned, run only
// waits for the end of ctx, after it has passed on why to aside.
func (m *member) run(ctx context.Context, aside func(why error)) error {
	defer m.leave(nil)
	err := m.group.Run(m.ctx)
	close(m.gone)
	why := context.Cause(m.ctx)
	if err != nil || why == nil || ctx.Err() != nil || errors.Is(why, errHandedOver) {
		return err
	}
	aside(why)
	t := time.NewTicker(stoppedEvery)
	defer t.Stop()
	for {
		m.log.Error("left the group until a restart", "group", m.name, "err", why)
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}
