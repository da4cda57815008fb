package statestore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// mostAhead is how many rows of a target are read at a time at most.
const mostAhead = 64

// View is a partition as it is at one moment, for who asks what is pending: also what is
// parked, which a Scan passes over. Whoever has one must Close it soon: it holds up the
// end of the store, and keeps its old tables on disk. It is one goroutine's at a time.
type View struct {
	k    *Handle
	rows *pebble.Iterator // of the partition, of any kind
	one  *pebble.Iterator // for single rows; nil: there was none yet
	low  timer.Ref
}

// Row is a row of a View. It is good until the next one.
type Row struct {
	Ref    timer.Ref
	Parked bool
	value  []byte
}

// ID is the ID of the row's timer. It is not to be kept.
func (r *Row) ID() ([]byte, error) {
	id, err := timer.DecodeID(r.value)
	if err != nil {
		_, err = decodeTimer(r.value)
	}
	return id, err
}

// Size is how many bytes the row has.
func (r *Row) Size() int { return len(r.value) }

// Peek is the row's timer, which is good as long as the row. Timer is one to keep.
func (r *Row) Peek() (*timer.Timer, error) { return decodeTimer(r.value) }

// Timer is the row's timer.
func (r *Row) Timer() (*timer.Timer, error) { return decodeTimer(bytes.Clone(r.value)) }

// View makes a View of now.
func (k *Handle) View() (*View, error) {
	if err := k.enterRead(); err != nil {
		return nil, err
	}
	next := k.p.prefix.next()
	var rows *pebble.Iterator
	var err error
	low := k.p.low.with(func() {
		rows, err = k.p.s.db.NewIter(&pebble.IterOptions{LowerBound: k.p.prefix[:], UpperBound: next[:]})
	})
	if err != nil {
		k.p.s.leave()
		return nil, fmt.Errorf("view partition %s: %w", k.p.id, err)
	}
	return &View{k: k, rows: rows, low: low}, nil
}

// Close ends the view. Its error may be why what was seen is not so.
func (v *View) Close() error {
	err := v.rows.Close()
	if v.one != nil {
		err = errors.Join(err, v.one.Close())
	}
	err = errors.Join(err, v.k.p.intact(), v.k.check())
	v.k.p.s.leave()
	if err != nil {
		return fmt.Errorf("view partition %s: %w", v.k.p.id, err)
	}
	return nil
}

// clone is an iterator of the same moment.
func (v *View) clone(lower, upper []byte) (*pebble.Iterator, error) {
	return v.rows.Clone(pebble.CloneOptions{IterOptions: &pebble.IterOptions{LowerBound: lower, UpperBound: upper}})
}

// Due calls fn with the rows with from <= Ref < to, parked or not, in order, until it
// returns false. parkedOnly leaves the others out. What each target has that timers are
// parked for costs a seek.
func (v *View) Due(from, to timer.Ref, parkedOnly bool, fn func(*Row) (more bool, err error)) error {
	p := v.k.p
	parked, err := v.parked(from, to)
	if err != nil {
		return err
	}
	defer parked.close()
	due := &rowsByDue{}
	if !parkedOnly {
		if due, err = v.due(from, to); err != nil {
			return err
		}
		defer due.close()
	}
	for more := true; more && err == nil; {
		var r *Row
		switch first := parked.first(); {
		case due.ok && (first == nil || due.row.Ref.Compare(first.Ref) < 0):
			if r, err = due.get(); err != nil {
				break
			}
			if more, err = fn(r); err == nil && more {
				err = due.next()
			}
		case first != nil:
			if more, err = fn(first); err == nil && more {
				err = parked.next()
			}
		default:
			more = false
		}
	}
	if err != nil {
		return fmt.Errorf("view partition %s: %w", p.id, err)
	}
	return nil
}

// rowsByDue are the rows by due time.
type rowsByDue struct {
	it  *pebble.Iterator
	ok  bool
	row Row
}

func (v *View) due(from, to timer.Ref) (*rowsByDue, error) {
	if v.low.Compare(from) > 0 {
		from = v.low
	}
	if from.Compare(to) >= 0 {
		return &rowsByDue{}, nil
	}
	prefix := v.k.p.prefix
	it, err := v.clone(appendDueKey(nil, prefix, from), appendDueKey(nil, prefix, to))
	if err != nil {
		return nil, err
	}
	d := &rowsByDue{it: it}
	if err = d.at(it.First()); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *rowsByDue) next() error { return d.at(d.it.Next()) }

func (d *rowsByDue) at(ok bool) (err error) {
	if d.ok = ok; !ok {
		return d.it.Error()
	}
	d.row.Ref, err = decodeRef(d.it.Key()[idAt:])
	return err
}

// get reads the value, which the order needs not.
func (d *rowsByDue) get() (*Row, error) {
	var err error
	d.row.value, err = d.it.ValueAndErr()
	return &d.row, err
}

func (d *rowsByDue) close() {
	if d.it != nil {
		d.it.Close() // next took every error
	}
}

// rowsByTarget are those of all targets, merged. One iterator serves them all: it reads a
// few rows ahead for each, more each time.
type rowsByTarget struct {
	it      *pebble.Iterator
	prefix  prefix
	to      timer.Ref
	targets []*ahead // in the order of their first rows
}

// ahead are rows of one target that were read. It has at least one while it is in targets.
type ahead struct {
	number uint32
	rows   []Row
	from   timer.Ref // of what is to be read next
	n      int       // rows to be read at a time
}

