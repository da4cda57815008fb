package statestore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// mostAhead is how many rows of a target are read ahead at most.
const mostAhead = 64

// View is a partition as it is at one moment, for questions about pending timers. Unlike a Scan it also has
// parked timers. It must be closed soon: it delays Store.Close and keeps old tables on disk. Only one
// goroutine may use it at a time.
type View struct {
	k    *Handle
	rows frozen           // all rows of the partition
	one  *pebble.Iterator // for single rows; nil until it is needed
	low  timer.Ref

	targets map[uint32]target // with parked timers, by number; nil until they are needed
}

// frozen is an iterator whose NewIter makes iterators that see the store at the same moment.
type frozen struct{ *pebble.Iterator }

var _ reader = frozen{}

func (f frozen) NewIter(o *pebble.IterOptions) (*pebble.Iterator, error) {
	return f.Clone(pebble.CloneOptions{IterOptions: o})
}

// Row is a row of a View. It is valid until the next one is read.
type Row struct {
	Ref       timer.Ref
	ParkedFor string // name of the target; empty: the row is not parked
	value     []byte
}

// ID returns the ID of the row's timer, which the caller must not keep.
func (r *Row) ID() ([]byte, error) {
	id, _, err := timer.DecodePlace(r.value)
	if err != nil {
		_, err = decodeTimer(r.value)
	}
	return id, err
}

// Peek returns the row's timer, which is valid as long as the row. Use Timer for one to keep.
func (r *Row) Peek() (*timer.Timer, error) { return decodeTimer(r.value) }

// Timer returns the row's timer.
func (r *Row) Timer() (*timer.Timer, error) { return decodeTimer(bytes.Clone(r.value)) }

// View returns a view of the partition as it is now.
func (h *Handle) View() (*View, error) {
	if err := h.enterRead(); err != nil {
		return nil, err
	}
	defer h.p.s.leave()
	next := h.p.prefix.next()
	v := &View{k: h}
	var err error
	v.low = h.p.low.with(func(timer.Ref) {
		v.rows.Iterator, err = h.p.s.db.NewIter(&pebble.IterOptions{LowerBound: h.p.prefix[:], UpperBound: next[:]})
	})
	if err != nil {
		return nil, h.p.during("view", err)
	}
	h.p.s.views.Add(1)
	return v, nil
}

// Close ends the view. If it returns an error, the view's results may be wrong.
func (v *View) Close() error {
	err := v.rows.Close()
	if v.one != nil {
		err = errors.Join(err, v.one.Close())
	}
	err = errors.Join(err, v.k.p.intact(), v.k.check())
	v.k.p.s.views.Done()
	return v.k.p.during("view", err)
}

// Due calls fn with the rows with from <= Ref < to, parked or not, in order, until fn returns false. With
// parkedOnly it skips the others. Each target with parked timers costs a seek.
func (v *View) Due(from, to timer.Ref, parkedOnly bool, fn func(*Row) (more bool, err error)) error {
	p := v.k.p
	parked, err := v.parked(from, to)
	if err != nil {
		return err
	}
	defer parked.close()
	due, err := dueIter(v.rows, p.prefix, later(from, v.low), to)
	if err != nil {
		return p.during("view", err)
	}
	// Two sequences are merged by Ref. ok says that due stands on a row. An error of due ends the loop; Close returns
	// it.
	var row Row // of due
	ok := !parkedOnly && due.First()
	for more := true; more && err == nil; {
		if ok {
			row.Ref, err = decodeRef(due.Key()[idAt:])
		}
		switch first := parked.first(); {
		case err != nil:
		case ok && (first == nil || row.Ref.Compare(first.Ref) < 0):
			if row.value, err = due.ValueAndErr(); err == nil {
				more, err = fn(&row)
			}
			ok = err == nil && more && due.Next()
		case first != nil && due.Error() == nil:
			if more, err = fn(first); err == nil && more {
				err = parked.next()
			}
		default:
			more = false
		}
	}
	return p.during("view", errors.Join(err, due.Close()))
}

// rowsByTarget merges the parked rows of all targets. One iterator serves them all. It reads a few rows ahead
// for each target, more each time.
type rowsByTarget struct {
	it      *pebble.Iterator
	prefix  prefix
	to      timer.Ref
	targets []*ahead // in the order of their first rows
}

// ahead are rows of one target that were read. It has at least one while it is in targets.
type ahead struct {
	number uint32
	name   string
	rows   []Row
	from   timer.Ref // where to read next
	n      int       // how many rows to read then
}

// readTargets reads the targets of the view's moment.
func (v *View) readTargets() error {
	if v.targets != nil {
		return nil
	}
	all := make(map[uint32]target)
	err := eachTarget(v.rows, v.k.p.prefix, func(t target) { all[t.number] = t })
	if err == nil {
		v.targets = all
	}
	return err
}

