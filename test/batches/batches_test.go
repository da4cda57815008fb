package batches

import (
	"bytes"
	"encoding/base64"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
)

var rewrite = flag.Bool("rewrite", false, "write the batches to internal/kafkatest/corpus/testdata")

// TestBatches holds the file of the corpus against the batches that are made here, for several producers. Compressors
// differ by version and by processor, so compressed batches are compared up to their CRC and from their attributes to
// their records.
func TestBatches(t *testing.T) {
	var text strings.Builder
	text.WriteString("# Batches of corpus.Recorded: TestBatches (test/batches) writes this with -rewrite.\n")
	for _, c := range Cases() {
		var settings []string
		for _, k := range slices.Sorted(maps.Keys(c.Config)) {
			settings = append(settings, k+"="+c.Config[k])
		}
		fmt.Fprintf(&text, "%s | %s | %s\n", c.Name, strings.Join(settings, " "),
			base64.StdEncoding.EncodeToString(c.Batch(corpus.Recorded())))
	}
	if *rewrite {
		const file = "../../internal/kafkatest/corpus/testdata/batches.txt"
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	kept := corpus.Cases()
	for i, made := range Cases() {
		if got := kept[i]; got.Name != made.Name || !maps.Equal(got.Config, made.Config) {
			t.Fatalf("%q, want %q: run this with -rewrite", got.Name, made.Name)
		}
		for _, w := range []corpus.Writer{
			corpus.Recorded(), corpus.Nobody(time.Now()), corpus.Nobody(time.UnixMilli(0)),
			{ID: 7, Epoch: 2, Sequence: 40, Transactional: true, At: 1_700_000_000_000},
		} {
			got, want := kept[i].Batch(w), made.Batch(w)
			if got[22]&7 != corpus.None {
				got, want = header(got), header(want)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s of %+v:\n got %x\nwant %x", made.Name, w, got, want)
			}
		}
	}
}

// header is what a batch says of itself, without its size and its CRC.
func header(raw []byte) []byte { return slices.Concat(raw[:8], raw[12:17], raw[21:61]) }
