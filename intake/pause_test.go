package intake

import (
	"testing"
	"time"
)

// TestReaderMarksRequestsBeyondTheQuota: of records that come at once, one second's worth
// is accepted. Another quota, and a partition that is read again, start anew.
func TestReaderMarksRequestsBeyondTheQuota(t *testing.T) {
	rig := newReadRig(t, 1) // readPerPart records, written within a moment
	rig.r.SetQuota(readTopic, Quota{Rate: 0.5})
	rig.run()
	wants := func(what string, all, over int) {
		t.Helper()
		s := new(sink)
		rig.r.Add(readTopic, 0, 0, s)
		s.has(t, all)
		if got := s.over; got < over-1 || got > over { // a slow machine writes them over two seconds
			t.Errorf("%s: %d of %d are beyond the quota, want %d", what, got, all, over)
		}
		rig.r.Remove(readTopic, 0, s)
	}
	wants("the first time", readPerPart, readPerPart-1)
	wants("again", readPerPart, readPerPart-1)
	rig.r.SetQuota(readTopic, Quota{Rate: 1e6})
	wants("another quota", readPerPart, 0)
	rig.r.SetQuota(readTopic, Quota{})
	wants("no quota", readPerPart, 0)
	rig.r.SetQuota("other", Quota{Rate: 0.001})
	wants("another topic's", readPerPart, 0)
}

// TestReaderDelaysRequestsBeyondTheQuota: nothing is marked, and the excess comes later, unless the quota is lifted. A
// sink that has enough stays paused.
func TestReaderDelaysRequestsBeyondTheQuota(t *testing.T) {
	rig := newReadRig(t, 2)
	rig.r.SetQuota(readTopic, Quota{Rate: 2, Delay: true})
	rig.run()
	s, other := new(sink), new(sink)
	rig.r.Add(readTopic, 0, 0, s)
	s.has(t, readPerPart) // two of them are within a second: four seconds of debt
	held := time.Now()
	rig.produce(0, 1)
	rig.r.Add(readTopic, 1, 0, other)
	other.has(t, readPerPart)
	s.has(t, readPerPart+1)
	// The debt counts from when the records were written, which is before they came.
	if took := s.times[readPerPart].Sub(held); took < time.Second {
		t.Errorf("the next record came after %s", took)
	}
	if s.look(func() bool { return s.over != 0 }) {
		t.Errorf("%d records are marked", s.over)
	}

	rig.r.SetQuota(readTopic, Quota{Rate: 0.001, Delay: true})
	rig.produce(0, 1)
	s.has(t, readPerPart+2)
	rig.produce(0, 1) // waits for a quarter of an hour
	rig.r.Pause(readTopic, 0)
	rig.r.SetQuota(readTopic, Quota{})
	<-time.After(300 * time.Millisecond)
	if all := len(s.got()); all != readPerPart+2 {
		t.Errorf("%d records for a sink that has enough", all)
	}
	rig.r.Resume(readTopic, 0)
	s.has(t, readPerPart+3)
}

// TestReaderForgetsHolds: a partition that is read again does not wait for former debts.
func TestReaderForgetsHolds(t *testing.T) {
	rig := newReadRig(t, 1)
	rig.r.SetQuota(readTopic, Quota{Rate: 0.01, Delay: true})
	rig.run()
	first := new(sink)
	rig.r.Add(readTopic, 0, 0, first)
	first.has(t, readPerPart)
	rig.r.Remove(readTopic, 0, first)
	second := new(sink)
	rig.r.Add(readTopic, 0, 0, second)
	second.has(t, readPerPart)
}
