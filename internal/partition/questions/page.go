package questions

import (
	"bytes"
	"context"
	"fmt"

	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// maxPage is how many timers one page may have, and maxPageBytes how many bytes they may hold. A single timer may
	// be larger.
	maxPage      = 10_000
	maxPageBytes = 8 << 20
	// maxPageRows is how many rows of the store are looked at for one page.
	maxPageRows = 20_000
)

// List returns pending timers as of one committed state, in order. If that would be too much for one answer, it returns
// fewer than the caller asked for, maybe none, and Next says where to continue. Errors are those of Get, and one for a
// cursor of another order.
func (q *Questions) List(ctx context.Context, page query.Page) (query.List, error) {
	a, err := q.begin(ctx)
	if err != nil {
		return query.List{}, err
	}
	if page.Order == "" {
		page.Order = query.ByDue
	}
	if at := page.After.Order; page.Order != query.ByDue && page.Order != query.ByID || at != "" && at != page.Order {
		return query.List{}, fmt.Errorf(
			"list in the order %q, after a place in the order %q: they must be the same, %s or %s", page.Order, at,
			query.ByDue, query.ByID)
	}
	if page.Limit < 1 || page.Limit > maxPage {
		page.Limit = maxPage
	}
	b := &builder{a: a, page: &page, slot: NewSlot(q.o.Scans)}
	if err := a.read(ctx, a.pages, b.slot, func(r *reading) error { return b.build(ctx, r) }); err != nil {
		return query.List{}, err
	}
	if list, found, err := a.rare(ctx, b); found || err != nil {
		return list, err
	}
	return b.list, nil
}

// builder makes a page of the store's rows and of the timers that the store may lack.
type builder struct {
	a       *answers
	page    *query.Page
	slot    *Slot
	scans   bool           // in the order of IDs, by a scan: see answers.rare
	overlay []timer.Change // timers that the store may lack, not in the page yet
	cut     bool           // there are more of them than overlay has
	list    query.List
	bytes   int // size of the page's timers
	shown   int // the same without payloads

	cutShort bool // the page ends because enough rows were looked at
}

// build makes list, and sets cutShort.
func (b *builder) build(ctx context.Context, r *reading) error {
	if err := b.findOverlay(ctx, r); err != nil {
		return err
	}
	s := &scan{reading: r, partition: b.a.q.partition(), slot: b.slot, f: &b.page.Filter, after: b.page.After,
		rows: b.a.pageRows, reached: b.page.After}
	take := func(row *statestore.Row, before func(*timer.Change) bool) (more bool, err error) {
		if !b.addOverlay(before) {
			return false, nil
		}
		t, err := row.Timer()
		if err != nil {
			return false, err
		}
		return b.add(t, row.ParkedFor), nil
	}
	var done bool
	var err error
	takeByID := func(id []byte, row *statestore.Row) (bool, error) {
		return take(row, func(x *timer.Change) bool { return bytes.Compare(x.ID, id) < 0 })
	}
	switch {
	case b.scans:
		done, err = s.firstByID(ctx, b.page.Limit, takeByID)
	case b.page.Order == query.ByID:
		done, err = s.byID(ctx, true, takeByID)
	default:
		done, err = s.byDue(ctx, func(ref timer.Ref, row *statestore.Row) (bool, error) {
			return take(row, func(x *timer.Change) bool { return x.After.Compare(ref) < 0 })
		})
	}
	if err != nil {
		return err
	}
	rest := func(x *timer.Change) bool {
		return done || b.place(x.Timer).Compare(s.reached) <= 0
	}
	switch {
	case b.full(), !b.addOverlay(rest):
		if n := len(b.list.Timers); !done || len(b.overlay) > 0 || b.cut {
			b.list.Next = query.CursorOf(b.page.Order, b.list.Timers[n-1])
		}
	case !done:
		b.list.Next, b.cutShort = s.reached, true
	}
	return nil
}

// findOverlay finds the first timers, in order, that belong in the page and that the store may lack.
func (b *builder) findOverlay(ctx context.Context, r *reading) error {
	page, by := b.page, inOrderOfDue
	if page.Order == query.ByID {
		by = inOrderOfID
	}
	start := timer.Change{ID: []byte(page.After.ID), After: page.After.Ref}
	ties := b.a.q.partition() > page.After.Partition
	first := firsts[timer.Change]{most: page.Limit, by: by}
	err := r.each(ctx, b.slot, func(x timer.Change) {
		if x.After.IsAbsent() || first.beyond(x) {
			return
		}
		if c := by(x, start); !page.After.IsZero() && (c < 0 || c == 0 && !ties) {
			return
		}
		x.Timer = planner.TimerOf(&x)
		if page.Filter.Match(&query.Timer{Timer: x.Timer, State: query.StateOf(x.Timer, "")}) {
			first.add(x)
		}
	})
	first.trim()
	b.overlay, b.cut = first.list, first.cut
	return err
}

func inOrderOfDue(a, b timer.Change) int { return a.After.Compare(b.After) }

func inOrderOfID(a, b timer.Change) int { return bytes.Compare(a.ID, b.ID) }

func (b *builder) place(t *timer.Timer) query.Cursor {
	return query.CursorOf(b.page.Order, &query.Timer{Timer: t, Partition: b.a.q.partition()})
}

// addOverlay adds timers of overlay, as long as before holds for them. It reports whether there is room for more.
func (b *builder) addOverlay(before func(*timer.Change) bool) bool {
	for len(b.overlay) > 0 && before(&b.overlay[0]) {
		if b.full() {
			return false
		}
		b.add(owned(&b.overlay[0]), "")
		b.overlay = b.overlay[1:]
	}
	return !b.full()
}

// owned returns the timer of a change. The timer is no part of a chunk of records: the page outlives the reading, which
// gives back the memory of its chunks.
func owned(x *timer.Change) *timer.Timer {
	if x.Bytes == nil {
		return x.Timer
	}
	return planner.TimerOf(&timer.Change{Bytes: bytes.Clone(x.Bytes)})
}

// add adds a timer to the page, and reports whether there is room for more.
func (b *builder) add(t *timer.Timer, parkedFor string) bool {
	b.list.Timers = append(b.list.Timers, b.a.q.show(t, parkedFor))
	b.bytes += t.Size()
	b.shown += t.Size() - len(t.Value)
	return !b.full()
}

func (b *builder) full() bool {
	return len(b.list.Timers) >= b.page.Limit || b.bytes >= maxPageBytes || b.page.Bytes > 0 && b.shown >= b.page.Bytes
}
