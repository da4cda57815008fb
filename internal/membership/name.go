package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/transaction"
)

const (
	// nameInterval is how often a fenced instance asks whether its name is free.
	nameInterval = time.Second
	// nameReminder is how often it says that it waits.
	nameReminder = time.Minute
)

// awaitName waits while another process is a member under our instance ID.
//
// To join at once would fence that one, it would find out when a step is
// refused, join at once and fence us, and so on forever. So the newest process
// has the name; who was fenced gets it back when that one has gone. (kgo does
// the same where a heartbeat tells it: it asks with its old member ID, four times
// a second, and says so each time; poll ends that.) A join of our own that the
// broker took in while the client closed looks the same; it costs one session
// timeout.
func (g *Group) awaitName(ctx context.Context, was transaction.Member) {
	if g.o.InstanceID == "" || was.ID == "" {
		return
	}
	var said time.Time
	for ctx.Err() == nil && errors.Is(g.heartbeat(ctx, was), kerr.FencedInstanceID) {
		if time.Since(said) > nameReminder {
			said = time.Now()
			g.complain(fmt.Sprintf("another process is a member of group %s under instance ID %s: stop one of them, or give each an --instance-id of its own",
				g.o.Group, g.o.InstanceID))
			g.o.Logger.Error("another process has joined the group with this instance ID, waiting until it is gone",
				"group", g.o.Group, "instance_id", g.o.InstanceID)
		}
		select {
		case <-ctx.Done():
		case <-time.After(nameInterval):
		}
	}
}
