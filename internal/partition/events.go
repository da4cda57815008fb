package partition

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
)

// Events are records of the step that they report. They are committed with it or not at all, and are made anew each
// time it is sealed, so time and lateness are those of the attempt that was committed. They are made from the entries,
// one by one: the changelog has only the net change of an ID, and nothing of a timer that was scheduled and cancelled
// in one step.
//
// All events of a request partition go to the events partition of the same number, in the order of the sequence. So a
// reader gets the events of an ID in the order in which they happened. It also means that an events partition that
// takes no writes holds up its request partition, as the changelog does, and unlike dead letters: events on another
// partition would lose their order, and without them the history would have gaps. Other request partitions are not held
// up, because the quarantine tries the share apart from theirs.

const (
	// eventBytes is about the size of an event, and eventBuffer the most bytes of events that are allocated at once.
	eventBytes  = 512
	eventBuffer = 64 << 10
)

func sizeOfEvents(n int) timer.Size { return timer.Size{Entries: n, Bytes: int64(n) * eventBytes} }

// event returns the event of an entry that is sealed at the given time; false if nothing happened to a timer, for
// example because a cancel found nothing, or a firing was rolled back. (The long switch is the table of events.)
func (o *owned) event(e *planner.Entry, at int64, emission *kgo.Record) (ev wire.Event, happened bool) {
	result := e.Result()
	ev = wire.Event{Type: wire.EventTypeOf(result), ID: e.ID, At: at, Source: o.source(e.Before.Offset),
		Pending: e.After}
	if e.After.IsRemembered() {
		ev.Pending = nil
	}
	switch result {
	case timer.Scheduled:
		ev.Source = o.source(e.After.Offset)
	case timer.Replaced:
		ev.Source, ev.Previous = o.source(e.After.Offset), ev.Source
	case timer.Cancelled:
		ev.Cancel = o.source(e.Request)
	case timer.Fired:
		ev.Occurred = e.Emit
		ev.Partition, ev.Emission = emission.Partition, emission.Headers[len(emission.Headers)-1].Value
	case timer.Expired:
		ev.Occurred = e.Late
	case timer.Undeliverable:
		ev.Occurred = e.Emit
		ev.Reason, ev.Detail = e.Refusal.Reason, e.Refusal.Detail
	case timer.Refused:
		rec := e.Tag.(*kgo.Record)
		ev.ID, ev.Source, ev.Unknown = rec.Key, o.source(rec.Offset), true
		ev.Reason, ev.Detail = e.Refusal.Reason, e.Refusal.Detail
	case timer.None:
		return ev, e.After != nil && e.After.Ref() != e.Before // otherwise a remembered timer is forgotten
	case timer.Triggered, timer.Paused, timer.Resumed:
		ev.Request = o.source(e.Request)
	case timer.Unmet:
		ev.Request = o.source(e.Request)
		if e.Before.IsAbsent() {
			ev.Source = waterclock.Source{}
		}
	case timer.NotFound:
		return ev, false
	}
	return ev, true
}
