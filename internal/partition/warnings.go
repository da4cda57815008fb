package partition

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// warnBurst is how many lines one kind of warning gets in warnEvery: enough to see what a producer does wrong, too
	// few to flood a log.
	warnBurst = 5
	warnEvery = time.Minute
	// warnedID is how much of a timer's ID a line shows, in bytes.
	warnedID = 64
)

// warnings limit the log lines about rejected requests, for all partitions of a process. Metrics count all of them,
// and the next line of a kind says how many were left out.
type warnings struct {
	muted bool       // set before the first partition exists
	mu    sync.Mutex // guards kinds
	kinds map[warning]*warned
}

// warning is a kind of warning. There are no more of them than request topics times reasons.
type warning struct{ topic, reason string }

type warned struct {
	since      time.Time // when the first of the lines was written
	lines      int
	suppressed int
}

// Reasons of warnings that are not about dead letters.
const (
	misplacedWarning  = "misplaced"
	unreckonedWarning = "unreckoned"
)

// allow reports whether a line may be written now, and how many were left out since the last one.
func (w *warnings) allow(of warning, now time.Time) (ok bool, suppressed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.kinds[of]
	if k == nil {
		k = &warned{}
		w.kinds[of] = k
	}
	if now.Sub(k.since) >= warnEvery {
		k.since, k.lines = now, 0
	}
	if k.lines == warnBurst {
		k.suppressed++
		return false, 0
	}
	k.lines++
	suppressed, k.suppressed = k.suppressed, 0
	return true, suppressed
}

// logger returns the log for a warning of a kind, nil if it is left out now. A line of it says how many were left out
// before.
func (w *warnings) logger(log *slog.Logger, topic, reason string) *slog.Logger {
	ok, suppressed := w.allow(warning{topic, reason}, time.Now())
	switch {
	case !ok:
		return nil
	case suppressed > 0:
		return log.With("not_logged_before", suppressed)
	}
	return log
}

func shortID(id []byte) string {
	if len(id) > warnedID {
		return string(id[:warnedID]) + "…"
	}
	return string(id)
}
