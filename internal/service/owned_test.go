package service

import (
	"testing"

	"github.com/waterclock/waterclock/internal/config"
)

// The queues' memory is shared out evenly as long as each partition gets the
// least that it needs; with one partition more they all get that.
func TestQueueOfAPartition(t *testing.T) {
	cfg := config.Default()
	most := int64(cfg.QueueMemory) / minQueue
	for _, c := range []struct{ partitions, bytes int64 }{
		{1, 64 << 20}, {most / 2, 2 * minQueue}, {most, minQueue}, {most + 1, minQueue}, {10_000, minQueue},
	} {
		entries, bytes := queueOf(&cfg, c.partitions)
		if bytes != c.bytes || int64(entries) != c.bytes/1024 {
			t.Errorf("%d partitions: %d entries, %d bytes, want %d bytes and an entry for each KiB", c.partitions, entries, bytes, c.bytes)
		}
	}
}
