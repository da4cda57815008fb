package timer

import "encoding/binary"

// Remember defines how long the ID of a timer stays taken after the timer has fired, or otherwise ended, for the last
// time. It is how an Idempotency-Key of the HTTP API survives restarts. It is immutable.
//
// A remembered timer is no longer pending: it has neither payload nor headers, but its labels, and it never fires. It
// is stored like a timer that is due when its memory ends: in the changelog, the store and the planner. So every owner
// knows it for as long as it counts, whichever process has died in between, and the log alone decides the result of a
// condition. Its generation is the timer's with [remembered] added, which no other timer has. So every Ref shows
// whether its timer is remembered, and a request that names the timer's own generation does not match it.
type Remember struct {
	// For is the time in milliseconds, counted from the firing; 0: the timer is not remembered.
	For int64
	// Token is a text of the request that is kept with the timer, up to 64 bytes; "": none. The HTTP
	// API keeps the digest of a body there.
	Token string
}

// remembered is added to a generation, or subtracted if that is negative: offsets are far smaller.
const remembered = 1 << 62

// IsRemembered reports whether r refers to a timer that has fired and is remembered.
func (r Ref) IsRemembered() bool { return r.Offset >= remembered/2 || r.Offset <= -remembered/2 }

// IsPending reports whether something is pending at r.
func (r Ref) IsPending() bool { return !r.IsAbsent() && !r.IsRemembered() }

// Generation returns the generation of the timer that r refers to, without [remembered].
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

// Ended returns the remembered timer that replaces t after it has fired, or ended, for the last time at now (Unix
// ms). It returns nil if t is not to be remembered.
func (t *Timer) Ended(now int64) *Timer {
	if t.Remember == nil || t.Remember.For == 0 || t.IsRemembered() {
		return nil
	}
	return &Timer{
		ID: t.ID, Offset: rememberedAs(t.Offset), Due: now + t.Remember.For, Occurrence: t.Occurrence,
		Target: Target{Topic: t.Target.Topic, Partition: AnyPartition, Key: t.ID}, Remember: t.Remember,
		Labels: t.Labels,
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
//	uvarint  For, in milliseconds
//	         Token: the rest
func (r *Remember) appendTo(dst []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(r.For)), r.Token...)
}

// remember decodes the content of extension tagRemember, which is all of r.rest.
func (r *reader) remember() *Remember {
	m := &Remember{For: int64(r.uvarint())}
	if m.Token = string(r.rest); m.For < 0 {
		r.corrupt("a negative time to remember")
	}
	r.rest = nil
	return m
}
