package load

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	worstRate = 500 // timers a second of the others
	worstP99  = 1.2 // how much later the others may be at their 99th percentile
)

// Somebody writes, all the time, whatever a broker takes and is bad for a reader. Others' timers fire as before, each
// once; no partition is given up, and memory is kept.
func TestTheWorstTenant(t *testing.T) {
	seconds := 5
	if runs.Full() {
		seconds = 60
	}
	s := newSetup(t)
	// Some timestamps are old, and retention must not delete their records.
	bad := s.Cluster.CreateTopic(t, partitions, map[string]*string{"retention.ms": kadm.StringPtr("-1")})
	p := rig.Start(t, rig.Arguments(s.Cluster.Seeds(), s.Requests+","+bad, t.TempDir(), "--memory",
		config.MinMemory.String())...)
	p.Ready(2*partitions, time.Minute)
	out := kafkatest.Collect(t, s.Cluster, s.Target)
	sent := 0
	steady := func() (p99 time.Duration) {
		n := worstRate * seconds
		if err := sendPaced(s.Client, sent, sent+n, worstRate, func(i int) *kgo.Record {
			return s.timer(i, time.Now().Add(time.Second), []byte(strconv.Itoa(i)))
		}); err != nil {
			t.Fatal(err)
		}
		all := out.WaitFor(sent+n, settleLimit)
		late := make([]time.Duration, 0, n)
		for _, r := range all[sent:] {
			due, _ := r.Due() // Exactly reads it, too
			late = append(late, r.Timestamp.Sub(time.UnixMilli(due)))
		}
		slices.Sort(late)
		sent += n
		return late[n*99/100]
	}
	steady() // warm
	alone := steady()

	var written atomic.Int64
	var ended atomic.Bool
	var attack errgroup.Group
	attack.Go(func() error { defer ended.Store(true); return worst(t, s.Cluster, bad, &ended, &written) })
	beside := steady()
	ended.Store(true)
	if err := attack.Wait(); err != nil {
		t.Fatal(err)
	}
	p.Ready(2*partitions, time.Minute)
	t.Logf("%d bad batches; p99 of the others %s alone, %s beside them", written.Load(), alone, beside)
	rig.Exactly(t, out.Records(), sent)
	if runs.Full() && float64(beside) > worstP99*float64(max(alone, 10*time.Millisecond)) {
		t.Errorf("p99 of the others is %s beside bad batches, %s alone", beside, alone)
	}
	if again := strings.Count(p.Output(), "acquiring the partition again"); again > 0 {
		t.Errorf("partitions were given up %d times", again)
	}
	stop(t, p)
}

// worst writes bad batches one after the other, at most ten a second, and each heavy one once in two seconds.
func worst(t *testing.T, c *kafkatest.Cluster, topic string, ended *atomic.Bool, written *atomic.Int64) error {
	details, err := c.Admin(t).ListTopics(t.Context(), topic)
	if err != nil {
		return err
	}
	cl, heavy := c.Client(t), corpus.Heavy()
	var batches [][]byte
	for _, h := range heavy {
		batches = append(batches, h.Batch(corpus.Nobody(time.Now())))
	}
	var light [][]byte
	for _, cs := range corpus.Cases() {
		if v := corpus.Verdicts()[cs.Name]; v.Taken() && cs.Config == nil && cs.Group() != "java" {
			light = append(light, cs.Batch(corpus.Nobody(time.Now())))
		}
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n := 0; !ended.Load(); n++ {
		batch := light[n%len(light)]
		if n%7 == 0 {
			batch = batches[n/7%len(batches)]
		}
		if err := corpus.Produce(t.Context(), cl, topic, details[topic].ID, int32(n%partitions), batch); err != nil {
			return fmt.Errorf("bad batch %d: %w", n, err)
		}
		written.Add(1)
		<-tick.C
	}
	return nil
}
