package corpus

import (
	"fmt"
	"slices"
	"strings"
)

// Case is one kind of batch that a producer may write.
type Case struct {
	Name string
	// Batch makes the batch for a producer. It is sound except for the fault in the name.
	Batch func(Writer) []byte
	// Config are settings that its topic needs for a broker to take it, or for the case to mean something.
	Config map[string]string
}

// Cases are all cases, each with a name of its own.
func Cases() []Case {
	return slices.Concat(
		soundCases(), javaCases(), framingCases(), zstdCases(), contentCases(), recordCases(), varintCases(),
		headerCases(), largeCases(), topicCases(),
	)
}

// Group is the part of the name before the colon.
func (c Case) Group() string {
	group, _, _ := strings.Cut(c.Name, ":")
	return group
}

// codec is a compression type with its name.
type codec struct {
	name string
	id   int16
}

func codecs() []codec {
	return []codec{{"none", none}, {"gzip", gzipped}, {"snappy", snappied}, {"lz4", lz4ed}, {"zstd", zstded}}
}

// twoWays are one codec for each way in which brokers validate: they read uncompressed records whole, and skip through
// keys, values and headers of compressed ones.
func twoWays() []codec { return []codec{{"none", none}, {"gzip", gzipped}} }

// of returns a case of count records.
func of(name string, id int16, count int, records func() []byte) Case {
	return Case{Name: name, Batch: func(w Writer) []byte {
		return newBatch(w, id, count, compress(id, records())).bytes()
	}}
}

// raw returns a case of three plain records, compressed by as.
func raw(name string, id int16, as func(p []byte) []byte) Case {
	return Case{Name: name, Batch: func(w Writer) []byte { return newBatch(w, id, 3, as(records(3))).bytes() }}
}

// claims returns a case of three plain records in a batch whose fields change sets.
func claims(name string, id int16, change func(b *batch)) Case {
	return Case{Name: name, Batch: func(w Writer) []byte {
		b := newBatch(w, id, 3, compress(id, records(3)))
		change(b)
		return b.bytes()
	}}
}

// both are cases of count records, compressed and not.
func both(name string, count int, records func() []byte) (cases []Case) {
	for _, c := range twoWays() {
		cases = append(cases, of(fmt.Sprintf("%s, %s", name, c.name), c.id, count, records))
	}
	return cases
}

// bothClaim are cases of a changed batch, compressed and not.
func bothClaim(name string, change func(b *batch)) (cases []Case) {
	for _, c := range twoWays() {
		cases = append(cases, claims(fmt.Sprintf("%s, %s", name, c.name), c.id, change))
	}
	return cases
}

// with is a case on a topic with settings.
func (c Case) with(config map[string]string) Case {
	c.Config = config
	return c
}
