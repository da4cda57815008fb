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

var errSize = errors.New("needs a number of bytes such as 65536, 512KiB, 64MiB or 2GiB; " +
	"100MB and 1G are understood, too")

// sizeUnits are the units that ParseSize reads, in lower case. KB, MB and GB are powers of 1000; K, M and G are
// powers of 1024, as for dd and the JVM.
var sizeUnits = map[string]Size{
	"": 1, "b": 1,
	"k": KiB, "ki": KiB, "kib": KiB, "m": MiB, "mi": MiB, "mib": MiB, "g": GiB, "gi": GiB, "gib": GiB,
	"kb": 1000, "mb": 1000 * 1000, "gb": 1000 * 1000 * 1000,
}

// maxSizeDecimals is how many digits may follow the point, as in 1.5GiB.
const maxSizeDecimals = 3

// ParseSize reads a number of bytes with one of sizeUnits, in capitals or not; a space may stand between them. It
// refuses negative numbers, overflow, and decimals without a unit. Less than a byte is cut off.
func ParseSize(s string) (Size, error) {
	end := strings.LastIndexAny(s, "0123456789") + 1
	unit, ok := sizeUnits[strings.ToLower(strings.TrimPrefix(s[end:], " "))]
	whole, decimals, point := strings.Cut(s[:end], ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	if !ok || err != nil || n > uint64(math.MaxInt64/unit) {
		return 0, errSize
	}
	size := Size(n) * unit
	if !point {
		return size, nil
	}
	part, err := strconv.ParseUint(decimals, 10, 32)
	if err != nil || len(decimals) > maxSizeDecimals || unit == 1 {
		return 0, errSize
	}
	more := Size(part) * unit / Size(math.Pow10(len(decimals)))
	if more > math.MaxInt64-size {
		return 0, errSize
	}
	return size + more, nil
}

// String writes s in a unit that divides it, as ParseSize reads it.
func (s Size) String() string {
	for _, u := range []struct {
		name string
		size Size
	}{{"GiB", GiB}, {"MiB", MiB}, {"GB", 1000 * 1000 * 1000}, {"MB", 1000 * 1000}, {"KiB", KiB}} {
		if s != 0 && s%u.size == 0 {
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
