package load

import (
	"fmt"
	"os"
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
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	timers "github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	// envAudited is how many requests TestMemoryOfAnAudit has audited, by default auditRequests.
	envAudited    = "WATERCLOCK_AUDIT_REQUESTS"
	auditRequests = 300_000
	// auditMemory is what an audit may come to hold, in bytes, however much it reads.
	auditMemory = 512 << 20
	// auditRate is the least number of requests a second that are audited.
	auditRate = 2_000
)

// An audit holds no more memory for more requests, and one emission that is missing among all is found. The logs are
// written here, as a service would have left them: of twenty requests two wait, one is cancelled, and the others have
// fired.
func TestMemoryOfAnAudit(t *testing.T) {
	runs.NeedSlow(t)
	n := auditRequests
	if text := os.Getenv(envAudited); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	c := kafkatest.Shared(t)
	a := newAudited(t, c)
	a.write(n)
	start := time.Now()
	p := rig.Exec(t, nil, "audit", "--brokers", strings.Join(c.Seeds(), ","), "--requests", a.topic, "--targets", "*")
	code := p.Exit(time.Duration(max(n/auditRate, 120)) * time.Second)
	if code != 1 || !strings.Contains(p.Output(), "1 violations: loss 1") || !strings.Contains(p.Output(), a.lost) {
		t.Errorf("exit %d: %s", code, p.Output())
	}
	peak := p.Peak()
	t.Logf("audited in %s, peak memory %.1f MiB: %s", time.Since(start).Round(time.Second),
		float64(peak)/mib, p.Output())
	if peak == 0 || peak > auditMemory {
		t.Errorf("peak memory %d, want at most %d", peak, int64(auditMemory))
	}
}

// audited are the logs of a request topic.
type audited struct {
	t             *testing.T
	cl            *kgo.Client
	topic, target string
	requests      int
	offsets       [partitions]int64 // of requests
	lost          string
}

func newAudited(t *testing.T, c *kafkatest.Cluster) *audited {
	t.Helper()
	a := &audited{t: t, topic: c.CreateTopic(t, partitions, nil)}
	a.target = c.CreateTopic(t, partitions, nil, a.topic+"-out")
	a.cl = c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(20*time.Millisecond),
		kgo.MaxBufferedRecords(maxBuffered))
	if _, _, err := topics.Ensure(t.Context(), kadm.NewClient(a.cl), a.topic,
		topics.Options{Create: true}); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *audited) produce(r *kgo.Record) {
	a.cl.Produce(a.t.Context(), r, func(_ *kgo.Record, err error) {
		if err != nil {
			a.t.Errorf("produce: %v", err)
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
			a.produce(&kgo.Record{Topic: topics.Changelog(a.topic), Partition: p, Key: wire.CheckpointKey(),
				Value: w.AppendTo(nil)})
		}
	}
	for i := 0; a.requests < n; i++ {
		id := fmt.Sprint("timer-", i)
		p := intake.Murmur2Partition([]byte(id), partitions)
		offset := a.offsets[p]
		due := now.UnixMilli()
		if i%20 < 3 {
			due += time.Hour.Milliseconds()
		}
		at := strconv.FormatInt(due, 10)
		a.produce(&kgo.Record{Topic: a.topic, Partition: p, Key: []byte(id), Value: value, Timestamp: now,
			Headers: []kgo.RecordHeader{
				header(waterclock.HeaderAt, at), header(waterclock.HeaderTargetTopic, a.target),
			}})
		a.offsets[p]++
		a.requests++
		switch {
		case i%20 == 0: // cancelled
			a.produce(&kgo.Record{Topic: a.topic, Partition: p, Key: []byte(id), Timestamp: now})
			a.offsets[p]++
			a.requests++
		case i%20 < 3: // pending
			w := timers.Timer{ID: []byte(id), Offset: offset, Due: due, Occurrence: 1,
				Target: timers.Target{Topic: a.target, Partition: timers.AnyPartition, Key: []byte(id)}, Value: value}
			a.produce(&kgo.Record{Topic: topics.Changelog(a.topic), Partition: p, Key: wire.TimerKey(nil, w.ID),
				Value: w.AppendTo(nil)})
		case a.lost == "" && a.requests > n/2:
			a.lost = fmt.Sprintf("%s/%d/%d", a.topic, p, offset)
		default:
			a.produce(&kgo.Record{Topic: a.target, Partition: p, Key: []byte(id), Value: value,
				Timestamp: time.UnixMilli(due + 3), Headers: []kgo.RecordHeader{
					header(waterclock.HeaderID, id), header(waterclock.HeaderDue, at),
					header(waterclock.HeaderOccurrence, "1"),
					header(waterclock.HeaderSource, fmt.Sprintf("%s/%d/%d", a.topic, p, offset)),
					header(waterclock.HeaderEvent, fmt.Sprintf("x.%d.%d.1", p, offset)),
				}})
		}
		if i%10_000 == 0 {
			checkpoints()
		}
	}
	checkpoints()
	if err := a.cl.Flush(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
}
