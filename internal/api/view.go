package api

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

// Timer is a pending timer as JSON. Bytes that are UTF-8 are text, others base64 in a separate field.
type Timer struct {
	ID         string      `json:"id,omitempty" doc:"ID of the timer, if it is UTF-8."`
	IDBase64   []byte      `json:"idBase64,omitempty" doc:"ID of the timer in base64, if it is not UTF-8."`
	Topic      string      `json:"topic" doc:"Request topic."`
	Partition  int32       `json:"partition" doc:"Partition of the request topic."`
	Source     string      `json:"source" doc:"Its request, as in waterclock-source: the timer's version. timer-if and If-Match take it."`
	State      string      `json:"state" enum:"pending,triggered,paused,parked,deferred,remembered" doc:"pending: fires when due; triggered: fires now; paused: does not fire until it is resumed; parked: is due and waits for its target; deferred: is due and waits for the rate of its target; remembered: has fired, and its ID stays taken until due (timer-remember)."`
	Due        time.Time   `json:"due" doc:"When the next occurrence is due."`
	DueMillis  int64       `json:"dueMillis" doc:"The same in Unix milliseconds."`
	Scheduled  *time.Time  `json:"scheduled,omitempty" doc:"When that occurrence is scheduled, if it is due at another time: without its jitter, its calendars and moves."`
	Occurrence int64       `json:"occurrence" doc:"Number of the next occurrence, from 1."`
	Target     Target      `json:"target"`
	Headers    []Header    `json:"headers,omitempty" nullable:"false" doc:"Headers that are passed on to the target."`
	Payload    *Payload    `json:"payload,omitempty" doc:"The payload that it fires. Lists leave it out."`
	Recurrence *Recurrence `json:"recurrence,omitempty" doc:"Its recurrence; absent if it does not recur."`
	Jitter     string      `json:"jitter,omitempty" doc:"If it does not recur: it is delayed by a part of it."`
	Remember   string      `json:"remember,omitempty" doc:"How long its ID stays taken once it has fired, and the text to be kept with it: timer-remember."`
	Note       string      `json:"note,omitempty" doc:"An anomaly: for example, that it is on another partition than its ID belongs on."`
	NotOn      []string    `json:"notOn,omitempty" doc:"Names of the calendars whose times are excluded."`
	Shift      string      `json:"shift,omitempty" enum:"skip,next,previous" doc:"What happens to an occurrence at a time that is excluded."`
	MaxLate    string      `json:"maxLate,omitempty" doc:"An occurrence that would be emitted later than this after it is due is not emitted."`

	Labels map[string]string `json:"labels,omitempty" doc:"Its labels, by name."`
}

// Target is the destination of a timer.
type Target struct {
	Topic     string  `json:"topic"`
	Partition *int32  `json:"partition,omitempty" doc:"Explicit partition; if absent, the key decides."`
	Key       *string `json:"key,omitempty" doc:"Key of the emission, if it is UTF-8."`
	KeyBase64 []byte  `json:"keyBase64,omitempty" doc:"Key of the emission in base64, if it is not UTF-8."`
	KeyNull   bool    `json:"keyNull,omitempty" doc:"The emission has a null key."`
}

// Header is a record header.
type Header struct {
	Name        string  `json:"name"`
	Value       *string `json:"value,omitempty" doc:"Its value, if it is UTF-8."`
	ValueBase64 []byte  `json:"valueBase64,omitempty" doc:"Its value in base64, if it is not UTF-8."`
	ValueNull   bool    `json:"valueNull,omitempty" doc:"Its value is null."`
}

// Payload is the value of an emission.
type Payload struct {
	Bytes  int     `json:"bytes" doc:"Its length."`
	Text   *string `json:"text,omitempty" doc:"The value, if it is UTF-8."`
	Base64 []byte  `json:"base64,omitempty" doc:"The value in base64, if it is not UTF-8."`
	Null   bool    `json:"null,omitempty" doc:"The value is null."`
}

// Recurrence describes the recurrence of a timer.
type Recurrence struct {
	Every   string     `json:"every,omitempty" doc:"A duration or, with zone, a period such as P1M."`
	Cron    string     `json:"cron,omitempty"`
	Zone    string     `json:"zone,omitempty"`
	Start   *time.Time `json:"start,omitempty" doc:"Its beginning: the first occurrence of a period, the timer-at of a cron expression."`
	Until   *time.Time `json:"until,omitempty"`
	Count   int64      `json:"count,omitempty"`
	Jitter  string     `json:"jitter,omitempty"`
	CatchUp string     `json:"catchUp" enum:"latest,all,none"`
}

