package statestore

import (
	"errors"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// Timers shows every pending timer of a partition, parked ones too, and no others.
func TestTimers(t *testing.T) {
	s := memStore(t)
	k, ts := withTimers(t, s)
	must(t, k.Park("unhealthy", ts[:1]))
	got := make(map[string]int64)
	m, err := s.Timers(k.p.id, func(tm *timer.Timer) error { got[string(tm.ID)] = tm.Offset; return nil })
	must(t, err)
	if m.Position != getMeta(t, k).Position || len(got) != len(ts) || int(m.Pending) != len(ts) {
		t.Errorf("%+v, %v", m, got)
	}
	for _, tm := range ts {
		if got[string(tm.ID)] != tm.Offset {
			t.Errorf("%s has generation %d, want %d", tm.ID, got[string(tm.ID)], tm.Offset)
		}
	}
	stop := errors.New("stop")
	if _, err := s.Timers(k.p.id, func(*timer.Timer) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	if m, err := s.Timers(PartitionID{Partition: 99}, nil); err != nil || m.Position >= 0 {
		t.Errorf("of nothing: %+v, %v", m, err)
	}
}
