package timer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"unsafe"
)

// The bytes of one timer, format 1. Changelog values and store rows are these.
//
//	byte     1, the format
//	byte     flags, below
//	varint   offset                    all varints are minimal: one timer has
//	varint   due, Unix milliseconds    one encoding
//	varint   occurrence                if flagOccurrence, else 1
//	bytes    ID                        bytes = uvarint length, then that many
//	bytes    target topic
//	bytes    target key                unless flagKeyIsID or flagKeyNull
//	varint   target partition          if flagPartition, else AnyPartition
//	uvarint  number of headers, then for each
//	  bytes    name
//	  uvarint  0 for a null value, else its length + 1, then the value
//	bytes    extensions                if flagExtensions, see below
//	bytes    value                     if flagValue, else null
//
// varint is zigzag (encoding/binary's Varint), uvarint is not. The value is
// last, so that whoever wants the rest reads a prefix.
//
// Extensions are what few timers carry, and room for what comes later: a list of
// fields in strictly ascending order of their tags,
//
//	uvarint  tag
//	bytes    content
//
// and a reader that does not know a tag refuses the timer with ErrNewerFormat
// if the tag is odd ("must understand") and passes over the field if it is even
// ("may skip": to forget it must be harmless, since a re-encoding drops it).
// The fields are tagRecurrence, in recurrence.go, tagTooLate, a uvarint, and
// tagSteering:
//
//	byte     flags, below; one at least
//	varint   offset of the request that steered last
//	varint   when the trigger asked, Unix milliseconds   if steeredTriggered
//
// A list that is not empty has flagExtensions set.
const (
	format = 1

	flagKeyIsID    = 1 << 0 // the key of the emission is the timer's ID
	flagKeyNull    = 1 << 1 // the key of the emission is null
	flagPartition  = 1 << 2 // an explicit target partition follows
	flagValue      = 1 << 3 // the value is not null
	flagOccurrence = 1 << 4 // an occurrence other than 1 follows
	flagExtensions = 1 << 5 // a field list follows
	flagsKnown     = 1<<6 - 1

	mustUnderstand = 1 // the bit of an extension's tag
	tagRecurrence  = 1
	tagTooLate     = 3
	tagSteering    = 5

	steeredPaused    = 1 << 0
	steeredTriggered = 1 << 1

	// minHeaderBytes is what the smallest header takes: it bounds what a
	// forged number of headers can make Decode allocate.
	minHeaderBytes = 2
)

var (
	// ErrNewerFormat says that a later version of waterclock wrote the bytes.
	ErrNewerFormat = errors.New("timer is in a newer format than this version reads")

	// ErrCorrupt says that the bytes are no timer.
	ErrCorrupt = errors.New("timer is corrupt")
)

// AppendTo appends the bytes of t to dst and returns the longer slice. Equal
// timers have equal bytes, and Decode returns a timer equal to t, whatever it
// holds (an empty list of headers comes back as nil).
func (t *Timer) AppendTo(dst []byte) []byte {
	dst = append(dst, format, t.flags())
	dst = binary.AppendVarint(dst, t.Offset)
	dst = binary.AppendVarint(dst, t.Due)
	if t.Occurrence != 1 {
		dst = binary.AppendVarint(dst, t.Occurrence)
	}
	dst = appendBytes(dst, t.ID)
	dst = appendBytes(dst, t.Target.Topic)
	if t.Target.Key != nil && !bytes.Equal(t.Target.Key, t.ID) {
		dst = appendBytes(dst, t.Target.Key)
	}
	if t.Target.Partition != AnyPartition {
		dst = binary.AppendVarint(dst, int64(t.Target.Partition))
	}
	dst = binary.AppendUvarint(dst, uint64(len(t.Headers)))
	for i := range t.Headers {
		dst = t.Headers[i].appendTo(dst)
	}
	if t.hasExtensions() {
		dst = t.appendExtensions(dst)
	}
	if t.Value != nil {
		dst = appendBytes(dst, t.Value)
	}
	return dst
}

// appendExtensions appends the list of fields. Lengths stand before what they
// count, so contents are made in a place of their own: on the stack, but for long
// expressions.
func (t *Timer) appendExtensions(dst []byte) []byte {
	var room, content [256]byte
	list := room[:0]
	if t.Recurrence != nil {
		list = append(list, tagRecurrence)
		list = appendBytes(list, t.Recurrence.appendTo(content[:0]))
	}
	if t.TooLate != 0 {
		list = append(list, tagTooLate)
		list = appendBytes(list, binary.AppendUvarint(content[:0], uint64(t.TooLate)))
	}
	if t.Steering != nil {
		list = append(list, tagSteering)
		list = appendBytes(list, t.Steering.appendTo(content[:0]))
	}
	return appendBytes(dst, list)
}

func (t *Timer) hasExtensions() bool {
	return t.Recurrence != nil || t.TooLate != 0 || t.Steering != nil
}

