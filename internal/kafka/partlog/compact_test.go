package partlog

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// TestCompacted reads a log that a real cleaner has thinned out, and that ends in an aborted transaction. Records,
// whole batches and all records of a batch are gone; the position still reaches the end.
func TestCompacted(t *testing.T) {
	p := newPartition(kafkatest.OnShared(t), map[string]*string{
		"cleanup.policy":            kadm.StringPtr("compact"),
		"segment.ms":                kadm.StringPtr("50"),
		"min.cleanable.dirty.ratio": kadm.StringPtr("0.01"),
		"min.compaction.lag.ms":     kadm.StringPtr("0"),
		"delete.retention.ms":       kadm.StringPtr("0"),
	})
	// The batch of a producer that wrote nothing later is emptied, not removed.
	p.write(p.client(), "0")
	p.begin("c", "1", "2").end(commit)
	p.begin("a", "x").end(abort)
	written := 3
	for ; written < 20; written++ {
		p.write(p.cl, fmt.Sprint("v", written))
	}
	await.Until(p.T, time.Minute, "the cleaner has run", func() bool {
		p.write(p.cl, "roll") // a segment is closed by a later write
		written++
		got, _ := p.drain(NewReader(p.cl, p.target, 0))
		return len(got) < written/2
	})
	p.begin("b", "x", "x").end(abort)

	r := NewReader(p.cl, p.target, 0)
	r.SetCompacted(true)
	got, page := p.drain(r)
	if len(got) == 0 || got[len(got)-1] != "roll" || r.Position() != page.HighWatermark {
		t.Errorf("read %q to %d of %d", got, r.Position(), page.HighWatermark)
	}
	if start, _, _, err := Bounds(p.Ctx, p.cl, p.target); err != nil || start != 0 {
		t.Errorf("the log begins at %d, %v: this was not compaction", start, err)
	}
}
