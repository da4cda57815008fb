package intake

import (
	"sync"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// timedSink records when records come, and which of them exceed the quota. mu guards
// the fields below it.
type timedSink struct {
	unbounded
	mu   sync.Mutex
	at   []time.Time
	over int
}

func (ts *timedSink) Deliver(r partlog.Read) {
	recs := r.Records
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, r := range recs {
		ts.at = append(ts.at, time.Now())
		if isOver(r) {
			ts.over++
		}
	}
}

func (ts *timedSink) Fail(error)               {}
func (ts *timedSink) Skip(*partlog.Unreadable) {}

func (ts *timedSink) count() (all, over int) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return len(ts.at), ts.over
}

func (ts *timedSink) awaits(t *testing.T, n int) {
	t.Helper()
	await.Until(t, readLimit, "records", func() bool { all, _ := ts.count(); return all >= n })
}

// TestReaderMarksRequestsBeyondTheQuota: of records that come at once, one second's worth
// is accepted. Another quota, and a partition that is read again, start anew.
func TestReaderMarksRequestsBeyondTheQuota(t *testing.T) {
	rig := newReadRig(t, 1) // readPerPart records, written within a moment
	rig.r.SetQuota(readTopic, Quota{Rate: 0.5})
	rig.run()
	wants := func(what string, all, over int) {
		t.Helper()
		s := &timedSink{}
		rig.r.Add(readTopic, 0, 0, s)
		s.awaits(t, all)
		if _, got := s.count(); got < over-1 || got > over { // a slow machine writes them over two seconds
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

// TestReaderDelaysRequestsBeyondTheQuota: nothing is marked, and the excess comes
// later, unless the quota is lifted. A sink that has enough stays paused.
func TestReaderDelaysRequestsBeyondTheQuota(t *testing.T) {
	rig := newReadRig(t, 2)
	rig.r.SetQuota(readTopic, Quota{Rate: 2, Delay: true})
	rig.run()
	s, other := &timedSink{}, &timedSink{}
	rig.r.Add(readTopic, 0, 0, s)
	s.awaits(t, readPerPart) // two of them are within a second: four seconds of debt
	held := time.Now()
	rig.produce(0, 1)
	rig.r.Add(readTopic, 1, 0, other)
	other.awaits(t, readPerPart)
	s.awaits(t, readPerPart+1)
	// The debt counts from when the records were written, which is before they came.
	if took := s.at[readPerPart].Sub(held); took < time.Second {
		t.Errorf("the next record came after %s", took)
	}
	if _, over := s.count(); over != 0 {
		t.Errorf("%d records are marked", over)
	}

	rig.r.SetQuota(readTopic, Quota{Rate: 0.001, Delay: true})
	rig.produce(0, 1)
	s.awaits(t, readPerPart+2)
	rig.produce(0, 1) // waits for a quarter of an hour
	rig.r.Pause(readTopic, 0)
	rig.r.SetQuota(readTopic, Quota{})
	<-time.After(300 * time.Millisecond)
	if all, _ := s.count(); all != readPerPart+2 {
		t.Errorf("%d records for a sink that has enough", all)
	}
	rig.r.Resume(readTopic, 0)
	s.awaits(t, readPerPart+3)
}

// TestReaderForgetsHolds: a partition that is read again does not wait for former
// debts.
func TestReaderForgetsHolds(t *testing.T) {
	rig := newReadRig(t, 1)
	rig.r.SetQuota(readTopic, Quota{Rate: 0.01, Delay: true})
	rig.run()
	first := &timedSink{}
	rig.r.Add(readTopic, 0, 0, first)
	first.awaits(t, readPerPart)
	rig.r.Remove(readTopic, 0, first)
	second := &timedSink{}
	rig.r.Add(readTopic, 0, 0, second)
	second.awaits(t, readPerPart)
}