func (s *Steering) appendTo(dst []byte) []byte {
	var f byte
	if s.Paused {
		f |= steeredPaused
	}
	if s.Triggered {
		f |= steeredTriggered
	}
	dst = binary.AppendVarint(append(dst, f), s.By)
	if s.Triggered {
		dst = binary.AppendVarint(dst, s.At)
	}
	return dst
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

func (t *Timer) flags() (f byte) {
	switch {
	case t.Target.Key == nil:
		f |= flagKeyNull
	case bytes.Equal(t.Target.Key, t.ID):
		f |= flagKeyIsID
	}
	if t.Target.Partition != AnyPartition {
		f |= flagPartition
	}
	if t.Value != nil {
		f |= flagValue
	}
	if t.Occurrence != 1 {
		f |= flagOccurrence
	}
	if t.hasExtensions() {
		f |= flagExtensions
	}
	return f
}

func (h *Header) appendTo(dst []byte) []byte {
	dst = appendBytes(dst, h.Key)
	if h.Value == nil {
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(len(h.Value))+1)
	return append(dst, h.Value...)
}

func appendBytes[B []byte | string](dst []byte, b B) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// Own makes t independent of the memory that it was made from: all that it holds is
// part of its bytes from then on, which Own returns. Nobody else may hold t's list of
// headers. It is AppendTo and Decode, in place.
func (t *Timer) Own() ([]byte, error) {
	b := t.AppendTo(make([]byte, 0, t.encodedBytes()))
	own := Timer{Headers: t.Headers[:0]}
	r := reader{rest: b[2:]}
	if r.timer(&own, b[1]); r.err != nil {
		return nil, fmt.Errorf("encode timer %q: %s: %w", t.ID, r.what, r.err)
	}
	*t = own
	return b, nil
}

// encodedBytes is how many bytes AppendTo appends, or some more where there are
// extensions: what is left over is memory that each pending timer takes.
func (t *Timer) encodedBytes() int {
	n := 2 + varintBytes(t.Offset) + varintBytes(t.Due) + sizedBytes(len(t.ID)) + sizedBytes(len(t.Target.Topic)) + uvarintBytes(uint64(len(t.Headers)))
	f := t.flags()
	if f&flagOccurrence != 0 {
		n += varintBytes(t.Occurrence)
	}
	if f&(flagKeyIsID|flagKeyNull) == 0 {
		n += sizedBytes(len(t.Target.Key))
	}
	if f&flagPartition != 0 {
		n += varintBytes(int64(t.Target.Partition))
	}
	for i := range t.Headers {
		value := len(t.Headers[i].Value)
		n += sizedBytes(len(t.Headers[i].Key)) + uvarintBytes(uint64(value)+1) + value
	}
	if f&flagExtensions != 0 {
		const numbers = 64
		n += numbers
		if r := t.Recurrence; r != nil {
			n += len(r.Cron) + len(r.Zone)
		}
	}
	if f&flagValue != 0 {
		n += sizedBytes(len(t.Value))
	}
	return n
}

// sizedBytes is how many bytes so many take with their length.
func sizedBytes(n int) int { return uvarintBytes(uint64(n)) + n }

func uvarintBytes(n uint64) int { return (bits.Len64(n|1) + 6) / 7 }

func varintBytes(n int64) int { return uvarintBytes(uint64(n<<1) ^ uint64(n>>63)) }

// Decode reads one timer, which must take all of b. The timer aliases b, its
// strings too: b must never change again, and lives as long as any part of the
// timer does. Whoever does not own b (a Pebble row) copies it first.
//
// Errors wrap ErrNewerFormat or ErrCorrupt. No input makes Decode panic, or
// allocate more than some 20 times its length.
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

// DecodeID reads the ID alone, which aliases b. It tells less of what is wrong with b
// than Decode, whose errors it has.
func DecodeID(b []byte) ([]byte, error) {
	if len(b) < 2 || b[0] != format {
		_, err := Decode(b)
		return nil, err
	}
	r := reader{rest: b[2:]}
	r.varint()
	r.varint()
	if b[1]&flagOccurrence != 0 {
		r.varint()
	}
	id := r.bytes()
	if r.err != nil {
		return nil, fmt.Errorf("decode timer of %d bytes: %s: %w", len(b), r.what, r.err)
	}
	return id, nil
}

// reader takes values off the front of rest. After the first fault it returns
// zero values, and err and what tell the fault.
type reader struct {
	rest []byte
	err  error
	what string
}

// timer reads everything behind the flags, in the order of the format.
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

// headers reads a list into room, if that is large enough.
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

// extensions reads the fields that are known and passes over those that may be
// skipped; see the format.
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
		case tag == tagRecurrence:
			t.Recurrence = content.recurrence()
		case tag == tagTooLate:
			if t.TooLate = content.positive(); len(content.rest) != 0 {
				content.corrupt("bytes behind a lateness")
			}
		case tag == tagSteering:
			t.Steering = content.steering()
		case tag&mustUnderstand != 0:
			list.newer(fmt.Sprintf("extension %d", tag))
		}
		r.fails(&list)
		r.fails(&content)
		last = tag
	}
}

// fails takes over the fault of a reader of a part.
func (r *reader) fails(part *reader) {
	if r.err == nil && part.err != nil {
		r.err, r.what, r.rest = part.err, part.what, nil
	}
}

// newer notes a fault that is none: a later version of waterclock reads it.
func (r *reader) newer(what string) {
	if r.err == nil {
		r.err, r.what, r.rest = ErrNewerFormat, what, nil
	}
}

func (r *reader) corrupt(what string) {
	if r.err == nil {
		r.err, r.what, r.rest = ErrCorrupt, what, nil
	}
}

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

// bytes reads a length and that many bytes; never nil, but after a fault.
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
