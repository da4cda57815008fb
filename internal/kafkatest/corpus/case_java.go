package corpus

import (
	_ "embed"
	"encoding/base64"
	"encoding/binary"
	"strings"
)

//go:embed testdata/java.txt
var javaBatches string

// javaCases are batches as Kafka's own producer writes them, with each codec at each level. Producer and time are the
// caller's.
func javaCases() (cases []Case) {
	for line := range strings.Lines(javaBatches) {
		name, text, found := strings.Cut(strings.TrimSpace(line), " | ")
		if !found || strings.HasPrefix(line, "#") {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(text)
		must(err)
		cases = append(cases, Case{Name: name, Batch: func(w Writer) []byte { return recorded(w, raw) }})
	}
	return cases
}

// recorded is a batch that was read from a log, as of another producer and time.
func recorded(w Writer, raw []byte) []byte {
	b := newBatch(w, int16(binary.BigEndian.Uint16(raw[21:])), int(binary.BigEndian.Uint32(raw[57:])), raw[overhead:])
	b.max += int64(binary.BigEndian.Uint64(raw[35:]) - binary.BigEndian.Uint64(raw[27:]))
	return b.bytes()
}
