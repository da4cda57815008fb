package rig

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

// fatal is a test that panics with the message of Fatal.
type fatal struct{ testing.TB }

func (f fatal) Helper()                           {}
func (f fatal) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// The requests that Stop counts are in the log; otherwise it fails the test.
func TestStream(t *testing.T) {
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "requests"))
	cl := kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...), kgo.UnknownTopicRetries(0))
	begun := func(topic string) *Stream {
		some := make(chan struct{})
		s := StartStream(fatal{t}, cl, 300, func(n int) *kgo.Record {
			if n == 30 {
				close(some)
			}
			return Timer(topic, "target", fmt.Sprint(n), time.Now())
		})
		<-some
		return s
	}
	sent := begun("requests").Stop()
	ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), "requests")
	if end, ok := ends.Lookup("requests", 0); err != nil || !ok || int(end.Offset) != sent || sent < 30 {
		t.Errorf("%d sent, the log ends at %d: %v", sent, end.Offset, err)
	}
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, "send the stream") {
			t.Errorf("to a topic that is missing: ended with %q, want the error", said)
		}
	}()
	begun("missing").Stop()
}
