package node

import (
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/ownership/membership"
	"github.com/waterclock/waterclock/statestore"
)

// localViews returns the views in the local store that are still usable, for the balancer of the group. The one that
// was in sync last comes first. They are only a hint: if an acquisition does not trust a view, it replays the
// changelog.
func localViews(store *statestore.Store, topics *servedTopics, now time.Time) (views []membership.View) {
	ids, err := store.Partitions()
	if err != nil {
		return nil
	}
	byID := make(map[[16]byte]*served)
	for _, t := range topics.requests() {
		byID[t.set.Request.ID] = t
	}
	type held struct {
		membership.View
		inSync time.Time
	}
	var all []held
	for _, id := range ids {
		t := byID[id.Topic]
		if t == nil {
			continue
		}
		m, ok := store.Partition(id).Look()
		if ok && m.Changelog == t.set.Changelog.ID && m.Named && now.Sub(m.InSync) < t.settings.Last().MaxAbsence() {
			all = append(all,
				held{membership.View{Topic: t.set.Request.Name, Partition: id.Partition, Position: m.Position},
					m.InSync})
		}
	}
	slices.SortStableFunc(all, func(a, b held) int { return b.inSync.Compare(a.inSync) })
	for _, h := range all {
		views = append(views, h.View)
	}
	return views
}
