package node

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/timer"
)

// The brokers are asked for the producer again until everything is known: a broker that was silent may
// answer the next time. Earlier answers are not forgotten.
func TestAHoldersNameIsAskedForUntilItIsKnown(t *testing.T) {
	now := time.Now()
	k := timer.TopicPartition{Topic: "r"}
	h := &openTransaction{at: 7, seen: now, by: ownership.Held{From: 7, Since: now}}
	e := &edges{held: map[timer.TopicPartition]*openTransaction{k: h}}
	began := now.Add(-time.Minute)
	e.take(map[timer.TopicPartition]producer{k: {7, repair.Holder{ProducerID: 4}, time.Time{}}})
	if h.known || h.by.ProducerID != "4" {
		t.Errorf("of a producer whose coordinator is silent: %+v", h)
	}
	e.take(map[timer.TopicPartition]producer{k: {7,
		repair.Holder{ProducerID: 4, TransactionalID: "billing", Began: began}, time.Time{}}})
	if h.known || h.by.TransactionalID != "billing" || !h.by.Since.Equal(began) {
		t.Errorf("of a record that could not be read: %+v", h)
	}
	e.take(map[timer.TopicPartition]producer{k: {7, repair.Holder{ProducerID: -1}, began}})
	if !h.known || h.by.TransactionalID != "billing" || !h.by.Oldest.Equal(began) {
		t.Errorf("in the end: %+v", h)
	}
}
