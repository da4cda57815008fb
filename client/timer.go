package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// State is the state of a timer.
type State string

// The states.
const (
	StatePending   State = "pending"   // fires when it is due
	StateTriggered State = "triggered" // fires now
	StatePaused    State = "paused"    // does not fire until it is resumed
	StateParked    State = "parked"    // is due, and waits for its target
	StateDeferred  State = "deferred"  // is due, and waits for the rate of its target
	// StateRemembered: it has fired, and its ID stays taken ([waterclock.Remember]). A list has such timers only if its
	// filter asks for the state.
	StateRemembered State = "remembered"
	// StateRecurring selects timers that recur, in any state. No timer is in it.
	StateRecurring State = "recurring"
)

// Timer is a pending timer. Durations are in the form of requests, as in 1h30m.
type Timer struct {
	ID         string            `json:"-"` // any bytes
	Topic      string            `json:"topic"`
	Partition  int32             `json:"partition"`
	Source     waterclock.Source `json:"-"` // its request: which version of the timer it is
	State      State             `json:"state"`
	Due        time.Time         `json:"due"`
	Scheduled  time.Time         `json:"scheduled"` // Due without jitter, calendars and moves
	Occurrence int64             `json:"occurrence"`
	Target     Target            `json:"target"`
	// Headers are those that are passed on. Value is the payload, nil for null; lists have neither payloads nor Bytes.
	Headers    []kgo.RecordHeader     `json:"-"`
	Value      []byte                 `json:"-"`
	Recurrence *Recurrence            `json:"recurrence"` // nil: it does not recur
	Jitter     string                 `json:"jitter"`     // if it does not recur
	NotOn      []string               `json:"notOn"`      // names of calendars whose times are excluded
	Shift      waterclock.ShiftPolicy `json:"shift"`      // empty without NotOn
	MaxLate    string                 `json:"maxLate"`
	Remember   string                 `json:"remember"`
	Note       string                 `json:"note"` // an anomaly, for people
	Labels     map[string]string      `json:"labels"`

	raw json.RawMessage
}

// Target is the destination of a timer.
type Target struct {
	Topic     string `json:"topic"`
	Partition *int32 `json:"partition"` // nil: the key decides
	Key       []byte `json:"-"`         // nil: null
}

// Recurrence describes how a timer recurs.
type Recurrence struct {
	Every   string                   `json:"every"` // a duration, or a period such as P1M
	Cron    string                   `json:"cron"`
	Zone    string                   `json:"zone"`
	Start   time.Time                `json:"start"` // zero: none
	Until   time.Time                `json:"until"` // zero: none
	Count   int64                    `json:"count"` // 0: no limit
	Jitter  string                   `json:"jitter"`
	CatchUp waterclock.CatchUpPolicy `json:"catchUp"`
}

// text is bytes in the JSON of the API.
type text struct {
	Text   *string
	Base64 []byte
	Null   bool
}

func (t *text) bytes() []byte {
	switch {
	case t == nil || t.Null:
		return nil
	case t.Text != nil:
		return []byte(*t.Text)
	case t.Base64 == nil:
		return []byte{}
	}
	return t.Base64
}

// headers are headers in the JSON of the API.
type headers []struct {
	Name        string
	Value       *string
	ValueBase64 []byte
	ValueNull   bool
}

func (hs headers) records() (all []kgo.RecordHeader) {
	for _, h := range hs {
		value := text{h.Value, h.ValueBase64, h.ValueNull}
		all = append(all, kgo.RecordHeader{Key: h.Name, Value: value.bytes()})
	}
	return all
}

// either returns an ID that is text, or bytes.
func either(id string, base64 []byte) string { return cmp.Or(id, string(base64)) }

// sourceOf reads a source, which may be missing.
func sourceOf(text string) (s waterclock.Source, err error) {
	if text != "" {
		s, err = waterclock.ParseSource(text)
	}
	return s, err
}

// UnmarshalJSON reads a timer as the API writes it.
func (t *Timer) UnmarshalJSON(b []byte) error {
	type plain Timer
	w := struct {
		*plain
		ID       string
		IDBase64 []byte
		Source   string
		Headers  headers
		Payload  *text
	}{plain: (*plain)(t)}
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	source, err := sourceOf(w.Source)
	if err != nil {
		return err
	}
	t.ID, t.Source = either(w.ID, w.IDBase64), source
	t.Headers, t.Value = w.Headers.records(), w.Payload.bytes()
	t.Scheduled = cmp.Or(t.Scheduled, t.Due)
	t.raw = append(json.RawMessage(nil), b...)
	return nil
}

// MarshalJSON returns the timer as the API has written it.
func (t *Timer) MarshalJSON() ([]byte, error) {
	if t.raw == nil {
		return nil, fmt.Errorf("timer %.100q is not from the API", t.ID)
	}
	return t.raw, nil
}

// UnmarshalJSON reads a target as the API writes it.
func (t *Target) UnmarshalJSON(b []byte) error {
	var w struct {
		Topic     string
		Partition *int32
		Key       *string
		KeyBase64 []byte
		KeyNull   bool
	}
	err := json.Unmarshal(b, &w)
	key := text{w.Key, w.KeyBase64, w.KeyNull}
	*t = Target{Topic: w.Topic, Partition: w.Partition, Key: key.bytes()}
	return err
}

// Get returns the pending timer of an ID, with its payload. The error has [ReasonNotFound] if none is pending.
func (c *Client) Get(ctx context.Context, topic, id string) (*Timer, error) {
	t := new(Timer)
	if err := c.get(ctx, Path(topic, "timers", id), nil, t); err != nil {
		return nil, err
	}
	return t, nil
}
