package corpus

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strings"
)

// Recorded is the producer of the batches in testdata/batches.txt. No case sets one of its numbers.
func Recorded() Writer {
	return Writer{ID: 0x0123_4567_89ab_cdef, Epoch: 0x1234, Sequence: 0x1234_5678, At: 1_600_000_000_123}
}

//go:embed testdata/batches.txt
var batches string

// recorded are the small cases: name | settings of the topic | the batch of Recorded. TestBatches (test/batches) writes
// the file.
func recorded() (cases []Case) {
	for row := range rows(batches, 3) {
		c := Case{Name: row[0], Batch: func(w Writer) []byte { return restamp(w, unbase64(row[2])) }}
		for setting := range strings.FieldsSeq(row[1]) {
			if c.Config == nil {
				c.Config = make(map[string]string)
			}
			k, v, _ := strings.Cut(setting, "=")
			c.Config[k] = v
		}
		cases = append(cases, c)
	}
	return cases
}

// restamp returns a batch of Recorded as if another producer had written it at another time. Fields that the case has
// set stay, and so does a wrong CRC.
func restamp(w Writer, raw []byte) []byte {
	p, was, be := bytes.Clone(raw), Recorded(), binary.BigEndian
	wrong := be.Uint32(raw[upToCRC:]) - checksum(raw)
	if w.Transactional {
		p[22] |= transactional
	}
	if be.Uint64(p[27:]) == uint64(was.At) {
		be.PutUint64(p[27:], uint64(w.At))
	}
	if later := int64(be.Uint64(p[35:])) - was.At; -1000 <= later && later <= 1000 {
		be.PutUint64(p[35:], uint64(w.At+later))
	}
	if be.Uint64(p[43:]) == uint64(was.ID) {
		be.PutUint64(p[43:], uint64(w.ID))
	}
	if be.Uint16(p[51:]) == uint16(was.Epoch) {
		be.PutUint16(p[51:], uint16(w.Epoch))
	}
	if be.Uint32(p[53:]) == uint32(was.Sequence) {
		be.PutUint32(p[53:], uint32(w.Sequence))
	}
	be.PutUint32(p[upToCRC:], checksum(p)+wrong)
	return p
}

func checksum(p []byte) uint32 {
	return crc32.Checksum(p[behindCRC:], crc32.MakeTable(crc32.Castagnoli))
}

//go:embed testdata/java.txt
var javaBatches string

// javaCases are batches as Kafka's own producer writes them, with each codec at each level. Producer and time are the
// caller's.
func javaCases() (cases []Case) {
	for row := range rows(javaBatches, 2) {
		cases = append(cases, Case{Name: row[0], Batch: func(w Writer) []byte {
			raw := unbase64(row[1])
			be := binary.BigEndian
			b := NewBatch(w, int16(be.Uint16(raw[21:])), int(be.Uint32(raw[57:])), raw[overhead:])
			b.Max += int64(be.Uint64(raw[35:]) - be.Uint64(raw[27:]))
			return b.Bytes()
		}})
	}
	return cases
}

func unbase64(text string) []byte {
	raw, err := base64.StdEncoding.DecodeString(text)
	must(err)
	return raw
}
