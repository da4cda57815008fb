package partition

import (
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// This file has the parts of this package that fixed-delay partitions use, so that their words and counts are the same.

// TargetRefusal describes a target's refusal of a record.
func TargetRefusal(err error, r *kgo.Record) (reason, detail string) {
	v := refusalOf(err, r)
	return v.Reason, v.Detail
}

// NoKey describes why a compacted target refuses something without a key.
func NoKey(topic, what string) (reason, detail string) {
	return string(waterclock.ReasonTargetRefused),
		"topic " + topic + " is compacted and takes no record without a key: give the " + what + " a key"
}

// Passed counts the records of a fixed-delay topic that a step has passed on. sealed, committed and the due times are
// in Unix ms.
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

// Refused counts a record that became a dead letter, and logs it with the given attributes. undelivered: its target has
// refused it; otherwise the record itself is invalid.
func (m *Metrics) Refused(log *slog.Logger, topic, reason string, undelivered bool, attrs ...any) {
	outcome := outcomeNames[timer.Refused]
	if undelivered {
		outcome = outcomeNames[timer.Undeliverable]
	}
	m.outcomes.WithLabelValues(topic, outcome).Inc()
	m.reasons.WithLabelValues(topic, reason).Inc()
	ok, suppressed := m.warnings.allow(warning{topic, reason}, time.Now())
	if !ok {
		return
	}
	if suppressed > 0 {
		attrs = append(attrs, "not_logged_before", suppressed)
	}
	log.Warn("a record could not be passed on and is a dead letter now", append([]any{"reason", reason}, attrs...)...)
}
