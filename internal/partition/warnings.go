package partition

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/tracing"
)

const (
	// warnBurst is how many lines one kind of warning gets in warnEvery: enough to see what a producer does wrong, too
	// few to flood a log.
	warnBurst = 5
	warnEvery = time.Minute
	// warnedID is how much of a timer's ID a line shows, in bytes.
	warnedID = 64
)

// warnings limit the log lines about rejected requests, for all partitions of a process. Metrics count what gets no line,
// and the next line of its kind says how many there were.
type warnings struct {
	muted bool       // set before the first partition exists
	mu    sync.Mutex // guards kinds
	kinds map[warning]*warned
}

// warning is a kind of warning. There are no more of them than request topics times reasons.
type warning struct{ topic, reason string }

type warned struct {
	since  time.Time // when the first of the lines was written
	lines  int
	unsaid int
}

// Reasons of warnings that are not about dead letters.
const (
	misplacedWarning  = "misplaced"
	unreckonedWarning = "unreckoned"
)

// allow reports whether a line may be written now, and how many were left out since the last one.
func (w *warnings) allow(of warning, now time.Time) (ok bool, unsaid int) {
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
		k.unsaid++
		return false, 0
	}
	k.lines++
	unsaid, k.unsaid = k.unsaid, 0
	return true, unsaid
}

// Mute stops the log lines about rejected requests. It must be called before the metrics are used.
func (m *Metrics) Mute() { m.warnings.muted = true }

// warnUnreckoned logs that timers wait for the rules of their time zone.
func (m *Metrics) warnUnreckoned(p *owned, t *timer.Timer) {
	if ok, unsaid := m.warnings.allow(warning{p.o.Topics.Request.Name, unreckonedWarning}, time.Now()); ok {
		p.life.Log.Error("timers wait: this instance has no rules for their time zone; upgrade it, or install zone data on its machine",
			"zone", t.Recurrence.Zone, "timer", string(t.ID[:min(len(t.ID), warnedID)]), "not_logged_before", unsaid)
	}
}

// warnRefused logs an entry that became a dead letter.
func (m *Metrics) warnRefused(p *owned, e *planner.Entry) {
	if m.warnings.muted {
		return
	}
	ok, unsaid := m.warnings.allow(warning{p.o.Topics.Request.Name, e.Refusal.Reason}, time.Now())
	if !ok {
		return
	}
	msg, id, source, trace := "a timer could not be delivered and is a dead letter now", e.ID, "", ""
	if rec, request := e.Tag.(*kgo.Record); request && e.Refused() {
		msg, id, source, trace = "a request was refused and is a dead letter now", rec.Key, p.source(rec.Offset).String(), tracing.ID(rec.Headers)
	} else if e.Emit != nil {
		source, trace = p.source(e.Emit.Offset).String(), tracing.ID(recordHeaders(e.Emit.Headers))
	}
	attrs := []any{"reason", e.Refusal.Reason, "detail", e.Refusal.Detail, "timer", shortID(id), "source", source}
	if trace != "" {
		attrs = append(attrs, "trace_id", trace)
	}
	p.warn(unsaid, msg, attrs...)
}

// misplaced counts and logs a request that is not on the partition of its key.
func (w *owned) misplaced(rec *kgo.Record, strayed *atomic.Bool) {
	w.o.Metrics.misplaced(rec.Topic)
	strayed.Store(true)
	ok, unsaid := w.o.Metrics.warnings.allow(warning{rec.Topic, misplacedWarning}, time.Now())
	if !ok {
		return
	}
	w.warn(unsaid, "a producer uses another partitioner: cancels and replacements by others will miss its timers; set its partitioner to murmur2 (librdkafka: partitioner=murmur2_random)",
		"timer", shortID(rec.Key), "offset", rec.Offset, "key_belongs_on", intake.Murmur2Partition(rec.Key, w.o.Topics.Request.Partitions))
}

func (w *owned) warn(unsaid int, msg string, attrs ...any) {
	if unsaid > 0 {
		attrs = append(attrs, "not_logged_before", unsaid)
	}
	w.life.Log.Warn(msg, attrs...)
}

func shortID(id []byte) string {
	if len(id) > warnedID {
		return string(id[:warnedID]) + "…"
	}
	return string(id)
}
