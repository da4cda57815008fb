package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, written as in 64MiB.
type Size int64

// Units of Size.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
)

var errSize = errors.New("needs a number of bytes such as 65536, 512KiB, 64MiB or 2GiB")

var sizeUnits = []struct {
	name string
	size Size
}{{"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", 1}} // longest first: all of them end with "B"

// ParseSize reads a whole number of B, KiB, MiB or GiB; without a unit, of
// bytes. It refuses negative numbers, what overflows, and decimal units.
func ParseSize(s string) (Size, error) {
	digits, unit := s, Size(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			digits, unit = rest, u.size
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n > uint64(math.MaxInt64/unit) {
		return 0, errSize
	}
	return Size(n) * unit, nil
}

// String writes s in the largest unit that divides it, as ParseSize reads it.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && s%u.size == 0 && u.size > 1 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Set implements pflag.Value.
func (s *Size) Set(text string) error {
	v, err := ParseSize(text)
	if err == nil {
		*s = v
	}
	return err
}

// Type implements pflag.Value. It returns the word that stands for the value in a help text.
func (s *Size) Type() string { return "size" }
