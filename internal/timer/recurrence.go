package timer

import (
	"encoding/binary"
	"math"
)

// CatchUp is the policy for missed occurrences. They are counted in any case.
type CatchUp uint8

// The policies.
const (
	CatchUpLatest CatchUp = iota // only the last of them fires
	CatchUpAll                   // all of them fire
	CatchUpNone                  // none of them fires

	catchUps
)

// String is the policy's name, as in a request.
func (c CatchUp) String() string {
	if c >= catchUps {
		return ""
	}
	return [catchUps]string{CatchUpLatest: "latest", CatchUpAll: "all", CatchUpNone: "none"}[c]
}

// NoUntil, as Recurrence.Until, means that the recurrence has no last instant.
const NoUntil = math.MaxInt64

// Recurrence describes how a timer recurs, in the words of its request, and how its pending occurrence was scheduled.
// Package calendar interprets it. It is immutable, and the occurrences of a timer may share one.
type Recurrence struct {
	// Every is the interval in milliseconds. If it is 0, Cron applies.
	Every int64
	// Cron is the expression. Zone is the IANA name of the time zone in which it is read;
	// empty is UTC. Both are empty if Every is set.
	Cron, Zone string
	Until      int64 // Unix milliseconds: nothing is scheduled after it; NoUntil: no such end
	Count      int64 // the number of occurrences; 0: no such end
	Jitter     int64 // milliseconds; each occurrence is delayed by less than this; 0: no delay
	CatchUp    CatchUp

	// Delay is the jitter of the pending occurrence, in milliseconds: its scheduled time is the timer's Due − Delay.
	// Invariant: Delay is less than Jitter, and 0 if Jitter is 0.
	Delay int64
	// Ahead is how far the zone's clock is ahead of UTC at the pending occurrence, in seconds. From it package calendar
	// learns whether the rules of the zone have changed. Invariant: 0 with Every.
	Ahead int64
}

// Scheduled returns when the pending occurrence is scheduled, in Unix milliseconds: its due time without jitter.
func (t *Timer) Scheduled() int64 {
	if t.Recurrence == nil {
		return t.Due
	}
	return t.Due - t.Recurrence.Delay
}

// IsTooLate reports whether the next firing is too late to be emitted at now, in Unix milliseconds.
func (t *Timer) IsTooLate(now int64) bool {
	return t.TooLate > 0 && now-t.FiresAt() >= t.TooLate
}

// The content of extension tagRecurrence:
//
//	byte     flags, below
//	uvarint  interval in milliseconds      unless recursByCron
//	bytes    expression                    if recursByCron
//	bytes    zone                          if recursInZone, else UTC
//	varint   how far ahead, seconds        if recursAhead, else 0
//	varint   until                         if recursUntil
//	uvarint  count                         if recursCount
//	uvarint  jitter, then uvarint delay    if recursJitter
const (
	recursByCron  = 1 << 0
	recursInZone  = 1 << 1
	recursAhead   = 1 << 2
	recursUntil   = 1 << 3
	recursCount   = 1 << 4
	recursJitter  = 1 << 5
	recursCatchUp = 6 // two bits from here: the CatchUp
)

func (r *Recurrence) flags() (f byte) {
	f = byte(r.CatchUp) << recursCatchUp
	if r.Every == 0 {
		f |= recursByCron
	}
	if r.Zone != "" {
		f |= recursInZone
	}
	if r.Ahead != 0 {
		f |= recursAhead
	}
	if r.Until != NoUntil {
		f |= recursUntil
	}
	if r.Count != 0 {
		f |= recursCount
	}
	if r.Jitter != 0 {
		f |= recursJitter
	}
	return f
}

func (r *Recurrence) appendTo(dst []byte) []byte {
	f := r.flags()
	dst = append(dst, f)
	if f&recursByCron != 0 {
		dst = appendBytes(dst, r.Cron)
	} else {
		dst = binary.AppendUvarint(dst, uint64(r.Every))
	}
	if f&recursInZone != 0 {
		dst = appendBytes(dst, r.Zone)
	}
	if f&recursAhead != 0 {
		dst = binary.AppendVarint(dst, r.Ahead)
	}
	if f&recursUntil != 0 {
		dst = binary.AppendVarint(dst, r.Until)
	}
	if f&recursCount != 0 {
		dst = binary.AppendUvarint(dst, uint64(r.Count))
	}
	if f&recursJitter != 0 {
		dst = binary.AppendUvarint(dst, uint64(r.Jitter))
		dst = binary.AppendUvarint(dst, uint64(r.Delay))
	}
	return dst
}

// recurrence reads the content of extension tagRecurrence, which is all of rest.
func (r *reader) recurrence() *Recurrence {
	if len(r.rest) == 0 {
		r.corrupt("a recurrence without bytes")
		return nil
	}
	f := r.rest[0]
	r.rest = r.rest[1:]
	c := &Recurrence{Until: NoUntil, CatchUp: CatchUp(f >> recursCatchUp)}
	if c.CatchUp >= catchUps {
		r.newer("catch-up policy 3")
	}
	if f&recursByCron != 0 {
		if c.Cron = r.text(); c.Cron == "" {
			r.corrupt("an empty expression")
		}
	} else if c.Every = r.positive(); f&(recursInZone|recursAhead) != 0 {
		r.corrupt("an interval with a zone")
	}
	if f&recursInZone != 0 {
		if c.Zone = r.text(); c.Zone == "" {
			r.corrupt("an empty zone written out")
		}
	}
	if f&recursAhead != 0 {
		if c.Ahead = r.varint(); c.Ahead == 0 {
			r.corrupt("UTC written out")
		}
	}
	if f&recursUntil != 0 {
		if c.Until = r.varint(); c.Until == NoUntil {
			r.corrupt("no end written out")
		}
	}
	if f&recursCount != 0 {
		c.Count = r.positive()
	}
	if f&recursJitter != 0 {
		c.Jitter = r.positive()
		if c.Delay = int64(r.uvarint()); c.Delay < 0 || c.Delay >= c.Jitter {
			r.corrupt("a delay that exceeds the jitter")
		}
	}
	if len(r.rest) != 0 {
		r.corrupt("bytes behind the recurrence")
	}
	return c
}

// positive reads a number of 1 to math.MaxInt64.
func (r *reader) positive() int64 {
	n := r.uvarint()
	if n == 0 || n > math.MaxInt64 {
		r.corrupt("a number that is not positive")
	}
	return int64(n)
}
