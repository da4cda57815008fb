package intake

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

// TestMurmur2 holds the vectors of Kafka's own UtilsTest.testMurmur2.
func TestMurmur2(t *testing.T) {
	tests := []struct {
		key  string
		want int32
	}{
		{"21", -973932308},
		{"foobar", -790332482},
		{"a-little-bit-long-string", -985981536},
		{"a-little-bit-longer-string", -1486304829},
		{"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971},
		{"abc", 479470107},
	}
	for _, tt := range tests {
		if got := int32(murmur2([]byte(tt.key))); got != tt.want {
			t.Errorf("%q: got %d, want %d", tt.key, got, tt.want)
		}
	}
}

// TestMurmur2PartitionIsKgos: kgo's default partitioner chooses the same.
func TestMurmur2PartitionIsKgos(t *testing.T) {
	partitioner := kgo.StickyKeyPartitioner(nil).ForTopic("timers")
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), 1, 512).Draw(t, "key")
		n := rapid.Int32Range(1, 10_000).Draw(t, "partitions")
		want := partitioner.Partition(&kgo.Record{Key: key}, int(n))
		if got := Murmur2Partition(key, n); int(got) != want {
			t.Fatalf("key %x of %d: got %d, want %d", key, n, got, want)
		}
	})
}
