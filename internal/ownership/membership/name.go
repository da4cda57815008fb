package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kit/beats"
)

const (
	// nameInterval is how often a fenced instance asks whether its name is free.
	nameInterval = time.Second
	// nameReminder is how often it logs that it waits.
	nameReminder = time.Minute
)

// awaitName waits while another process is a member under our instance ID.
//
// If this process joined at once it would fence the other one, which would notice when a step is refused, join at once
// and fence us, and so on forever. So the newest process keeps the name, and the fenced one gets it back when that one
// has gone. (kgo would do the same if a heartbeat tells it that it is fenced: it asks with its old member ID, four
// times a second, and reports that each time; poll ends that.) A join of our own that the broker accepted while the
// client closed looks the same. It costs one session timeout.
func (g *Group) awaitName(ctx context.Context, was emitter.Member) {
	if g.o.InstanceID == "" || was.ID == "" {
		return
	}
	var waits beats.Reminder
	for ctx.Err() == nil && errors.Is(g.coordinator.heartbeat(ctx, was), kerr.FencedInstanceID) {
		if waits.Due(nameReminder) {
			problem := fmt.Sprintf("another process is a member of group %s under instance ID %s: stop one of them, "+
				"or give each an --instance-id of its own",
				g.o.Group, g.o.InstanceID)
			g.problem.Store(&problem)
			g.o.Logger.Error("another process has joined the group with this instance ID, waiting until it is gone",
				"group", g.o.Group, "instance_id", g.o.InstanceID)
		}
		beats.Sleep(ctx, nameInterval)
	}
}
