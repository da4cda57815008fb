// Package crash has instances as real processes killed, stopped, paused and
// refused, on a real broker, and looks for what is lost or late.
package crash

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// serving reports whether the instances are ready and own n live partitions
// between them.
func serving(n int, ps ...*rig.Process) bool {
	sum := 0
	for _, p := range ps {
		l := p.Live()
		if l < 0 {
			return false
		}
		sum += l
	}
	return sum == n
}

// A streamed timer is due within these of being sent.
const soonest, latest = 200 * time.Millisecond, 3 * time.Second

// stream sends timers at a steady rate, due shortly after, to the targets in turn:
// stream-0, stream-1 and so on.
func stream(t testing.TB, c *kafkatest.Cluster, requests string, targets ...string) *rig.Stream {
	return rig.StartStream(t, c.Client(t), streamRate, func(n int) *kgo.Record {
		spread := time.Duration(n*7919) * time.Millisecond % (latest - soonest)
		return rig.Timer(requests, targets[n%len(targets)], streamID(n), time.Now().Add(soonest+spread))
	})
}

func streamID(i int) string { return fmt.Sprintf("stream-%d", i) }

// awaitStream waits until each of n streamed timers was received once, and
// names some of those that were not.
func awaitStream(t testing.TB, out *kafkatest.Collector, n int, limit time.Duration) {
	t.Helper()
	missing := make(map[string]bool, n)
	for i := range n {
		missing[streamID(i)] = true
	}
	seen := 0
	_, came := await.Within(limit, func() bool {
		records := out.Records()
		for _, r := range records[seen:] {
			delete(missing, r.Header("waterclock-id"))
		}
		seen = len(records)
		return len(missing) == 0
	})
	if !came {
		kafkatest.Inexact(t, "lost: %d of %d streamed timers after %s, such as %v", len(missing), n, limit,
			some(missing))
		t.FailNow()
	}
}

// some returns up to five keys.
func some(m map[string]bool) []string {
	keys := slices.Sorted(maps.Keys(m))
	return keys[:min(5, len(keys))]
}

// ends returns the high watermarks of a topic.
func ends(t testing.TB, adm *kadm.Client, topic string) map[int32]int64 {
	t.Helper()
	listed, err := adm.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatalf("list the ends of %s: %v", topic, err)
	}
	at := make(map[int32]int64)
	listed.Each(func(o kadm.ListedOffset) { at[o.Partition] = o.Offset })
	return at
}

func total(m map[int32]int64) (n int64) {
	for _, v := range m {
		n += v
	}
	return n
}

// readLimit bounds the reading of a whole topic.
const readLimit = time.Minute

// readAll gives every committed record of a topic that is in the log now, each
// partition in order. Control records only say how far it has come: without
// them the end of a log of transactions never shows up in a poll.
func readAll(t testing.TB, c *kafkatest.Cluster, topic string, take func(*kgo.Record)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readLimit)
	defer cancel()
	from, left := make(map[int32]kgo.Offset), make(map[int32]int64)
	for p, end := range ends(t, c.Admin(t), topic) {
		if end > 0 {
			from[p], left[p] = kgo.NewOffset().AtStart(), end
		}
	}
	cl := c.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	defer cl.Close()
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("read %s: %d partitions did not end within %s", topic, len(left), readLimit)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			if !r.Attrs.IsControl() {
				take(r)
			}
		})
	}
}
