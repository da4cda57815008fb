package partition

import (
	"iter"
	"log/slog"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/tracing"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
)

// committed counts the outcomes of a committed step, which was sealed and committed at these times, in Unix ms.
func (m *Metrics) committed(p *Partition, a *arrivals, sealed, committed int64, entries iter.Seq[*planner.Entry]) {
	topic := p.o.Topics.Request.Name
	toSeal, toCommit, own, ownToEnd := m.sealed.tally(), m.delivered.tally(), m.own.tally(), m.ownToEnd.tally()
	var counts [timer.Outcomes]int
	recur, remembered := 0, 0
	for e := range entries {
		o := e.Result()
		counts[o]++
		if e.After != nil && !e.After.IsRemembered() &&
			(o == timer.Fired || o == timer.Expired || o == timer.Undeliverable) {
			recur++
		}
		if o == timer.Expired && !e.Firing() && !e.Before.IsPending() {
			recur++ // it was never pending
		}
		if e.After.IsRemembered() {
			remembered++
		}
		if e.Before.IsRemembered() {
			remembered--
		}
		switch {
		case e.Refusal != nil:
			m.reasons.WithLabelValues(topic, e.Refusal.Reason).Inc()
			m.warnRefused(p, e)
		case e.Emit != nil:
			toSeal.add(sealed - e.Emit.FiresAt())
			toCommit.add(committed - e.Emit.FiresAt())
			if due, ours := a.ownDue(sealed, e); ours && !p.paced(&e.Emit.Target, e.Emit.FiresAt()) {
				own.add(max(0, sealed-due))
				ownToEnd.add(max(0, committed-due))
			}
		}
	}
	m.sealed.add("", &toSeal)
	m.own.add("", &own)
	m.delivered.add(topic, &toCommit)
	m.ownToEnd.add(topic, &ownToEnd)
	if n := counts[timer.Scheduled] + counts[timer.Replaced]; n > 0 {
		m.accepted.WithLabelValues(topic).Add(float64(n))
	}
	p.ledger.add(&counts, recur+remembered)
	for o, n := range counts {
		if n > 0 && outcomeNames[timer.Outcome(o)] != "" {
			m.outcomes.WithLabelValues(topic, outcomeNames[timer.Outcome(o)]).Add(float64(n))
		}
	}
}

// warnRefused logs an entry that became a dead letter.
func (m *Metrics) warnRefused(p *Partition, e *planner.Entry) {
	if m.warnings.muted {
		return
	}
	log := m.warnings.logger(p.life.Log, p.o.Topics.Request.Name, e.Refusal.Reason)
	if log == nil {
		return
	}
	msg, id, source, trace := "timer undeliverable, written to the dead-letter topic", e.ID, "", ""
	if rec, request := e.Tag.(*kgo.Record); request && e.Refused() {
		msg, id, source, trace = "request rejected, written to the dead-letter topic", rec.Key,
			p.source(rec.Offset).String(), tracing.ID(rec.Headers)
	} else if e.Emit != nil {
		source, trace = p.source(e.Emit.Offset).String(), tracing.ID(recordHeaders(e.Emit.Headers))
	}
	attrs := []any{"reason", e.Refusal.Reason, "detail", e.Refusal.Detail, "timer", shortID(id), "source", source}
	if trace != "" {
		attrs = append(attrs, "trace_id", trace)
	}
	log.Warn(msg, attrs...)
}

// Passed counts, for package delaytopics, the records of a fixed-delay topic that a step has passed on. sealed,
// committed and the due times are in Unix ms.
func (m *Metrics) Passed(topic string, sealed, committed int64, due []int64) {
	m.outcomes.WithLabelValues(topic, outcomeNames[timer.Fired]).Add(float64(len(due)))
	toSeal, toCommit := m.sealed.tally(), m.delivered.tally()
	for _, at := range due {
		toSeal.add(sealed - at)
		toCommit.add(committed - at)
	}
	m.sealed.add("", &toSeal)
	m.delivered.add(topic, &toCommit)
}

// Refused counts, for package delaytopics, a record that became a dead letter, and logs it with the given attributes.
// undelivered: its target has refused it; otherwise the record itself is invalid.
func (m *Metrics) Refused(log *slog.Logger, topic, reason string, undelivered bool, attrs ...any) {
	outcome := outcomeNames[timer.Refused]
	if undelivered {
		outcome = outcomeNames[timer.Undeliverable]
	}
	m.outcomes.WithLabelValues(topic, outcome).Inc()
	m.reasons.WithLabelValues(topic, reason).Inc()
	if log = m.warnings.logger(log, topic, reason); log != nil {
		log.Warn("record undeliverable, written to the dead-letter topic",
			append([]any{"reason", reason}, attrs...)...)
	}
}

// ledger counts the pending timers in two ways. expected follows from the outcomes of committed steps alone: timers
// that were pending at the acquisition, plus those accepted since, minus those with an outcome since. A request that
// replaces a timer counts as both, for two generations.
//
// pending follows from the changes of the steps, as counted by the planners. Between two steps the two must be equal.
// If not, a timer's outcome was counted and its state did not change, or the other way round.
type ledger struct {
	expected atomic.Int64
	pending  atomic.Int64 // timers that are pending after all committed steps
}

func (l *ledger) open(pending int64) {
	l.pending.Store(pending)
	l.expected.Store(pending)
}

// add adds the outcomes of a step. recur is how many of them left a timer, for its next occurrence or as a remembered
// one, or ended none, minus remembered timers that are forgotten or replaced.
func (l *ledger) add(counts *[timer.Outcomes]int, recur int) {
	accepted := counts[timer.Scheduled] + counts[timer.Replaced]
	outcomes := counts[timer.Replaced] + counts[timer.Cancelled] + counts[timer.Fired] + counts[timer.Expired] +
		counts[timer.Undeliverable] + counts[timer.Completed]
	l.expected.Add(int64(accepted - outcomes + recur))
}

// balance is the difference of the two counts.
func (l *ledger) balance() int64 { return l.expected.Load() - l.pending.Load() }
