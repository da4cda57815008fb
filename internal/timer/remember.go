package timer

import "encoding/binary"

// Remember says for how long the ID of a timer stays taken once the timer has fired, or ended
// otherwise, for the last time. It is immutable.
//
// A timer that is remembered is pending no more: it has neither payload nor headers, and fires never.
// It lies where a timer lies that is due when its memory ends, in the changelog, the store and the
// planner, and so it is known to each owner as long as it counts, whoever has died meanwhile: what a
// condition finds is decided by the log. Its generation is that of the timer with [remembered] set,
// which is that of no other timer: so each Ref tells, and a request that names the timer's generation
// does not find it.
type Remember struct {
	// For is how long, in milliseconds from the firing; 0: not at all.
	For int64
	// Token is what the request had to be kept with the timer, up to 64 bytes; "": nothing.
	Token string
}

// remembered is what is added to a generation, away from 0: offsets are far below.
const remembered = 1 << 62

// IsRemembered reports whether r is of a timer that has fired and is remembered.
func (r Ref) IsRemembered() bool { return r.Offset >= remembered/2 || r.Offset <= -remembered/2 }

// IsPending reports whether something is pending at r.
func (r Ref) IsPending() bool { return !r.IsAbsent() && !r.IsRemembered() }

// Generation is the generation that r is of, also of one that is remembered.
func (r Ref) Generation() int64 {
	switch {
	case !r.IsRemembered():
		return r.Offset
	case r.Offset > 0:
		return r.Offset - remembered
	}
	return r.Offset + remembered
}

// IsRemembered reports whether t has fired and is remembered; false for nil.
func (t *Timer) IsRemembered() bool { return t != nil && t.Ref().IsRemembered() }

// Ended is what is left of t when it has fired, or ended, for the last time at now, Unix ms: itself
// as it is remembered, or nil.
func (t *Timer) Ended(now int64) *Timer {
	if t.Remember == nil || t.Remember.For == 0 || t.IsRemembered() {
		return nil
	}
	return &Timer{
		ID: t.ID, Offset: rememberedAs(t.Offset), Due: now + t.Remember.For, Occurrence: t.Occurrence,
		Target: Target{Topic: t.Target.Topic, Partition: AnyPartition, Key: t.ID}, Remember: t.Remember,
	}
}

func rememberedAs(generation int64) int64 {
	if generation < 0 {
		return generation - remembered
	}
	return generation + remembered
}

// The content of extension tagRemember:
//
//	uvarint  for how long, milliseconds
//	         the token: the rest
func (r *Remember) appendTo(dst []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(r.For)), r.Token...)
}

// remember reads the content of extension tagRemember, which is all of rest.
func (r *reader) remember() *Remember {
	m := &Remember{For: int64(r.uvarint())}
	if m.Token = string(r.rest); m.For < 0 {
		r.corrupt("a memory of less than nothing")
	}
	r.rest = nil
	return m
}
