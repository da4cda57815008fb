package wire

import (
	"encoding/binary"
	"errors"
	"math"
)

var (
	// ErrNewerFormat says that a later version of waterclock wrote the bytes, or another program whose bytes look the
	// same. The reader must not go on, and must not write either.
	ErrNewerFormat = errors.New("written by a newer version of waterclock, or by another program")

	// ErrCorrupt says that no version of waterclock wrote the bytes.
	ErrCorrupt = errors.New("not written by waterclock")
)

// appendText appends a string as uvarint length and bytes.
func appendText(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// decoder takes fields from the front of rest. After a missing or malformed field, err is set, and no field may be
// used.
type decoder struct {
	rest []byte
	err  error // the first one
}

// open checks the format byte, which begins every value.
func open(b []byte, format byte) (d decoder) {
	switch {
	case len(b) == 0 || b[0] == 0:
		d.err = ErrCorrupt
	case b[0] > format:
		d.err = ErrNewerFormat
	default:
		d.rest = b[1:]
	}
	return d
}

func (d *decoder) fail() {
	if d.err == nil {
		d.rest, d.err = nil, ErrCorrupt
	}
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.rest)) {
		d.fail()
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

// uvarint takes a number only in its shortest form, so that each value has one encoding.
func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || n > 1 && d.rest[n-1] == 0 {
		d.fail()
		return 0
	}
	d.take(uint64(n))
	return v
}

func (d *decoder) varint() int64 {
	u := d.uvarint()
	return int64(u>>1) ^ -int64(u&1) // zigzag
}

// offset takes a number from 0.
func (d *decoder) offset() int64 {
	u := d.uvarint()
	if u > math.MaxInt64 {
		d.fail()
	}
	return int64(u)
}

func (d *decoder) int32() int32 {
	v := d.varint()
	if v != int64(int32(v)) {
		d.fail()
	}
	return int32(v)
}

// positive32 takes a number from 1.
func (d *decoder) positive32() int32 {
	u := d.uvarint()
	if u < 1 || u > math.MaxInt32 {
		d.fail()
	}
	return int32(u)
}

func (d *decoder) text() string { return string(d.take(d.uvarint())) }

func (d *decoder) uuid() (id [16]byte) {
	copy(id[:], d.take(uint64(len(id))))
	return id
}

// end returns an error unless all fields were well-formed and no bytes are left.
func (d *decoder) end() error {
	if len(d.rest) > 0 {
		d.fail()
	}
	return d.err
}
