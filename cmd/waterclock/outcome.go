package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/node/commands"
)

// defaultWait is longer than an instance that died keeps its partitions.
const defaultWait = "30s"

// waitHelp is a part of the help of commands that have --wait.
const waitHelp = `With --wait the command waits for the service's decision and prints it. It exits 1 if
the request changed nothing. It needs the right to read TOPIC.waterclock.changelog and
TOPIC.waterclock.dead-letters; only with events (TOPIC.waterclock.events) does it know all
outcomes.`

// waiting is the flag --wait.
type waiting struct{ text string }

func (w *waiting) flag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.text, "wait", "", "wait up to `DURATION` for the outcome of the request")
	cmd.Flags().Lookup("wait").NoOptDefVal = defaultWait
}

// read returns how long to wait; 0 means not at all.
func (w *waiting) read(given bool) (time.Duration, error) {
	if !given {
		return 0, nil
	}
	wait, err := span.Parse(w.text)
	if err != nil || wait == 0 {
		return 0, usagef("--wait is %q, needs a duration such as 10s", w.text)
	}
	return wait, nil
}

// asked is a request whose outcome will be printed.
type asked struct {
	id        string
	action    commands.Action // "": it schedules
	condition string
	maxLate   bool
	json      bool // the outcome is printed as JSON, by printWritten
}

// said prints the outcome of a request. err is the error of sending it. said returns an error if the request changed
// nothing, or may have changed nothing.
func (a *asked) said(out io.Writer, s *commands.Sent, err error) error {
	switch {
	case err != nil && s.Topic != "":
		return fmt.Errorf("%w (the request stays in the log and counts once it is processed)", err)
	case err != nil || s.Outcome == nil:
		return err
	}
	line, err := a.outcome(s.Outcome)
	if err == nil && !a.json {
		_, err = fmt.Fprintln(out, line)
	}
	return err
}

// outcomes are the sentences for outcomes that need no more words; the ID goes before them.
var outcomes = map[waterclock.EventType]string{
	waterclock.EventScheduled: "is pending",
	waterclock.EventUnchanged: "is pending already, as this request asks for: nothing has changed",
	waterclock.EventFired:     "was due and has fired",
	waterclock.EventCancelled: "is cancelled",
	waterclock.EventTriggered: "is triggered: it fires now",
	waterclock.EventPaused:    "is paused",
	waterclock.EventResumed:   "is resumed",
	waterclock.EventCompleted: "has ended: its remaining occurrences were missed and are skipped",
}

// outcome returns the outcome of a request as a sentence.
func (a *asked) outcome(f *commands.Outcome) (string, error) {
	id := a.id
	switch f.Type {
	case waterclock.EventReplaced:
		return a.replaced(f), nil
	case waterclock.EventCancelled:
		if a.action == commands.Cancel && f.Event == nil {
			return id + " is not pending any more: it is cancelled, unless it fired at the same moment (events would " +
				"tell)", nil
		}
	case waterclock.EventMoved:
		text := id + " is moved"
		if f.Event != nil && f.Event.Pending != nil {
			text += fmt.Sprintf(": it is due %s, and was due %s", f.Event.Pending.Due.Format(time.RFC3339Nano),
				f.Event.Due.Format(time.RFC3339Nano))
		}
		return text, nil
	case waterclock.EventExpired:
		if f.Event != nil && f.Event.Detail != "" {
			return "", fmt.Errorf("%s has expired: %s; it is not emitted", id, f.Event.Detail)
		}
		return "", fmt.Errorf("%s has expired: it was %s late when it was decided, which is beyond its --max-late; "+
			"it is not emitted", id, span.String(f.Event.Lateness))
	case waterclock.EventConditionNotMet:
		return "", fmt.Errorf("%s: condition-not-met: --if %s does not hold, for %s; nothing has changed", id,
			a.condition, found(f.Event, a.condition))
	case waterclock.EventRejected, waterclock.EventUndeliverable:
		return "", refused(id, f)
	case commands.NothingDone:
		return "", fmt.Errorf("%s: nothing has changed: %s", id, a.nothing(f.EventsRead))
	case "":
		return a.traceless()
	}
	if said := outcomes[f.Type]; said != "" {
		return id + " " + said, nil
	}
	return fmt.Sprintf("%s: %s", id, f.Type), nil
}