func (v *View) parked(from, to timer.Ref) (*rowsByTarget, error) {
	prefix := v.k.p.prefix
	l := &rowsByTarget{prefix: prefix, to: to}
	var targets []target
	it, err := v.clone(prefix.key(kindTarget), prefix.key(kindTarget+1))
	if err != nil {
		return nil, err
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var t target
		if t, err = decodeTarget(it.Key()[numberAt:], it.Value()); err == nil {
			targets = append(targets, t)
		}
	}
	if err = errors.Join(err, it.Error(), it.Close()); err != nil || len(targets) == 0 {
		return l, err
	}
	if l.it, err = v.clone(prefix.key(kindParked), prefix.key(kindParked+1)); err != nil {
		return l, err
	}
	for _, t := range targets {
		a := &ahead{number: t.number, from: from, n: 1}
		if t.low.Compare(from) > 0 {
			a.from = t.low
		}
		if err = l.read(a); err != nil {
			l.close()
			return nil, err
		}
		l.add(a)
	}
	return l, nil
}

// read reads rows of a target ahead.
func (l *rowsByTarget) read(a *ahead) error {
	if a.from.Compare(l.to) >= 0 {
		return nil
	}
	l.it.SetBounds(appendParkedKey(nil, l.prefix, a.number, a.from), appendParkedKey(nil, l.prefix, a.number, l.to))
	ok := l.it.First()
	for ; ok && len(a.rows) < a.n; ok = l.it.Next() {
		value, err := l.it.ValueAndErr()
		if err != nil {
			return err
		}
		ref, err := decodeRef(l.it.Key()[parkedAt:])
		if err != nil {
			return err
		}
		a.rows = append(a.rows, Row{Ref: ref, Parked: true, value: bytes.Clone(value)})
	}
	if a.from = l.to; ok {
		a.from = a.rows[len(a.rows)-1].Ref
		a.from.Offset++
	}
	a.n = min(2*a.n, mostAhead)
	return l.it.Error()
}

func (l *rowsByTarget) first() *Row {
	if len(l.targets) == 0 {
		return nil
	}
	return &l.targets[0].rows[0]
}

func (l *rowsByTarget) next() error {
	a := l.targets[0]
	l.targets = l.targets[1:]
	if a.rows = a.rows[1:]; len(a.rows) == 0 {
		a.rows = nil
		if err := l.read(a); err != nil {
			return err
		}
	}
	l.add(a)
	return nil
}

// add puts a target in order, unless all its rows are read.
func (l *rowsByTarget) add(a *ahead) {
	if len(a.rows) == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(l.targets, a.rows[0].Ref, func(b *ahead, ref timer.Ref) int { return b.rows[0].Ref.Compare(ref) })
	l.targets = slices.Insert(l.targets, i, a)
}

func (l *rowsByTarget) close() {
	if l.it != nil {
		l.it.Close() // read took every error
	}
}

// IDs calls fn with the IDs with from <= ID that begin with prefix, in the order of
// their bytes, until it returns false. id is not to be kept.
func (v *View) IDs(from, prefix []byte, fn func(id []byte, at Location) (more bool, err error)) error {
	p := v.k.p
	if bytes.Compare(from, prefix) < 0 {
		from = prefix
	}
	it, err := v.clone(appendIDKey(nil, p.prefix, from), behindAll(appendIDKey(nil, p.prefix, prefix)))
	if err != nil {
		return fmt.Errorf("view partition %s: %w", p.id, err)
	}
	more := true
	for ok := it.First(); ok && more && err == nil; ok = more && it.Next() {
		var at Location
		var row []byte
		if row, err = it.ValueAndErr(); err == nil {
			at, err = decodeLocation(row)
		}
		if err != nil {
			err = fmt.Errorf("ID row %x: %w: %w", it.Key()[idAt:], err, ErrCorrupt)
			break
		}
		more, err = fn(it.Key()[idAt:], at)
	}
	if err = errors.Join(err, it.Error(), it.Close()); err != nil {
		return fmt.Errorf("view partition %s: %w", p.id, err)
	}
	return nil
}

// behindAll is the first key behind all that begin with key, whose kind is not the last
// byte that there is.
func behindAll(key []byte) []byte {
	for key[len(key)-1] == 0xff {
		key = key[:len(key)-1]
	}
	key[len(key)-1]++
	return key
}

// Row reads the row at a place that IDs has given.
func (v *View) Row(at Location) (*Row, error) {
	p := v.k.p
	if v.one == nil {
		var err error
		if v.one, err = v.clone(p.prefix.key(kindDue), p.prefix.key(kindParked+1)); err != nil {
			return nil, err
		}
	}
	key := appendRowKey(nil, p.prefix, at)
	if !v.one.SeekGE(key) || !bytes.Equal(v.one.Key(), key) {
		return nil, errors.Join(v.one.Error(), fmt.Errorf("no row at %v: %w", at.ref, ErrCorrupt))
	}
	value, err := v.one.ValueAndErr()
	return &Row{Ref: at.Ref(), Parked: at.Parked(), value: value}, err
}

// Find returns the timer that is pending under an ID, nil for none, and whether it is parked. An answer
// is the owner's: the partition was not acquired by anybody else before it was read.
func (k *Handle) Find(id []byte) (t *timer.Timer, parked bool, err error) {
	timers, parkedOf, err := k.GetAll([][]byte{id})
	if err = errors.Join(err, k.check()); err != nil {
		return nil, false, err
	}
	return timers[0], parkedOf[0], nil
}
