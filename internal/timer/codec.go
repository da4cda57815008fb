package timer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// The bytes of one timer, format 1. Changelog values and store rows have this form.
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
// varint is zigzag (encoding/binary's Varint), uvarint is not. The value is last, so a reader that does not need it can
// read a prefix.
//
// Extensions hold fields that few timers have, and leave room for later versions. They are a list of fields in strictly
// ascending order of their tags:
//
//	uvarint  tag
//	bytes    content
//
// If a reader does not know a tag and the tag is odd ("must understand"), it refuses the timer with ErrNewerFormat. If
// the tag is even ("may skip"), it skips the field. Losing such a field must be harmless, because encoding the timer
// again drops it. The fields are tagRecurrence and tagSchedule (recurrence.go), tagRemember (remember.go), tagTooLate,
// which is a uvarint, tagLabels, which is a canonical text (labels.go), and tagSteering:
//
//	byte     flags, below; one at least
//	varint   offset of the last request that steered the timer
//	varint   when the trigger was requested, Unix milliseconds   if steeredTriggered
//
// flagExtensions is set if the list is not empty.
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
	tagRemember    = 7
	tagSchedule    = 9
	tagLabels      = 11

	steeredPaused    = 1 << 0
	steeredTriggered = 1 << 1

	// minHeaderBytes is the size of the smallest header. It bounds the memory that a forged number of headers can make
	// Decode allocate.
	minHeaderBytes = 2
)

var (
	// ErrNewerFormat means that a later version of waterclock wrote the bytes.
	ErrNewerFormat = errors.New("timer is in a newer format than this version reads")

	// ErrCorrupt means that the bytes are not a timer.
	ErrCorrupt = errors.New("timer is corrupt")
)

// AppendTo appends the bytes of t to dst and returns the longer slice. Equal timers have equal bytes. Decode returns
// a timer equal to t, except that an empty list of headers comes back as nil.
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

// appendExtensions appends the list of fields. A length stands before its content, so each content is built in a
// separate buffer, which is on the stack except for long expressions.
func (t *Timer) appendExtensions(dst []byte) []byte {
	var room, content [256]byte
	list := room[:0]
	schedule := t.Recurrence != nil && t.Recurrence.tag() == tagSchedule
	if t.Recurrence != nil && !schedule {
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
	if t.Remember != nil {
		list = append(list, tagRemember)
		list = appendBytes(list, t.Remember.appendTo(content[:0]))
	}
	if schedule {
		list = append(list, tagSchedule)
		list = appendBytes(list, t.Recurrence.appendTo(content[:0]))
	}
	if t.Labels != "" {
		list = append(list, tagLabels)
		list = appendBytes(list, string(t.Labels))
	}
	return appendBytes(dst, list)
}

func (t *Timer) hasExtensions() bool {
	return t.Recurrence != nil || t.TooLate != 0 || t.Steering != nil || t.Remember != nil || t.Labels != ""
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

// Own makes t independent of the memory that it was built from: everything it holds becomes part of its encoded bytes,
// which Own returns. t's list of headers must not be shared. Own does the same as AppendTo and Decode, in place.
func (t *Timer) Own() ([]byte, error) {
	const most = 2048 // bytes on the stack, into which most timers fit
	var b []byte
	if n := t.Size(); n > most { // Size is at least as large
		b = t.AppendTo(make([]byte, 0, n))
		if cap(b)-len(b) > len(b)/8 { // a pending timer would keep the excess in memory: many short headers
			b = bytes.Clone(b)
		}
	} else {
		var room [most]byte
		b = bytes.Clone(t.AppendTo(room[:0]))
	}
	own := Timer{Headers: t.Headers[:0]}
	r := reader{rest: b[2:]}
	if r.timer(&own, b[1]); r.err != nil {
		return nil, fmt.Errorf("encode timer %q: %s: %w", t.ID, r.what, r.err)
	}
	*t = own
	return b, nil
}