func refused(id string, f *commands.Outcome) error {
	switch {
	case f.Refused != nil:
		return fmt.Errorf("%s was rejected: %w: %s", id, f.Refused.Reason, f.Refused.Detail)
	case f.Event.Type == waterclock.EventUndeliverable:
		return fmt.Errorf("%s was due and cannot be emitted: %w: %s", id, f.Event.Reason, f.Event.Detail)
	}
	return fmt.Errorf("%s was rejected: %w: %s", id, f.Event.Reason, f.Event.Detail)
}

// replaced returns the sentence for a request that has replaced another, or was replaced by a later one in the same
// step.
func (a *asked) replaced(f *commands.Outcome) string {
	if f.Source == f.Event.Previous {
		return fmt.Sprintf("%s was scheduled, and a later request has taken its place: %s", a.id, f.Event.Source)
	}
	return fmt.Sprintf("%s is pending, in place of %s", a.id, f.Event.Previous)
}

// found describes the timer that was pending when a condition did not hold.
func found(e *waterclock.Event, condition string) string {
	switch {
	case e.Pending != nil:
	case condition == waterclock.IfAbsent:
		return "a timer of this ID has fired and keeps the ID taken (timer-remember)"
	default:
		return "nothing is pending"
	}
	return fmt.Sprintf("the pending timer comes from %s, due %s", e.Source, e.Pending.Due.Format(time.RFC3339Nano))
}

// nothing returns the possible reason why a request that cancels or steers changed nothing.
func (a *asked) nothing(told bool) string {
	why := "nothing was pending under this ID"
	switch {
	case a.action == commands.Cancel && told:
		// An event shows this.
	case a.action == commands.Cancel:
		why += ", or it came and went in the same moment"
	case a.action == commands.Move:
	case a.action == commands.Resume:
		why += ", or it was not paused"
	default:
		why += ", or it was " + map[commands.Action]string{commands.Pause: "paused",
			commands.Trigger: "triggered"}[a.action] + " already"
	}
	if a.condition != "" && !told {
		why += ", or --if " + a.condition + " did not hold"
	}
	return why
}

// traceless returns the sentence for a request whose decision left no trace in the changelog.
func (a *asked) traceless() (string, error) {
	if a.action != "" {
		return fmt.Sprintf("%s is decided; its firing, or another request for it, came at the same moment (events "+
			"would tell which)", a.id), nil
	}
	ways := []string{"it was due and has fired"}
	if a.maxLate {
		ways = append(ways, "has expired by --max-late")
	}
	if a.condition != "" {
		ways = append(ways, "--if "+a.condition+" did not hold")
	}
	ways = append(ways, "a later request for "+a.id+" has taken its place")
	text := fmt.Sprintf("%s is decided: %s, or %s", a.id, strings.Join(ways[:len(ways)-1], ", or "), ways[len(ways)-1])
	if !a.maxLate && a.condition == "" {
		return text, nil
	}
	return "", fmt.Errorf("%s; only events show which (the setting events)", text)
}

// writtenRequest is a request in the log as --json prints it: one object a line.
type writtenRequest struct {
	ID        string          `json:"id,omitempty"`
	IDBase64  []byte          `json:"idBase64,omitempty"` // an ID that is not UTF-8
	Action    string          `json:"action"`             // schedule, cancel, trigger, pause, resume or move
	Topic     string          `json:"topic"`
	Partition int32           `json:"partition"`
	Offset    int64           `json:"offset"`
	Due       *time.Time      `json:"due,omitempty"`     // when the timer is first due
	Outcome   *writtenOutcome `json:"outcome,omitempty"` // with --wait, once it is decided
}

// writtenOutcome is the outcome of a request.
type writtenOutcome struct {
	// Type is a type of events, or nothing-done, or decided if the outcome is unknown.
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
