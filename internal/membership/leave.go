package membership

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// HandOver has the other members take over all partitions, each as soon as a member has caught up with it, and returns
// when they have, or when there are no others, or when ctx ends. From then on the group gives this member nothing. Its
// partitions are served meanwhile.
func (g *Group) HandOver(ctx context.Context) {
	g.leaving.Store(true)
	g.Rejoin()
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	var looked time.Time
	for g.holds() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if time.Since(looked) > aloneInterval {
			looked = time.Now()
			if of := g.settled(ctx); len(of.Members) == 1 {
				return
			}
		}
	}
}

// aloneInterval is how often a member that hands over looks whether there are others.
const aloneInterval = time.Second

// leave says goodbye; a static member's client would not do so by itself.
func (g *Group) leave(cl *kgo.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	var err error
	if g.o.InstanceID == "" {
		err = cl.LeaveGroupContext(ctx)
	} else {
		err = leaveStatic(ctx, cl, g.o.Group, g.o.InstanceID)
	}
	if err != nil {
		g.o.Logger.Warn("could not leave the group, the session has to expire", "group", g.o.Group, "err", err)
	}
}

// leaveStatic names the member ID too: by the instance ID alone it would remove
// whoever has that now, and so a replacement that fenced us.
func leaveStatic(ctx context.Context, cl *kgo.Client, group, instance string) error {
	member, _ := cl.GroupMetadata()
	if member == "" {
		return nil // never joined
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = group
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID, m.InstanceID, m.Reason = member, &instance, kmsg.StringPtr("stopped")
	req.Members = append(req.Members, m)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	for _, m := range resp.Members {
		switch err := kerr.ErrorForCode(m.ErrorCode); {
		case errors.Is(err, kerr.FencedInstanceID), errors.Is(err, kerr.UnknownMemberID):
			// no member any more
		case err != nil:
			return err
		}
	}
	return nil
}
