package crash

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/test/witness"
)

// What is forgotten costs no verdict: what is pending is judged later by all that led to it, and an emission that comes
// again is found.
func TestForgettingCostsNoVerdict(t *testing.T) {
	now := time.Now()
	record := func(topic string, offset int64) history.Record {
		return history.Record{Place: history.Place{Topic: topic, Offset: offset}, Timestamp: now.UnixMilli(), Seen: now}
	}
	request := func(id string, offset int64) history.Request {
		return history.Request{Record: record("timers", offset), ID: id, Acked: now, Action: history.Schedules,
			Due: now.UnixMilli(), Emits: history.Payload{Topic: "out", Key: id}}
	}
	emission := func(id string, source, offset int64) history.Emission {
		return history.Emission{
			Record: record("out", offset), ID: id, Due: now.UnixMilli(), Occurrence: 1,
			Source: history.Place{Topic: "timers", Offset: source},
			Event:  id, Carries: history.Payload{Topic: "out", Key: id},
		}
	}
	change := func(id string, source, offset int64) history.ChangelogRecord {
		c := history.ChangelogRecord{Record: record("timers.waterclock.changelog", offset), Requests: "timers",
			Kind: history.TimerChange, ID: id}
		if source >= 0 {
			c.Timer = &history.Timer{ID: id, Source: history.Place{Topic: "timers", Offset: source},
				Due: now.UnixMilli(), Occurrence: 1}
		}
		return c
	}
	checkpoint := func(step string, position, offset int64) history.ChangelogRecord {
		return history.ChangelogRecord{Record: record("timers.waterclock.changelog", offset), Requests: "timers",
			Kind: history.Checkpoint, Step: step, Position: position}
	}
	s := &watch{pending: make(map[string]*history.Timer)}
	h := &s.history
	sound := func(when string) {
		t.Helper()
		for _, v := range witness.Check(*h) {
			t.Errorf("%s: %s", when, v)
		}
	}
	h.Requests = []history.Request{request("over", 0), request("far", 1)}
	h.Emissions = []history.Emission{emission("over", 0, 0)}
	far := change("far", 1, 1)
	claim := history.ChangelogRecord{Record: record("timers.waterclock.changelog", 5), Requests: "timers",
		Kind: history.Claim, Step: "p/2"}
	h.Changes = []history.ChangelogRecord{change("over", 0, 0), far, checkpoint("p/0", 2, 2), change("over", -1, 3),
		checkpoint("p/1", 2, 4), claim, checkpoint("p/3", 2, 6)}
	s.pending["far"] = far.Timer
	sound("before")
	s.forget()
	if len(h.Requests) != 1 || len(h.Emissions) != 0 || len(h.Changes) != 4 {
		t.Errorf("left are %d requests, %d emissions and %d changes, want 1, none and 4", len(h.Requests),
			len(h.Emissions), len(h.Changes))
	}
	sound("behind")
	h.Stores = []witness.StoreContents{{Instance: "wc-0", Requests: "timers", Position: 7,
		Timers: []history.Timer{*far.Timer}}}
	sound("with a local store")
	h.Stores[0].Timers = nil
	if wrong := witness.Check(*h); len(wrong) != 1 || wrong[0].Rule != "fold" {
		t.Errorf("a store that lacks a timer: %v", wrong)
	}
	h.Stores = nil
	triggered := change("far", 1, 7)
	triggered.Timer.Triggered = true
	h.Changes = append(h.Changes, triggered, checkpoint("p/4", 3, 8), change("far", -1, 9), checkpoint("p/5", 3, 10))
	h.Emissions = append(h.Emissions, emission("far", 1, 1))
	sound("when the rest has fired")
	h.Emissions = append(h.Emissions, emission("over", 0, 2))
	if wrong := witness.Check(*h); len(wrong) == 0 {
		t.Error("an emission that comes again is not found")
	} else {
		t.Log(wrong)
	}
}