func (v *View) parked(from, to timer.Ref) (*rowsByTarget, error) {
	prefix := v.k.p.prefix
	l := &rowsByTarget{prefix: prefix, to: to}
	err := v.readTargets()
	if err != nil || len(v.targets) == 0 {
		return l, err
	}
	if l.it, err = v.rows.NewIter(
		&pebble.IterOptions{LowerBound: prefix.key(kindParked), UpperBound: prefix.key(kindParked + 1)}); err != nil {
		return l, err
	}
	for _, t := range v.targets {
		a := &ahead{number: t.number, name: t.name, from: later(from, t.low), n: 1}
		if err = l.read(a); err != nil {
			l.close()
			return nil, err
		}
		l.add(a)
	}
	return l, nil
}

// read reads rows of a target ahead.
func (r *rowsByTarget) read(a *ahead) error {
	if a.from.Compare(r.to) >= 0 {
		return nil
	}
	r.it.SetBounds(appendParkedKey(nil, r.prefix, a.number, a.from), appendParkedKey(nil, r.prefix, a.number, r.to))
	ok := r.it.First()
	for ; ok && len(a.rows) < a.n; ok = r.it.Next() {
		value, err := r.it.ValueAndErr()
		if err != nil {
			return err
		}
		ref, err := decodeRef(r.it.Key()[parkedAt:])
		if err != nil {
			return err
		}
		a.rows = append(a.rows, Row{Ref: ref, ParkedFor: a.name, value: bytes.Clone(value)})
	}
	if a.from = r.to; ok {
		a.from = behind(a.rows[len(a.rows)-1].Ref)
	}
	a.n = min(2*a.n, mostAhead)
	return r.it.Error()
}

func (r *rowsByTarget) first() *Row {
	if len(r.targets) == 0 {
		return nil
	}
	return &r.targets[0].rows[0]
}

func (r *rowsByTarget) next() error {
	a := r.targets[0]
	r.targets = r.targets[1:]
	if a.rows = a.rows[1:]; len(a.rows) == 0 {
		a.rows = nil
		if err := r.read(a); err != nil {
			return err
		}
	}
	r.add(a)
	return nil
}

// add puts a target in order, unless all its rows are read.
func (r *rowsByTarget) add(a *ahead) {
	if len(a.rows) == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(
		r.targets, a.rows[0].Ref, func(b *ahead, ref timer.Ref) int { return b.rows[0].Ref.Compare(ref) })
	r.targets = slices.Insert(r.targets, i, a)
}

func (r *rowsByTarget) close() {
	if r.it != nil {
		r.it.Close() // rowsByTarget.read has returned every error
	}
}

// IDs calls fn with the IDs that begin with prefix and are not below from, ordered by their bytes, until fn
// returns false. fn must not keep id.
func (v *View) IDs(from, prefix []byte, fn func(id []byte, at Location) (more bool, err error)) error {
	p := v.k.p
	if bytes.Compare(from, prefix) < 0 {
		from = prefix
	}
	err := eachRow(v.rows, appendIDKey(nil, p.prefix, from), behindAll(appendIDKey(nil, p.prefix, prefix)),
		func(key, row []byte) (bool, error) {
			at, err := decodeLocation(row)
			if err != nil {
				return false, fmt.Errorf("ID row %x: %w: %w", key[idAt:], err, ErrCorrupt)
			}
			return fn(key[idAt:], at)
		})
	return p.during("view", err)
}

// behindAll returns the first key behind all keys that begin with key. It relies on a kind that is not 0xff.
func behindAll(key []byte) []byte {
	for key[len(key)-1] == 0xff {
		key = key[:len(key)-1]
	}
	key[len(key)-1]++
	return key
}

// Row reads the row at a location that IDs has returned.
func (v *View) Row(at Location) (*Row, error) {
	p := v.k.p
	if at.Parked() {
		if err := v.readTargets(); err != nil {
			return nil, p.during("view", err)
		}
	}
	if v.one == nil {
		var err error
		if v.one, err = v.rows.NewIter(
			&pebble.IterOptions{LowerBound: p.prefix.key(kindDue),
				UpperBound: p.prefix.key(kindParked + 1)}); err != nil {
			return nil, err
		}
	}
	key := appendRowKey(nil, p.prefix, at)
	if !v.one.SeekGE(key) || !bytes.Equal(v.one.Key(), key) {
		return nil, errors.Join(v.one.Error(), fmt.Errorf("no row at %v: %w", at.ref, ErrCorrupt))
	}
	value, err := v.one.ValueAndErr()
	return &Row{Ref: at.Ref(), ParkedFor: v.targets[at.target].name, value: value}, err
}

// Refs calls fn with the places from <= Ref < to of the timers that are not parked, in order, until fn returns false.
func (v *View) Refs(from, to timer.Ref, fn func(timer.Ref) (more bool)) error {
	rows, err := dueIter(v.rows, v.k.p.prefix, later(from, v.low), to)
	if err == nil {
		err = walk(rows, func(key, _ []byte) (bool, error) {
			at, err := decodeRef(key[idAt:])
			return err == nil && fn(at), err
		})
	}
	return v.k.p.during("view", err)
}
