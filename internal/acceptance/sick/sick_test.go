// Package sick tests what happens while a target can not be written to: its
// timers wait, nobody else's do.
package sick

import (
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

const (
	patience = time.Minute
	warm     = 8 // timers, more than there are transactional IDs
	// shortTransaction makes a client give up on an EndTxn after half of it.
	shortTransaction = 8 * time.Second
)

// timer is a request for one emission.
func timer(requests, target, id string, due time.Time) *kgo.Record {
	return &kgo.Record{Topic: requests, Key: []byte(id), Value: []byte("v"), Headers: []kgo.RecordHeader{
		{Key: "timer-at", Value: []byte(strconv.FormatInt(due.UnixMilli(), 10))}, {Key: "timer-target-topic", Value: []byte(target)},
	}}
}

// send writes requests.
func send(t *testing.T, cl *kgo.Client, recs ...*kgo.Record) {
	t.Helper()
	if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatalf("send: %v", err)
	}
}

// checkAll checks that each of n IDs was emitted once.
func checkAll(t *testing.T, out *kafkatest.Collector, n int) {
	t.Helper()
	out.WaitFor(n, patience)
	out.Quiet(time.Second)
	received := out.Records()
	byID := rig.Emissions(t, received)
	if len(byID) != n || len(received) != n {
		t.Errorf("%d IDs, %d emissions of %d", len(byID), len(received), n)
	}
}
