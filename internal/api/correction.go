package api

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/route"
)

// request returns the request of a dead letter with the correction applied. For a fixed-delay
// topic it keeps the count of attempts, unless that is what was wrong.
func (c *Correction) request(r *Record, delay bool) (route.Request, error) {
	q := route.Request{ID: r.Key, Value: r.Value}
	if c == nil {
		c = &Correction{}
	}
	var typed *string
	if c.ID != "" {
		typed = &c.ID
	}
	id, err := oneOf("id", typed, c.IDBase64, false)
	if err != nil {
		return q, err
	}
	if len(id) > 0 {
		if len(q.ID) > 0 && !bytes.Equal(q.ID, id) {
			return q, fmt.Errorf("the dead letter has an ID, which stays: leave it out, or schedule another timer")
		}
		q.ID = id
	}
	value, err := oneOf("value", c.Value, c.ValueBase64, c.ValueNull)
	switch {
	case err != nil:
		return q, err
	case value != nil, c.ValueNull:
		q.Value = value
	case missing(r) != nil:
		return q, fmt.Errorf("the payload of this dead letter did not fit and is gone: give it as value")
	}
	if c.Headers == nil {
		if slices.Contains(missing(r), "headers") {
			return q, fmt.Errorf(
				"headers of this dead letter did not fit and are gone: give as headers all that are to be sent")
		}
		for _, h := range r.Headers {
			counts := delay && h.Key == waterclock.HeaderAttempt && r.header(waterclock.HeaderReason) != string(
				waterclock.ReasonBadAttempt)
			if !strings.HasPrefix(h.Key, waterclock.OwnPrefix) || counts {
				q.Headers = append(q.Headers, h)
			}
		}
		return q, nil
	}
	for _, h := range *c.Headers {
		if h.Name == "" {
			return q, fmt.Errorf("a header has no name")
		}
		header, err := h.header()
		if err != nil {
			return q, err
		}
		q.Headers = append(q.Headers, header)
	}
	return q, nil
}
