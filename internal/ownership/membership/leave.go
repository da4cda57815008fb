package membership

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

// HandOver gives all partitions to the other members, each one as soon as a member has caught up with it. From now on
// the group gives this member nothing; what it still owns is served. HandOver returns when it owns nothing, when all
// other members are leaving too, or when ctx ends. The last partitions may still be draining then: the end of Run waits
// for them.
func (g *Group) HandOver(ctx context.Context) {
	g.leaving.Store(true)
	g.Rejoin()
	var looked time.Time
	for g.tokens.any() && beats.Sleep(ctx, watchInterval) {
		if time.Since(looked) > heirsInterval {
			looked = time.Now()
			if of := g.coordinator.describe(ctx); len(of.Members) > 0 && !slices.ContainsFunc(of.Members, stays) {
				return
			}
		}
	}
}

// heirsInterval is how often a member that hands over checks whether any other member stays.
const heirsInterval = time.Second

// stays reports whether a member may take partitions over.
func stays(m kadm.DescribedGroupMember) bool { //nolint:gocritic // as slices has it
	d, said := userDataOf(&m)
	return !said || !d.leaving
}
