package client

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// listPage is how many items a list asks for at a time, unless its filter says so.
const listPage = 100

// Filter selects timers; the zero value selects all.
type Filter struct {
	Prefix              string    // of the ID
	Target              string    // topic that they fire to
	State               State     // if empty, any but StateRemembered
	DueAfter, DueBefore time.Time // due then or later, and before then; zero: any time
	// Labels are conditions, with commas between them: team=a, team!=a (or no such label) or team. All must hold.
	Labels string
}

// query returns the filter as parameters of the API.
func (f *Filter) query() url.Values {
	return texts("prefix", f.Prefix, "target", f.Target, "state", string(f.State), "due-after", millis(f.DueAfter),
		"due-before", millis(f.DueBefore), "label", f.Labels)
}

// Order is the order of a list.
type Order string

// The orders.
const (
	ByDue Order = "due" // as timers fire; paused ones come last
	ByID  Order = "id"
)

// ListOption is a property of a list.
type ListOption func(url.Values)

// In sets the order. The default is [ByDue].
func In(o Order) ListOption { return func(q url.Values) { q.Set("order", string(o)) } }

// PageSize sets how many timers a call asks for: 1 to 1,000. The default is 100. It does not limit the list.
func PageSize(n int) ListOption { return func(q url.Values) { q.Set("limit", strconv.Itoa(n)) } }

// Missing is a partition that is missing from a list or a count, because it cannot be asked now.
type Missing struct {
	Partition int32  `json:"partition"`
	Reason    string `json:"reason"`
	Detail    string `json:"detail"`
	Owner     string `json:"owner,omitempty"`
}

// MissingError ends a list that lacks partitions. All timers of the others came before it.
type MissingError struct{ Partitions []Missing }

// Error has a line for each detail, which names all partitions that have the same.
func (m *MissingError) Error() string {
	var details []string
	by := make(map[string][]string) // partitions by detail
	for i := range m.Partitions {
		one := &m.Partitions[i]
		if by[one.Detail] == nil {
			details = append(details, one.Detail)
		}
		by[one.Detail] = append(by[one.Detail], strconv.Itoa(int(one.Partition)))
	}
	var lines []string
	for _, detail := range details {
		which, are := "partition", "is"
		if len(by[detail]) > 1 {
			which, are = "partitions", "are"
		}
		lines = append(lines, fmt.Sprintf("%s %s %s missing: %s", which, strings.Join(by[detail], ", "), are,
			Printable(detail)))
	}
	return strings.Join(lines, "\n")
}

// add adds the partitions that one more page lacks.
func (m *MissingError) add(more []Missing) {
	for _, one := range more {
		if !slices.ContainsFunc(m.Partitions, func(known Missing) bool { return known.Partition == one.Partition }) {
			m.Partitions = append(m.Partitions, one)
		}
	}
	slices.SortFunc(m.Partitions, func(x, y Missing) int { return cmp.Compare(x.Partition, y.Partition) })
}

// err returns m if partitions are missing.
func (m *MissingError) err() error {
	if len(m.Partitions) == 0 {
		return nil
	}
	return m
}

// List lists pending timers, without payloads. If partitions cannot be asked, a [*MissingError] follows the timers of
// the others. A timer that changes while the list goes on may be in it once, twice or not at all.
func (c *Client) List(ctx context.Context, topic string, f Filter, opts ...ListOption) iter.Seq2[*Timer, error] {
	q := f.query()
	q.Set("limit", strconv.Itoa(listPage))
	for _, o := range opts {
		o(q)
	}
	return func(yield func(*Timer, error) bool) {
		var missing MissingError
		for t, err := range pages(q, func(q url.Values) ([]*Timer, string, error) {
			var page struct {
				Timers  []*Timer
				Cursor  string
				Missing []Missing
			}
			err := c.get(ctx, Path(topic, "timers"), q, &page)
			missing.add(page.Missing)
			return page.Timers, page.Cursor, err
		}) {
			if !yield(t, err) || err != nil {
				return
			}
		}
		if err := missing.err(); err != nil {
			yield(nil, err)
		}
	}
}

// pages yields the items of one page after the other. The first error is the last item.
func pages[T any](q url.Values, page func(url.Values) (items []T, cursor string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for q := maps.Clone(q); ; {
			items, cursor, err := page(q)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if cursor == "" {
				return
			}
			q.Set("cursor", cursor)
		}
	}
}

// Count is a number of timers.
type Count struct {
	N     int64 `json:"count"`
	Exact bool  `json:"exact"` // false: there are at least N
	// Until answers Until's instants, in order.
	Until   []CountUntil `json:"until,omitempty"`
	Missing []Missing    `json:"missing,omitempty"` // partitions that are not counted
}

// CountUntil is the number of timers that fire before an instant.
type CountUntil struct {
	At    time.Time `json:"at"`
	N     int64     `json:"count"`
	Exact bool      `json:"exact"`
}

// Count counts the pending timers that a filter selects. With instants, up to 100 that ascend, it also counts those
// that fire before each of them; N is then the count of the last.
func (c *Client) Count(ctx context.Context, topic string, f Filter, until ...time.Time) (n Count, err error) {
	q := f.query()
	instants := make([]string, len(until))
	for i, at := range until {
		instants[i] = millis(at)
	}
	if len(until) > 0 {
		q.Set("until", strings.Join(instants, ","))
	}
	err = c.get(ctx, Path(topic, "timers", "count"), q, &n)
	return n, err
}
