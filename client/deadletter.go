package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// LetterID is the place of a dead letter in its topic.
type LetterID struct {
	Partition int32
	Offset    int64
}

// String returns the place as PARTITION/OFFSET.
func (l LetterID) String() string { return fmt.Sprintf("%d/%d", l.Partition, l.Offset) }

// path returns the path of a dead letter, or of something below it.
func (l LetterID) path(topic string, below ...string) string {
	return Path(topic, append([]string{"dead-letters", strconv.Itoa(int(l.Partition)),
		strconv.FormatInt(l.Offset, 10)}, below...)...)
}

// DeadLetter is a request that was rejected, or an emission that its target has rejected.
type DeadLetter struct {
	LetterID
	At     time.Time
	ID     string // of the timer; empty: there was none
	Reason waterclock.Reason
	Detail string
	Source waterclock.Source // the request
	// Reviewed: it has been reviewed, or sent again; nil: not known.
	Reviewed *bool
	Headers  []kgo.RecordHeader // of the request
	// Value is the payload, nil for null. A list has the first 1,024 bytes of a long one: see ValueBytes.
	Value      []byte
	ValueBytes int
	// Missing are the parts that did not fit into the letter, and are gone: value, headers, key.
	Missing []string

	raw json.RawMessage
}

// UnmarshalJSON reads a dead letter as the API writes it.
func (d *DeadLetter) UnmarshalJSON(b []byte) error {
	type plain DeadLetter
	*d = DeadLetter{raw: append(json.RawMessage(nil), b...)}
	w := struct {
		*plain
		ID       string
		IDBase64 []byte
		Source   string
		Headers  headers
		Payload  *struct {
			Bytes int
			text
		}
	}{plain: (*plain)(d)}
	err := json.Unmarshal(b, &w)
	if err != nil {
		return err
	}
	d.ID, d.Headers = either(w.ID, w.IDBase64), w.Headers.records()
	d.Source, err = sourceOf(w.Source)
	if w.Payload != nil {
		d.Value, d.ValueBytes = w.Payload.bytes(), w.Payload.Bytes
	}
	return err
}

// MarshalJSON returns the dead letter as the API has written it.
func (d *DeadLetter) MarshalJSON() ([]byte, error) {
	if d.raw == nil {
		return nil, fmt.Errorf("dead letter %s is not from the API", d.LetterID)
	}
	return d.raw, nil
}

// Letters selects dead letters; the zero value selects all.
type Letters struct {
	Reason        waterclock.Reason
	Prefix        string    // of the timer's ID
	After, Before time.Time // written then or later, and before then; zero: any time
	Reviewed      *bool     // nil: both
	Labels        string    // of the timer, as in Filter; none if they were rejected
}

// query returns the filter as parameters of the API.
func (l *Letters) query() url.Values {
	q := texts("reason", string(l.Reason), "prefix", l.Prefix, "after", millis(l.After), "before", millis(l.Before),
		"label", l.Labels)
	if l.Reviewed != nil {
		q.Set("reviewed", strconv.FormatBool(*l.Reviewed))
	}
	return q
}

// DeadLetters lists dead letters of a request topic or a fixed-delay topic, roughly the newest first.
func (c *Client) DeadLetters(ctx context.Context, topic string, l Letters,
	opts ...ListOption) iter.Seq2[*DeadLetter, error] {
	q := l.query()
	q.Set("limit", strconv.Itoa(listPage))
	for _, o := range opts {
		o(q)
	}
	return pages(q, func(q url.Values) ([]*DeadLetter, string, error) {
		var page struct {
			DeadLetters []*DeadLetter
			Cursor      string
		}
		err := c.get(ctx, Path(topic, "dead-letters"), q, &page)
		return page.DeadLetters, page.Cursor, err
	})
}

// DeadLetter returns a dead letter, with its whole payload.
func (c *Client) DeadLetter(ctx context.Context, topic string, at LetterID) (*DeadLetter, error) {
	d := new(DeadLetter)
	return d, c.get(ctx, at.path(topic), nil, d)
}

// Correction replaces parts of the request of a dead letter.
type Correction struct {
	ID        string             // if there was none
	Headers   []kgo.RecordHeader // all of them, instructions too; nil: its own
	Value     []byte             // nil: its own
	NullValue bool               // the payload is null
}

func (c *Correction) fields() map[string]any {
	if c == nil {
		return nil
	}
	fields := make(map[string]any)
	if c.ID != "" {
		fields["idBase64"] = []byte(c.ID)
	}
	if c.Value != nil || c.NullValue {
		give(fields, "value", c.Value)
	}
	if c.Headers != nil {
		list := make([]map[string]any, len(c.Headers))
		for i, h := range c.Headers {
			list[i] = map[string]any{"name": h.Key}
			give(list[i], "value", h.Value)
		}
		fields["headers"] = list
	}
	return fields
}

// Resend sends the request of a dead letter again, as it was or, unless k is nil, corrected. It waits for the decision.
func (c *Client) Resend(ctx context.Context, topic string, at LetterID, k *Correction) (d Decision, err error) {
	var body any
	if fields := k.fields(); fields != nil {
		body = fields
	}
	err = c.Call(ctx, http.MethodPost, at.path(topic, "resend"), nil, body, &d)
	return d, err
}

// ResendOptions are properties of a job that sends dead letters again.
type ResendOptions struct {
	JobOptions
	Replace bool // replace a pending timer of the same ID; otherwise it stays
}

func (r *ResendOptions) add(l *Letters) url.Values {
	q := r.JobOptions.add(l.query())
	q.Set("replace", strconv.FormatBool(r.Replace))
	return q
}

// ResendAll starts a job that sends the requests of all dead letters that a filter selects again. Unless Reviewed is
// false in the filter, another job sends the same letters again.
func (c *Client) ResendAll(ctx context.Context, topic string, l Letters, o ResendOptions) (*Job, error) {
	return c.start(ctx, Path(topic, "dead-letters", "resend"), o.add(&l))
}

// LetterCount is a number of dead letters.
type LetterCount struct {
	N        int64                       `json:"count"`
	Exact    bool                        `json:"exact"`    // false: there are at least N
	NotWhole int64                       `json:"notWhole"` // of them, those that cannot be sent, because a part is gone
	Reasons  map[waterclock.Reason]int64 `json:"reasons"`
}

// CountResend counts the dead letters that ResendAll would send.
func (c *Client) CountResend(ctx context.Context, topic string, l Letters, o ResendOptions) (LetterCount, error) {
	var s started
	err := c.dryRun(ctx, Path(topic, "dead-letters", "resend"), o.add(&l), &s)
	if err == nil && s.Letters == nil {
		err = errNoJob
	}
	if err != nil {
		return LetterCount{}, err
	}
	return *s.Letters, nil
}
