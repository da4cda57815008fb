package main

import (
	"cmp"
	"encoding/json"
	"io"
	"time"
	"unicode/utf8"

	"github.com/waterclock/waterclock/internal/node/commands"
)

// writtenRequest is a request in the log as --json prints it: one object a line.
type writtenRequest struct {
	ID        string          `json:"id,omitempty"`
	IDBase64  []byte          `json:"idBase64,omitempty"` // an ID that is not UTF-8
	Action    string          `json:"action"`             // schedule, cancel, trigger, pause or resume
	Topic     string          `json:"topic"`
	Partition int32           `json:"partition"`
	Offset    int64           `json:"offset"`
	Due       *time.Time      `json:"due,omitempty"`     // when the timer is first due
	Outcome   *writtenOutcome `json:"outcome,omitempty"` // with --wait, once it is decided
}

// writtenOutcome is what became of a request.
type writtenOutcome struct {
	// Type is a type of events, or nothing-done, or decided if nothing tells what happened.
	Type   string `json:"type"`
	Reason string `json:"reason,omitempty"` // of a request that was rejected
	Detail string `json:"detail,omitempty"`
}

// printWritten prints a request that is in the log as JSON.
func printWritten(out io.Writer, id string, action commands.Action, s *commands.Sent) error {
	w := writtenRequest{
		ID: id, Action: cmp.Or(string(action), "schedule"), Topic: s.Topic, Partition: s.Partition, Offset: s.Offset,
	}
	if !utf8.ValidString(id) {
		w.ID, w.IDBase64 = "", []byte(id)
	}
	if !s.Due.IsZero() {
		due := s.Due.UTC()
		w.Due = &due
	}
	if o := s.Outcome; o != nil {
		w.Outcome = &writtenOutcome{Type: cmp.Or(string(o.Type), "decided")}
		switch {
		case o.Refused != nil:
			w.Outcome.Reason, w.Outcome.Detail = string(o.Refused.Reason), o.Refused.Detail
		case o.Event != nil:
			w.Outcome.Reason, w.Outcome.Detail = string(o.Event.Reason), o.Event.Detail
		}
	}
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	return lines.Encode(w)
}
