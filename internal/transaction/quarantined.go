package transaction

import (
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// quarantinePause is the pause between two tries of a source that holds up steps. It grows to quarantineShare
	// of the time for which the source has been unhealthy, up to quarantinePauseMax. A try itself takes up to
	// ownDeadline, so it is noticed soon that a partition takes writes again.
	quarantinePause    = 250 * time.Millisecond
	quarantinePauseMax = 15 * time.Second
	quarantineShare    = 16
	// While the transaction of the last try is not ended, the pause grows to unendedShare of the time, up to
	// unendedMax: see quarantine.
	unendedPause = time.Second
	unendedMax   = 5 * time.Minute
	unendedShare = 4
	// quarantineTick is how often a source that has nothing to seal is asked again.
	quarantineTick = 100 * time.Millisecond
	// quarantineEntries bounds a share while it is tried, and doubles with each one that is taken: records that a
	// leader takes and cannot replicate stay in its log, aborted, try after try, and a partition may be too slow
	// for more.
	quarantineEntries = 100
	// quarantineMemory is how soon after its release a source must hold up a step again to be kept in the
	// quarantine for longer: probationMin, doubling to probationMax.
	quarantineMemory = time.Minute
	probationMin     = 2 * time.Second
	probationMax     = time.Minute
)

// quarantined is one source in the quarantine.
type quarantined struct {
	request      timer.TopicPartition // of the source
	since, next  time.Time
	heldSince    time.Time       // when it first held up a step since it was healthy
	unended      <-chan struct{} // closed when the last try's transaction is ended; or nil
	anyway       time.Time       // when to try even if it is not ended
	healthySince time.Time       // since when everything that was tried was taken; zero: it is unhealthy
	drained      bool            // the last try took everything that was ready
	entries      int             // how many the next try may have
	probation    time.Duration
	released     time.Time
}

// newQuarantined returns the state of a source that has held up a step. past is its last stay in the quarantine.
func newQuarantined(request timer.TopicPartition, past *quarantined) *quarantined {
	now := time.Now()
	st := &quarantined{request: request, since: now, heldSince: now, next: now, entries: quarantineEntries}
	if past != nil && now.Sub(past.released) < quarantineMemory {
		st.probation = min(max(probationMin, 2*past.probation), probationMax)
	}
	return st
}

// over reports whether to give the source back.
func (st *quarantined) over() bool {
	return !st.healthySince.IsZero() && time.Since(st.healthySince) >= st.probation && (st.drained || st.entries >= MaxStepEntries)
}

// fails notes a try that the source held up. end is closed when its transaction is ended.
func (st *quarantined) fails(end <-chan struct{}) {
	now := time.Now()
	if !st.healthySince.IsZero() {
		st.heldSince = now
	}
	lasts := now.Sub(st.heldSince)
	st.healthySince, st.entries, st.unended = time.Time{}, quarantineEntries, end
	st.next = now.Add(min(quarantinePauseMax, max(quarantinePause, lasts/quarantineShare)))
	st.anyway = now.Add(min(unendedMax, max(unendedPause, lasts/unendedShare)))
}

// due reports whether it is time to try the source.
func (st *quarantined) due(now time.Time) bool {
	if now.Before(st.next) {
		return false
	}
	if st.unended == nil || !now.Before(st.anyway) {
		return true
	}
	select {
	case <-st.unended:
		return true
	default:
		return false
	}
}
