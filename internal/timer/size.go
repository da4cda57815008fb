package timer

import "math"

// Size is a number of entries, and about how many bytes they hold. It says how large something is, or how much room
// there is.
type Size struct {
	Entries int
	Bytes   int64
}

// Unlimited is more than anything takes.
var Unlimited = Size{Entries: math.MaxInt, Bytes: math.MaxInt64}

// Plus returns s and o together.
func (s Size) Plus(o Size) Size { return Size{s.Entries + o.Entries, s.Bytes + o.Bytes} }

// Minus returns s without o. It may be negative.
func (s Size) Minus(o Size) Size { return Size{s.Entries - o.Entries, s.Bytes - o.Bytes} }

// Min returns the smaller number of entries and the smaller number of bytes.
func (s Size) Min(o Size) Size { return Size{min(s.Entries, o.Entries), min(s.Bytes, o.Bytes)} }

// Max returns the larger number of entries and the larger number of bytes.
func (s Size) Max(o Size) Size { return Size{max(s.Entries, o.Entries), max(s.Bytes, o.Bytes)} }

// Over returns the n-th part of s.
func (s Size) Over(n int) Size { return Size{s.Entries / n, s.Bytes / int64(n)} }

// IsUsedUp reports whether s leaves no room for anything.
func (s Size) IsUsedUp() bool { return s.Entries <= 0 || s.Bytes <= 0 }