// view returns a timer as callers see it; nil for nil.
func view(q *query.Timer, payload bool) *Timer {
	if q == nil {
		return nil
	}
	t := q.Timer
	v := &Timer{
		Topic: q.Topic, Partition: q.Partition, Source: q.Source, State: string(q.State),
		Due: instantOf(t.Due), DueMillis: t.Due, Occurrence: t.Occurrence,
		Target: Target{Topic: t.Target.Topic, KeyNull: t.Target.Key == nil}, Labels: t.Labels.Map(),
	}
	if utf8.Valid(t.ID) {
		v.ID = string(t.ID)
	} else {
		v.IDBase64 = t.ID
	}
	if p := t.Target.Partition; p != timer.AnyPartition {
		v.Target.Partition = &p
	}
	v.Target.Key, v.Target.KeyBase64 = Text(t.Target.Key)
	for _, h := range t.Headers {
		v.Headers = append(v.Headers, HeaderOf(h))
	}
	if payload {
		v.Payload = &Payload{Bytes: len(t.Value), Null: t.Value == nil}
		v.Payload.Text, v.Payload.Base64 = Text(t.Value)
	}
	if t.TooLate > 0 {
		// TooLate is the smallest lateness that is too late.
		v.MaxLate = millis(t.TooLate - 1)
	}
	if m := t.Remember; m != nil {
		v.Remember = strings.TrimSuffix(millis(m.For)+" "+m.Token, " ")
	}
	if t.Recurs() {
		v.Recurrence = recurrence(t.Recurrence)
	} else if t.Recurrence != nil && t.Recurrence.Jitter > 0 {
		v.Jitter = millis(t.Recurrence.Jitter)
	}
	scheduled := t.Original()
	if c := t.Recurrence; c != nil && c.NotOn != "" {
		v.NotOn, v.Shift = strings.Split(c.NotOn, ","), c.Shift.String()
		scheduled -= c.Moved
	}
	if scheduled != t.Due {
		v.Scheduled = new(instantOf(scheduled))
	}
	return v
}

// HeaderOf converts a header to its JSON form.
func HeaderOf(h timer.Header) Header {
	shown := Header{Name: h.Key, ValueNull: h.Value == nil}
	shown.Value, shown.ValueBase64 = Text(h.Value)
	return shown
}

// Text returns b as text if it is UTF-8, else as bytes; neither if b is null.
func Text(b []byte) (*string, []byte) {
	if b == nil {
		return nil, nil
	}
	if !utf8.Valid(b) {
		return nil, b
	}
	return new(string(b)), nil
}

func recurrence(r *timer.Recurrence) *Recurrence {
	v := &Recurrence{Cron: r.Cron, Zone: r.Zone, Count: r.Count, CatchUp: r.CatchUp.String()}
	if r.Every > 0 {
		v.Every = millis(r.Every)
	} else {
		v.Every = r.Period.String()
	}
	if r.Start.Set {
		v.Start = new(instantOf(r.Start.At))
	}
	if r.Jitter > 0 {
		v.Jitter = millis(r.Jitter)
	}
	if r.Until != timer.NoUntil {
		v.Until = new(instantOf(r.Until))
	}
	return v
}

// Again returns what a request needs so that the recurrence goes on with a given occurrence as its first one: the
// interval and the count; 0 is no count. A period is still counted from its start, and its occurrences keep their
// numbers.
func (r *Recurrence) Again(occurrence int64) (every string, count int64) {
	switch {
	case r.Zone != "" && r.Every != "" && r.Start != nil:
		return r.Start.UTC().Format(time.RFC3339Nano) + "/" + r.Every, r.Count
	case r.Count > 0:
		return r.Every, max(1, r.Count-max(occurrence, 1)+1)
	}
	return r.Every, 0
}

// instantOf returns an instant that RFC 3339 can write, which has the years 0 to 9999 only. An instant beyond them
// becomes the nearest one within: a timer may be due before year 0 and end after year 9999.
func instantOf(ms int64) time.Time {
	return time.UnixMilli(max(firstInstant, min(ms, lastInstant))).UTC()
}

// The first and last instants that RFC 3339 can write, Unix ms.
var (
	firstInstant = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	lastInstant  = time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC).UnixMilli()
)

// millis writes milliseconds as a duration that requests take.
func millis(ms int64) string {
	for _, u := range []struct {
		ms   int64
		name string
	}{{86_400_000, "d"}, {3_600_000, "h"}, {60_000, "m"}, {1000, "s"}} {
		if ms > 0 && ms%u.ms == 0 {
			return strconv.FormatInt(ms/u.ms, 10) + u.name
		}
	}
	return strconv.FormatInt(ms, 10) + "ms"
}

// etag returns a timer's ETag. While it is the same, everything shown of the timer is the same, except for changes by
// new rules of time zones. So a firing that was triggered does not change the ETag of a recurring timer. The part
// before the semicolon is the timer's version, which If-Match is about: it stays the same when the timer fires or is
// parked.
func etag(t *Timer) string {
	if t.Occurrence == 1 && t.State == "pending" {
		return strconv.Quote(t.Source)
	}
	return strconv.Quote(fmt.Sprintf("%s;%d;%s", t.Source, t.Occurrence, t.State))
}

// isAmong reports whether the caller already has the version of a tag. tags are the values of If-None-Match (RFC
// 9110, 13.1.2).
func isAmong(tag string, tags []string) bool {
	for _, value := range tags {
		for one := range strings.SplitSeq(value, ",") {
			if one = strings.TrimPrefix(strings.TrimSpace(one), "W/"); one == tag || one == "*" {
				return true
			}
		}
	}
	return false
}
