package corpus

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

//go:embed testdata/corpus.txt
var table string

// Verdict is the reaction of Kafka 4.3.1 to a case.
type Verdict struct {
	// Broker is "taken", or Kafka's name of the error with which a broker rejects the batch.
	Broker string
	// Consumer is the reaction of Kafka's own consumer (Java, read_committed) to the batch, or empty if no broker
	// accepts it:
	//
	//	3 records, 1a2b3c4d                          with their digest, see Digest
	//	2 records, 1a2b3c4d, at 0 5                  with their offsets, unless 0, 1, 2 from the batch's first
	//	1 records, 1a2b3c4d, then until it seeks: …  with the exception that it throws each time from there on
	//	2 records, 1a2b3c4d, then loses …            it goes on behind the record that follows the batch
	Consumer string
	// Aborted is the same for the batch within an aborted transaction. "refused: …" says that a broker rejects it in a
	// transaction. It is empty if transactions make no difference to decoding a batch.
	Aborted string
	// Service is the result of partlog.Consumer: the same as Kafka's consumer, or one dead letter and its reason.
	Service string
}

// Taken reports whether a broker takes the batch.
func (v Verdict) Taken() bool { return v.Broker == taken }

const taken = "taken"

// Verdicts are the verdicts by the names of their cases.
func Verdicts() map[string]Verdict {
	verdicts := make(map[string]Verdict)
	for row := range rows(table, 5) {
		verdicts[row[0]] = Verdict{Broker: row[1], Consumer: row[2], Aborted: row[3], Service: row[4]}
	}
	return verdicts
}

// rows yields the lines of a table with that many columns, without comments.
func rows(text string, columns int) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for line := range strings.Lines(text) {
			fields := strings.Split(line, "|")
			for i := range fields {
				fields[i] = strings.TrimSpace(fields[i])
			}
			if !strings.HasPrefix(line, "#") && len(fields) == columns && !yield(fields) {
				return
			}
		}
	}
}

// Digest identifies the contents of records: keys, values and headers, in their order. Corpus.java computes the same.
// Header keys count as Java reads them, with U+FFFD for invalid UTF-8.
func Digest(records ...*kgo.Record) string {
	var p []byte
	field := func(b []byte) {
		n := int32(len(b))
		if b == nil {
			n = -1
		}
		p = append(binary.BigEndian.AppendUint32(p, uint32(n)), b...)
	}
	for _, r := range records {
		field(r.Key)
		field(r.Value)
		p = binary.BigEndian.AppendUint32(p, uint32(len(r.Headers)))
		for _, h := range r.Headers {
			field([]byte(string([]rune(h.Key))))
			field(h.Value)
		}
	}
	return fmt.Sprintf("%08x", crc32.ChecksumIEEE(p))
}
