package history

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// share: no holder takes another's share. While a holder with less than an even share of the capacity waits, no other
// holder has more than an even share for longer than Settle.
func share(x *index) {
	type pool struct{ of, name string }
	moments := make(map[pool]map[time.Time][]*Holding)
	for i := range x.Holdings {
		h := &x.Holdings[i]
		p := pool{h.Instance, h.Pool}
		if moments[p] == nil {
			moments[p] = make(map[time.Time][]*Holding)
		}
		moments[p][h.At] = append(moments[p][h.At], h)
	}
	for _, p := range slices.SortedFunc(maps.Keys(moments),
		func(a, b pool) int { return cmp.Or(cmp.Compare(a.of, b.of), cmp.Compare(a.name, b.name)) }) {
		at := moments[p]
		since := make(map[string]time.Time)
		for _, t := range slices.SortedFunc(maps.Keys(at), time.Time.Compare) {
			starved := starving(at[t])
			for holder := range since {
				if !slices.Contains(starved, holder) {
					delete(since, holder)
				}
			}
			for _, holder := range starved {
				if since[holder].IsZero() {
					since[holder] = t
				} else if t.Sub(since[holder]) > x.Scope.Settle {
					x.broken("share", "", nil,
						"%s has waited for its share of %s of %s since %s, while another has more than its own", holder,
						p.name, p.of, since[holder])
					delete(since, holder)
				}
			}
		}
	}
}

// starving returns the holders that wait with less than an even share, if another holder has more than that.
func starving(hs []*Holding) (holders []string) {
	n := int64(len(hs))
	if !slices.ContainsFunc(hs, func(h *Holding) bool { return h.Holds > h.Capacity/n }) {
		return nil
	}
	for _, h := range hs {
		if h.Waits && h.Holds < h.Capacity/n {
			holders = append(holders, h.Holder)
		}
	}
	return holders
}
