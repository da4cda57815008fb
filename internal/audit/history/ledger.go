package history

import (
	"github.com/waterclock/waterclock"
)

// ledger: each accepted timer is pending or has an outcome, by its events. (Instances count the same:
// waterclock_ledger.)
func ledger(x *index) {
	type account struct{ made, over, pending int }
	accounts := make(map[Log]*account)
	for _, f := range x.byID {
		if !x.Scope.Events[f.Topic] || !x.endKnown(f.Log) || len(x.moved) > 0 || len(x.Scope.Moving) > 0 ||
			x.Scope.Unseen[f.Topic+eventsSuffix] > 0 || x.Scope.From[f.Log] > 0 {
			continue
		}
		a := accounts[f.Log]
		if a == nil {
			a = new(account)
			accounts[f.Log] = a
		}
		if f.pending.pending() != nil {
			a.pending++
		}
		for _, e := range f.events {
			switch e.Type {
			case waterclock.EventScheduled:
				a.made++
			case waterclock.EventCancelled, waterclock.EventFired, waterclock.EventExpired,
				waterclock.EventUndeliverable, waterclock.EventCompleted, waterclock.EventRescheduled:
				if e.Event.Pending == nil && !e.Unknown && !f.expiredAtOnce(e) {
					a.over++
				}
			}
		}
	}
	for _, l := range x.logs {
		if a := accounts[l.Log]; a != nil && a.made != a.over+a.pending {
			x.broken("ledger", "", nil, "%s/%d: by events %d timers were made and %d have ended, but %d are pending",
				l.Topic, l.Partition, a.made, a.over, a.pending)
		}
	}
}
