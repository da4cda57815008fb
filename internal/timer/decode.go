package timer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unsafe"
)

// Decode reads one timer, which must take up all of b. The timer aliases b, including its strings. So b must never
// change again, and it lives as long as any part of the timer. A caller that does not own b (a Pebble row) copies it
// first.
//
// Errors wrap ErrNewerFormat or ErrCorrupt. No input makes Decode panic, or allocate more than some 20 times its
// length.
func Decode(b []byte) (*Timer, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("decode timer: no bytes: %w", ErrCorrupt)
	}
	if b[0] > format {
		return nil, fmt.Errorf("decode timer: format %d: %w", b[0], ErrNewerFormat)
	}
	if b[0] < format || len(b) < 2 {
		return nil, fmt.Errorf("decode timer: format %d, %d bytes: %w", b[0], len(b), ErrCorrupt)
	}
	if unknown := b[1] &^ flagsKnown; unknown != 0 {
		return nil, fmt.Errorf("decode timer: flags %#x: %w", unknown, ErrNewerFormat)
	}
	t := new(Timer)
	r := reader{rest: b[2:]}
	r.timer(t, b[1])
	if r.err != nil {
		return nil, fmt.Errorf("decode timer of %d bytes: %s: %w", len(b), r.what, r.err)
	}
	return t, nil
}

// DecodePlace reads only the ID, which aliases b, and the Ref, which is right only for a timer that is not steered. It
// returns the same errors as Decode but finds fewer faults.
func DecodePlace(b []byte) (id []byte, at Ref, err error) {
	if len(b) < 2 || b[0] != format {
		_, err := Decode(b)
		return nil, Absent, err
	}
	r := reader{rest: b[2:]}
	at.Offset = r.varint()
	at.Due = r.varint()
	if b[1]&flagOccurrence != 0 {
		r.varint()
	}
	id = r.bytes()
	if r.err != nil {
		return nil, Absent, fmt.Errorf("decode timer of %d bytes: %s: %w", len(b), r.what, r.err)
	}
	return id, at, nil
}

// reader takes values off the front of rest. After the first fault it returns zero values, and err and what describe
// the fault.
type reader struct {
	rest []byte
	err  error
	what string
}

// timer reads everything after the flags, in the order of the format.
func (r *reader) timer(t *Timer, flags byte) {
	t.Offset = r.varint()
	t.Due = r.varint()
	t.Occurrence = 1
	if flags&flagOccurrence != 0 {
		if t.Occurrence = r.varint(); t.Occurrence == 1 {
			r.corrupt("occurrence 1 written out")
		}
	}
	t.ID = r.bytes()
	t.Target.Topic = r.text()
	r.key(t, flags)
	t.Target.Partition = AnyPartition
	if flags&flagPartition != 0 {
		t.Target.Partition = r.partition()
	}
	t.Headers = r.headers(t.Headers)
	if flags&flagExtensions != 0 {
		r.extensions(t)
	}
	if flags&flagValue != 0 {
		t.Value = r.bytes()
	}
	if len(r.rest) != 0 {
		r.corrupt("bytes behind the timer")
	}
}

func (r *reader) key(t *Timer, flags byte) {
	switch flags & (flagKeyIsID | flagKeyNull) {
	case flagKeyIsID:
		t.Target.Key = t.ID
	case flagKeyNull:
		t.Target.Key = nil
	case 0:
		if t.Target.Key = r.bytes(); bytes.Equal(t.Target.Key, t.ID) {
			r.corrupt("a key written out that equals the ID")
		}
	default:
		r.corrupt("a key both null and equal to the ID")
	}
}

func (r *reader) partition() int32 {
	p := r.varint()
	if p != int64(int32(p)) || p == int64(AnyPartition) {
		r.corrupt("target partition out of range")
	}
	return int32(p)
}

