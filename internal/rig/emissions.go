package rig

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

// Emissions checks what a read_committed consumer received: nothing early by
// its timestamp or by the receipt, nothing twice. It returns the emissions by
// timer ID, in order of receipt. Headers are read by name: the check is what a
// user could write without our code.
func Emissions(t testing.TB, received []kafkatest.Received) map[string][]kafkatest.Received {
	t.Helper()
	byID := make(map[string][]kafkatest.Received)
	events := make(map[string]kafkatest.Received)
	early, duplicated := 0, 0
	for _, r := range received {
		id, due, event := HeaderOf(r, "waterclock-id"), HeaderOf(r, "waterclock-due"), HeaderOf(r, "waterclock-event")
		ms, err := strconv.ParseInt(due, 10, 64)
		if err != nil || event == "" || id == "" {
			t.Errorf("emission on %s/%d at %d lacks headers: %v", r.Topic, r.Partition, r.Offset, r.Headers)
			continue
		}
		if r.Timestamp.UnixMilli() < ms || r.At.Before(time.UnixMilli(ms)) {
			if early++; early <= 5 {
				kafkatest.Inexact(t, "early: %s due %d, timestamp %d, received %d", id, ms, r.Timestamp.UnixMilli(), r.At.UnixMilli())
			}
		}
		if first, twice := events[event]; twice {
			if duplicated++; duplicated <= 5 {
				kafkatest.Inexact(t, "duplicated: %s, event %s: %s and %s", id, event, location(first), location(r))
			}
		}
		events[event] = r
		byID[id] = append(byID[id], r)
	}
	if early+duplicated > 0 {
		t.Errorf("%d early, %d duplicated of %d", early, duplicated, len(received))
	}
	return byID
}

// location says where and when a record was written and received.
func location(r kafkatest.Received) string {
	return fmt.Sprintf("%s/%d at %d, producer %d epoch %d, leader epoch %d, written %s, received %s",
		r.Topic, r.Partition, r.Offset, r.ProducerID, r.ProducerEpoch, r.LeaderEpoch, r.Timestamp.Format(time.StampMilli), r.At.Format(time.StampMilli))
}

// HeaderOf returns the value of the last header of a name, "" if there is none.
func HeaderOf(r kafkatest.Received, name string) string {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Key == name {
			return string(r.Headers[i].Value)
		}
	}
	return ""
}
