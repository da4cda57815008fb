package load

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	timers "github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	auditRequests = 300_000
	// auditMemory is what an audit may come to hold, in bytes, however much it reads.
	auditMemory = 512 << 20
	// auditTime is for 2,500 requests a second.
	auditTime = 2 * time.Minute
)

// An audit holds no more memory for more requests, and one emission that is missing among all is found. The logs are
// written here, as a service would have left them: of twenty requests two wait, one is cancelled, and the others have
// fired.
func TestMemoryOfAnAudit(t *testing.T) {
	runs.NeedSlow(t)
	a := newAudited(t)
	a.write(auditRequests)
	start := time.Now()
	p := rig.Exec(t, nil, "audit", "--brokers", strings.Join(a.Cluster.Seeds(), ","), "--requests", a.Requests,
		"--targets", "*")
	code := p.Exit(auditTime)
	if code != 1 || !strings.Contains(p.Output(), "1 violations: loss 1") || !strings.Contains(p.Output(), a.lost) {
		t.Errorf("exit %d: %s", code, p.Output())
	}
	peak := p.Peak()
	t.Logf("audited in %s, peak memory %.1f MiB", time.Since(start).Round(time.Second), float64(peak)/mib)
	if peak == 0 || peak > auditMemory {
		t.Errorf("peak memory %d, want at most %d", peak, int64(auditMemory))
	}
}

// audited are the logs of a request topic.
type audited struct {
	*setup
	written int
	offsets [partitions]int64 // of requests
	lost    string
}

func newAudited(t *testing.T) *audited {
	t.Helper()
	a := &audited{setup: newSetup(t)}
	a.Client = a.Cluster.Client(t, append(batched(kgo.Lz4Compression()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if _, _, err := topics.Ensure(t.Context(), kadm.NewClient(a.Client), a.Requests,
		topics.Options{Create: true}); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *audited) produce(r *kgo.Record) {
	a.Client.Produce(a.Context(), r, func(_ *kgo.Record, err error) {
		if err != nil {
			a.Errorf("produce: %v", err)
		}
	})
}

// write writes n requests at least and what became of them.
func (a *audited) write(n int) {
	value, now := []byte("payload of some timer, in a hundred bytes or so, as is usual"), time.Now()
	header := func(key string, value string) kgo.RecordHeader {
		return kgo.RecordHeader{Key: key, Value: []byte(value)}
	}
	var steps int64
	checkpoints := func() {
		for p := range int32(partitions) {
			steps++
			w := wire.Checkpoint{Position: a.offsets[p], Step: fmt.Sprint("p/", steps), Group: "g"}
			a.produce(&kgo.Record{Topic: topics.Changelog(a.Requests), Partition: p, Key: wire.CheckpointKey(),
				Value: w.AppendTo(nil)})
		}
	}
	for i := 0; a.written < n; i++ {
		id := fmt.Sprint("timer-", i)
		p := intake.Murmur2Partition([]byte(id), partitions)
		offset := a.offsets[p]
		due := now.UnixMilli()
		if i%20 < 3 {
			due += time.Hour.Milliseconds()
		}
		at := strconv.FormatInt(due, 10)
		a.produce(&kgo.Record{Topic: a.Requests, Partition: p, Key: []byte(id), Value: value, Timestamp: now,
			Headers: []kgo.RecordHeader{
				header(waterclock.HeaderAt, at), header(waterclock.HeaderTargetTopic, a.Target),
			}})
		a.offsets[p]++
		a.written++
		switch {
		case i%20 == 0: // cancelled
			a.produce(&kgo.Record{Topic: a.Requests, Partition: p, Key: []byte(id), Timestamp: now})
			a.offsets[p]++
			a.written++
		case i%20 < 3: // pending
			w := timers.Timer{ID: []byte(id), Offset: offset, Due: due, Occurrence: 1,
				Target: timers.Target{Topic: a.Target, Partition: timers.AnyPartition, Key: []byte(id)}, Value: value}
			a.produce(&kgo.Record{Topic: topics.Changelog(a.Requests), Partition: p, Key: wire.TimerKey(nil, w.ID),
				Value: w.AppendTo(nil)})
		case a.lost == "" && a.written > n/2:
			a.lost = fmt.Sprintf("%s/%d/%d", a.Requests, p, offset)
		default:
			a.produce(&kgo.Record{Topic: a.Target, Partition: p, Key: []byte(id), Value: value,
				Timestamp: time.UnixMilli(due + 3), Headers: []kgo.RecordHeader{
					header(waterclock.HeaderID, id), header(waterclock.HeaderDue, at),
					header(waterclock.HeaderOccurrence, "1"),
					header(waterclock.HeaderSource, fmt.Sprintf("%s/%d/%d", a.Requests, p, offset)),
					header(waterclock.HeaderEvent, fmt.Sprintf("x.%d.%d.1", p, offset)),
				}})
		}
		if i%10_000 == 0 {
			checkpoints()
		}
	}
	checkpoints()
	if err := a.Client.Flush(a.Context()); err != nil {
		a.Fatal(err)
	}
}
