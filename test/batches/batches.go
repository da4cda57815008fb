// Package batches makes the small batches of internal/kafkatest/corpus, byte by byte: by no code of the product and by
// none of a Kafka client. TestBatches compares the corpus with them; with -rewrite it writes them to the corpus.
package batches

import (
	"fmt"
	"slices"

	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
)

// Cases are the cases, in the order of the file.
func Cases() []corpus.Case {
	return slices.Concat(soundCases(), framingCases(), zstdCases(), contentCases(), recordCases(), varintCases(),
		headerCases())
}

var garbage = []byte(corpus.Garbage)

// twoWays are one codec for each way in which brokers validate: they read uncompressed records whole, and skip through
// keys, values and headers of compressed ones.
func twoWays() []corpus.Codec { return corpus.Codecs()[:2] }

// raw returns a case of three plain records, compressed by as.
func raw(name string, codec int16, as func(p []byte) []byte) corpus.Case {
	return corpus.Case{Name: name, Batch: func(w corpus.Writer) []byte {
		return corpus.NewBatch(w, codec, 3, as(corpus.Records(3))).Bytes()
	}}
}

// claims returns a case of three plain records. change sets fields of their batch.
func claims(name string, codec int16, change func(b *corpus.Batch)) corpus.Case {
	return corpus.Case{Name: name, Batch: func(w corpus.Writer) []byte {
		b := corpus.NewBatch(w, codec, 3, corpus.Compress(codec, corpus.Records(3)))
		change(b)
		return b.Bytes()
	}}
}

// both are cases of count records, compressed and not.
func both(name string, count int, records func() []byte) (cases []corpus.Case) {
	for _, c := range twoWays() {
		cases = append(cases, corpus.Of(fmt.Sprintf("%s, %s", name, c.Name), c.ID, count, records))
	}
	return cases
}

// bothClaim are cases of a changed batch, compressed and not.
func bothClaim(name string, change func(b *corpus.Batch)) (cases []corpus.Case) {
	for _, c := range twoWays() {
		cases = append(cases, claims(fmt.Sprintf("%s, %s", name, c.Name), c.ID, change))
	}
	return cases
}
