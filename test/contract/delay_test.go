package contract

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// delayed is a setup whose topic is a fixed-delay topic.
type delayed struct {
	*setup
	delay time.Duration
	width int // partitions of the topic

	mu  sync.Mutex    // guards log
	log []*kgo.Record // that must come
}

func newDelayed(t *testing.T, partitions, targets int32, delay time.Duration) *delayed {
	t.Helper()
	return &delayed{setup: newSetup(t, kafkatest.Shared(t), partitions, targets), delay: delay, width: int(partitions)}
}

// config is that of an instance with a directory of its own.
func (d *delayed) config() *config.Config {
	cfg := d.Config()
	cfg.Requests = nil
	cfg.Delay = []config.DelayTopic{{Topic: d.Requests, Delay: d.delay, Target: d.Target}}
	cfg.SessionTimeout = session
	return cfg
}

// start starts the binary.
func (d *delayed) start() *rig.Process {
	d.Helper()
	return rig.Start(d.T, "serve", "--brokers", strings.Join(d.Cluster.Seeds(), ","), "--delay",
		d.Requests+":"+span.String(d.delay)+":"+d.Target, "--targets", "*", "--group", "group-of-"+d.Requests,
		"--data-dir", d.TempDir(), "--session-timeout", session.String())
}

// record is the i-th of a name.
func (d *delayed) record(name string, i int) *kgo.Record {
	r := d.Request(fmt.Sprint(name, "-", i), fmt.Sprint("value of ", name, "-", i), "user", fmt.Sprint(i))
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: "user"})
	return r
}

// note notes that a record must come once it is in the log.
func (d *delayed) note(recs ...*kgo.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, recs...)
}

// pass writes n records, which must come.
func (d *delayed) pass(name string, n int) {
	d.Helper()
	recs := make([]*kgo.Record, n)
	for i := range recs {
		recs[i] = d.record(name, i)
	}
	d.Send(recs...)
	d.note(recs...)
}

// stream writes records, which must come, until it is stopped.
func (d *delayed) stream(perSecond int) *rig.Stream {
	return rig.StartStream(d.T, d.Client, perSecond, func(n int) *kgo.Record {
		r := d.record("stream", n)
		d.note(r)
		return r
	})
}

func (d *delayed) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.log)
}

// more waits until n records more have come.
func (d *delayed) more(n int) {
	d.Helper()
	d.Out.WaitFor(len(d.Out.Records())+n, patience)
}

// finish waits until all that was written has come, and checks that each record came once, in order, not early, and as
// it was.
func (d *delayed) finish() {
	d.Helper()
	d.Out.WaitFor(d.count(), 2*patience)
	d.Out.Quiet(quiet)
	var wrong []history.Violation
	complain := func(rule, format string, args ...any) {
		wrong = append(wrong, history.Violation{Rule: rule, Text: fmt.Sprintf(format, args...)})
	}
	sent, last := make(map[string]*kgo.Record), make(map[string]int64)
	for _, r := range d.log {
		sent[source(r)] = r
	}
	for _, r := range d.Out.Records() {
		from := r.Header("waterclock-source")
		was := sent[from]
		if was == nil {
			complain("duplicate", "record %s comes from %q, which nobody sent, or came before", source(r.Record), from)
			continue
		}
		delete(sent, from)
		if err := d.compare(was, &r); err != nil {
			complain("altered", "%s: %v", from, err)
		}
		way := fmt.Sprint(was.Partition, " to ", r.Partition)
		if before, ok := last[way]; ok && before >= was.Offset {
			complain("order", "%s came behind offset %d", from, before)
		}
		last[way] = was.Offset
	}
	for from := range sent {
		complain("loss", "%s did not come", from)
	}
	rig.Violations(d, wrong)
}

// compare checks one record that came.
func (d *delayed) compare(sent *kgo.Record, r *kafkatest.Received) error {
	due := number(*r, "waterclock-due")
	switch least := sent.Timestamp.UnixMilli() + d.delay.Milliseconds(); {
	case due < least:
		return fmt.Errorf("due at %d, its timestamp says %d", due, least)
	case r.Timestamp.UnixMilli() < due || r.At.UnixMilli() < due:
		return fmt.Errorf("early: due at %d, written at %d, received at %d", due, r.Timestamp.UnixMilli(),
			r.At.UnixMilli())
	case !sameBytes(r.Key, sent.Key) || !sameBytes(r.Value, sent.Value):
		return fmt.Errorf("key %q value %q, sent %q and %q", r.Key, r.Value, sent.Key, sent.Value)
	case len(r.Headers) < len(sent.Headers) || !slices.EqualFunc(r.Headers[:len(sent.Headers)], sent.Headers,
		sameHeader):
		return fmt.Errorf("headers %v, sent %v", r.Headers, sent.Headers)
	case r.Header("waterclock-attempt") != "1":
		return fmt.Errorf("attempt %q", r.Header("waterclock-attempt"))
	}
	return nil
}

// refuses waits until all partitions of an instance have failed, and returns what it says.
func (d *delayed) refuses(in *rig.Instance) (body string) {
	d.Helper()
	d.until("all partitions refuse", func() bool {
		_, body = in.Readyz()
		return strings.Count(body, `"failed"`) == d.width
	})
	return body
}

// stop stops an instance in order.
func (d *delayed) stop(in *rig.Instance) {
	d.Helper()
	if err := in.Stop(); err != nil {
		d.Fatal(err)
	}
}