// headers reads a list of headers. It uses room if that is large enough.
func (r *reader) headers(room []Header) []Header {
	n := r.uvarint()
	if n > uint64(len(r.rest)/minHeaderBytes) {
		r.corrupt("more headers than bytes for them")
		return nil
	}
	if n == 0 {
		return nil
	}
	hs := room[:0]
	if uint64(cap(hs)) < n {
		hs = make([]Header, 0, n)
	}
	hs = hs[:n]
	for i := range hs {
		hs[i] = Header{Key: r.text()}
		if size := r.uvarint(); size > 0 {
			hs[i].Value = r.take(size - 1)
		}
	}
	return hs
}

// extensions reads the known fields and skips those that may be skipped; see the format.
func (r *reader) extensions(t *Timer) {
	list := reader{rest: r.bytes()}
	if r.err == nil && len(list.rest) == 0 {
		r.corrupt("an empty list of extensions")
	}
	for last, first := uint64(0), true; len(list.rest) > 0 && r.err == nil; first = false {
		tag := list.uvarint()
		content := reader{rest: list.bytes()}
		switch {
		case list.err != nil:
		case !first && tag <= last:
			list.corrupt("extensions out of order")
		case tag == tagSchedule && t.Recurrence != nil:
			list.corrupt("a recurrence beside a schedule")
		case tag == tagRecurrence, tag == tagSchedule:
			t.Recurrence = content.recurrence(tag)
		case tag == tagTooLate:
			if t.TooLate = content.positive(); len(content.rest) != 0 {
				content.corrupt("bytes behind a lateness")
			}
		case tag == tagSteering:
			t.Steering = content.steering()
		case tag == tagRemember:
			t.Remember = content.remember()
		case tag == tagLabels:
			t.Labels = content.labels()
		case tag&mustUnderstand != 0:
			list.newer(fmt.Sprintf("extension %d", tag))
		}
		r.fail(list.err, list.what)
		r.fail(content.err, content.what)
		last = tag
	}
}

// labels reads the content of extension tagLabels, which is all of rest.
func (r *reader) labels() Labels {
	l := Labels(unsafe.String(unsafe.SliceData(r.rest), len(r.rest)))
	if !l.canonical() {
		r.corrupt("labels that are not in their canonical form")
	}
	return l
}

// steering reads the content of extension tagSteering, which is all of rest.
func (r *reader) steering() *Steering {
	if len(r.rest) == 0 || r.rest[0] == 0 {
		r.corrupt("a steering that says nothing")
		return nil
	}
	f := r.rest[0]
	if r.rest = r.rest[1:]; f > steeredPaused|steeredTriggered {
		r.newer("a steering")
	}
	s := &Steering{Paused: f&steeredPaused != 0, Triggered: f&steeredTriggered != 0, By: r.varint()}
	if s.Triggered {
		s.At = r.varint()
	}
	if len(r.rest) != 0 {
		r.corrupt("bytes behind the steering")
	}
	return s
}

// fail records a fault, unless err is nil or there was one before.
func (r *reader) fail(err error, what string) {
	if r.err == nil && err != nil {
		r.err, r.what, r.rest = err, what, nil
	}
}

// newer records that the timer is not corrupt: a later version of waterclock can read it.
func (r *reader) newer(what string) { r.fail(ErrNewerFormat, what) }

func (r *reader) corrupt(what string) { r.fail(ErrCorrupt, what) }

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1) // zigzag, as encoding/binary has it
}

func (r *reader) uvarint() uint64 {
	if len(r.rest) > 0 && r.rest[0] < 0x80 {
		v := r.rest[0]
		r.rest = r.rest[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || r.rest[n-1] == 0 {
		r.corrupt("a number cut short, over-long or out of range")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// bytes reads a length and that many bytes. It returns nil only after a fault.
func (r *reader) bytes() []byte { return r.take(r.uvarint()) }

// text is bytes as a string that shares their memory.
func (r *reader) text() string {
	b := r.bytes()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.corrupt("a length beyond the end")
		return nil
	}
	if r.err != nil {
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}
